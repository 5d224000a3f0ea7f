//! The limit of open files.

use std::fs;
use std::process::Command;

use mpath_api::client::ClientError;
use mpath_api::types::{AddPath, ErrorCode};
use mpath_config::DiskConfig;

use crate::support::{DaemonDirectory, NQN, Target, Verification, VerificationSetup, program};

const FLAGS: &str = "--io-threads 3 --queues 4";

/// The command with this hard limit, and a soft limit that is lower.
fn limited(command: &Command, hard: u64) -> Command {
    let mut shell = program();
    let daemon = shell.get_program().to_owned();
    assert_eq!(command.get_program(), daemon);
    shell = Command::new("sh");
    let script = r#"ulimit -Sn 50 && ulimit -Hn "$0" && exec "$@""#;
    shell.args(["-c", script, &hard.to_string()]).arg(daemon).args(command.get_args()).env_remove("RUST_LOG");
    shell
}

/// The need that the daemon names when it refuses to start.
fn needed(target: &Target) -> u64 {
    let place = DaemonDirectory::new();
    let refusal = place.refused(limited(&place.command(&target.addrs(), FLAGS), 60));
    refusal.says(1, &["hard limit of open files is 60", "LimitNOFILE=", "ulimit -n "]);
    let rest = refusal.line.split("the disks may need ").nth(1).unwrap();
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_limit_that_is_too_low_is_refused_and_the_soft_limit_is_raised() {
    let target = Target::start(2);
    let needed = needed(&target);
    let place = DaemonDirectory::new();
    let command = limited(&place.command(&target.addrs(), FLAGS), needed);
    let daemon = place.spawn(command).ready();
    let limits = fs::read_to_string(format!("/proc/{}/limits", daemon.status().pid)).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(values, [needed.to_string(), needed.to_string()]);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    let (used, _) = daemon.settled_resources();
    assert!(used as u64 <= needed, "{used} of {needed}");
    verification.finish();
}

#[test]
fn disks_and_paths_beyond_the_limit_are_refused_while_it_runs() {
    let (target, third) = (Target::start(2), Target::start(1));
    let place = DaemonDirectory::new();
    let command = limited(&place.command(&target.addrs(), FLAGS), needed(&target));
    let daemon = place.spawn(command).ready();
    let refused = |error: ClientError, wanted| match error {
        ClientError::Refused(error) => {
            assert_eq!(error.code, wanted, "{}", error.message);
            assert!(error.message.contains("LimitNOFILE="), "{}", error.message);
        }
        other => panic!("{other}"),
    };
    let address: mpath_config::PathAddress = format!("tcp://{}", third.addrs()[0]).parse().unwrap();
    refused(daemon.api.add_path("disk0", &AddPath { address: address.clone() }).unwrap_err(), ErrorCode::TooManyPaths);
    let socket = daemon.place.file("later.sock").to_str().unwrap().parse().unwrap();
    let config = DiskConfig::new(socket, NQN.parse().unwrap(), vec![address]);
    let config = DiskConfig { name: "later".parse().unwrap(), ..config };
    refused(daemon.api.add_disk(&config).unwrap_err(), ErrorCode::TooManyDisks);
    assert_eq!((daemon.status().disks.len(), daemon.paths().len()), (1, 2));
}
