//! What cannot work: one line on stderr says why, the exit code is the one that `--help` documents, nothing is left behind.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use mpath_target::NamespaceConfig;

use crate::support::{Daemon, NQN, Place, Refusal, Target, program, refusing_address};

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const NO_PATH: i32 = 3;
const SOCKET: i32 = 4;

/// Starts a daemon with these flags beside those of a disk with one good path.
fn refused_with(flags: &str) -> Refusal {
    let (place, target) = (Place::new(), Target::start(1));
    let refusal = place.refused(place.command(&target.addrs(), flags));
    nothing_left(&place);
    refusal
}

/// Starts a daemon with this configuration file.
pub(crate) fn refused_file(text: &str) -> (Refusal, String) {
    let place = Place::new();
    let file = place.file("config.yaml");
    fs::write(&file, text).unwrap();
    let mut command = program();
    command.arg("--config").arg(&file);
    let refusal = place.refused(command);
    nothing_left(&place);
    (refusal, file.to_str().unwrap().to_owned())
}

#[track_caller]
fn nothing_left(place: &Place) {
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn an_unknown_policy_is_told_which_there_are() {
    let refusal = refused_with("--policy fastest");
    refusal.says(USAGE, &["--policy", "fastest", "numa", "round-robin", "queue-depth", "latency-rr"]);
    refusal.alone();
}

#[test]
fn a_value_out_of_range_is_told_the_range() {
    let refusal = refused_with("--queues 257");
    refusal.says(USAGE, &["--queues", "257", "1 to 256"]);
    refusal.alone();
}

#[test]
fn a_path_given_twice_is_refused() {
    let (place, target) = (Place::new(), Target::start(1));
    let address = target.addrs()[0];
    let refusal = place.refused(place.command(&[address, address], ""));
    refusal.says(USAGE, &["paths[1]", &address.to_string(), "paths[0]"]);
    refusal.alone();
}

#[test]
fn a_missing_flag_is_named() {
    let place = Place::new();
    let mut command = program();
    command.args(["--subsystem", NQN]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["no socket: give --socket-path PATH", "--help"]);
    refusal.alone();
}

#[test]
fn no_path_at_all_is_told_both_ways_to_one() {
    let place = Place::new();
    let refusal = place.refused(place.command(&[], ""));
    refusal.says(USAGE, &["no path: give --path tcp://", "--discovery tcp://"]);
    refusal.alone();
    nothing_left(&place);
}

/// nvme-cli's -1 and 0 mean "for ever".
#[test]
fn for_ever_is_told_to_be_left_out() {
    for setting in ["ctrl-loss-tmo", "fast-io-fail-tmo"] {
        for value in ["-1", "0"] {
            let refusal = refused_with(&format!("--{setting}={value}"));
            let said = format!("'{value}' for '--{setting} <SECONDS>'");
            refusal.says(
                USAGE,
                &[
                    &said,
                    "a whole number of seconds from 1 to 86400, such as 5 or 5s; leave the setting out for no limit",
                ],
            );
            refusal.alone();
            let disk = "{socket-path: /tmp/s, subsystem: nqn.a, paths: ['tcp://127.0.0.1']";
            let (refusal, _) = refused_file(&format!("disks:\n  - {disk}, {setting}: {value}}}\n"));
            refusal.says(USAGE, &[setting, value, "leave the setting out for no limit"]);
            refusal.alone();
        }
    }
}

#[test]
fn a_path_that_is_empty_is_told_the_form() {
    let refusal = refused_with("--path=");
    refusal.says(USAGE, &["--path", "tcp://HOST:PORT"]);
    refusal.alone();
}

#[test]
fn a_host_name_that_is_no_nqn_is_refused_and_a_subsystems_is_worth_a_word() {
    let refusal = refused_with("--hostnqn foo");
    refusal.says(USAGE, &["hostnqn: `foo` does not start with `nqn.`", "nqn.2014-08.org.nvmexpress:uuid:"]);
    refusal.alone();
    let (place, refusing) = (Place::new(), refusing_address());
    let mut command = program();
    command.arg("--socket-path").arg(place.socket()).arg("--api").arg(place.api());
    command.args(["--subsystem", "testnqn", "--path", &format!("tcp://{}", refusing.1)]);
    let (code, log) = place.fails_or_serves(command).unwrap();
    // Up to its path it has come.
    assert_eq!(code, NO_PATH);
    assert!(log.contains("the subsystem's name does not start with `nqn.`") && log.contains("testnqn"), "{log}");
}

#[test]
fn flags_beside_a_file_are_refused() {
    let place = Place::new();
    let mut command = program();
    command.args(["--config", "/nonexistent", "--policy", "numa"]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["--config and --policy cannot be used together"]);
    refusal.alone();
}

#[test]
fn paths_that_all_refuse_are_each_named() {
    let (place, first, second) = (Place::new(), refusing_address(), refusing_address());
    let refusal = place.refused(place.command(&[first.1, second.1], ""));
    let addresses = [first.1.to_string(), second.1.to_string()];
    refusal.says(NO_PATH, &["disk0", &addresses[0], &addresses[1], "Connection refused"]);
    refusal.alone();
    nothing_left(&place);
}

#[test]
fn a_wrong_nqn_is_named_as_such() {
    let (place, target) = (Place::new(), Target::with(1, |config| config.nqn = "nqn.other".into()));
    let refusal = place.refused(place.command(&target.addrs(), ""));
    refusal.says(NO_PATH, &["SUBNQN", NQN, "no subsystem of this NQN", &target.addrs()[0].to_string()]);
    refusal.alone();
    nothing_left(&place);
}

#[test]
fn a_missing_namespace_is_told_which_there_are() {
    let (place, target) = (Place::new(), two_namespaces());
    let refusal = place.refused(place.command(&target.addrs(), "--namespace 9"));
    refusal.says(NO_PATH, &["`namespace` 9", "1, 2"]);
    nothing_left(&place);
}

#[test]
fn a_choice_of_namespaces_needs_a_name() {
    let (place, target) = (Place::new(), two_namespaces());
    place.refused(place.command(&target.addrs(), "")).says(NO_PATH, &["1, 2"]);
}

fn two_namespaces() -> Target {
    Target::with(1, |config| config.namespaces.push(NamespaceConfig::memory(1 << 20)))
}

#[test]
fn malformed_yaml_is_shown_where() {
    let (refusal, file) = refused_file("api: /tmp/a\n\tdisks: []\n");
    refusal.says(USAGE, &[&format!("{file}:2:1: ")]);
    refusal.alone();
}

#[test]
fn an_unknown_key_is_shown_where() {
    let (refusal, file) = refused_file("disks:\n  - socket-path: /tmp/s\n    polcy: numa\n");
    refusal.says(USAGE, &[&format!("{file}:3:5: "), "polcy", "policy"]);
    refusal.alone();
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let place = Place::new();
    let mut command = program();
    command.args(["--config", "/nonexistent/config.yaml"]);
    let refusal = place.refused(command);
    refusal.says(USAGE, &["/nonexistent/config.yaml: No such file"]);
    refusal.alone();
}

/// A daemon whose flags name a socket that somebody else listens on: that one is left alone, the other is not left behind.
fn busy(busy: impl Fn(&Place) -> PathBuf, other: impl Fn(&Place) -> PathBuf, role: &str) {
    let (place, target) = (Place::new(), Target::start(1));
    let path = busy(&place);
    let listener = UnixListener::bind(&path).unwrap();
    let refusal = place.refused(place.command(&target.addrs(), ""));
    refusal.says(SOCKET, &[path.to_str().unwrap(), "another process listens", role]);
    refusal.alone();
    assert!(!other(&place).exists());
    // The daemon's look was no connection, and ours is.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
    UnixStream::connect(&path).unwrap();
    assert!(listener.accept().is_ok());
    assert_eq!(target.connections(0), 0);
}

#[test]
fn a_busy_vhost_user_socket_is_left_alone() {
    busy(Place::socket, Place::api, "vhost-user socket");
}

#[test]
fn a_busy_api_socket_is_left_alone() {
    busy(Place::api, Place::socket, "API socket");
}

#[test]
fn sockets_that_nobody_listens_on_are_replaced() {
    let (place, target) = (Place::new(), Target::start(1));
    for path in [place.socket(), place.api()] {
        drop(UnixListener::bind(path).unwrap());
    }
    let command = place.command(&target.addrs(), "");
    let daemon: Daemon = place.spawn(command).ready();
    assert_eq!(daemon.status().disks.len(), 1);
}

#[test]
fn a_file_that_is_no_socket_stays() {
    for path in [Place::socket, Place::api] {
        let (place, target) = (Place::new(), Target::start(1));
        fs::write(path(&place), "precious").unwrap();
        let refusal = place.refused(place.command(&target.addrs(), ""));
        refusal.says(SOCKET, &[path(&place).to_str().unwrap(), "no socket"]);
        refusal.alone();
        assert_eq!(fs::read_to_string(path(&place)).unwrap(), "precious");
    }
}

#[test]
fn a_fence_record_that_is_none_stops_the_start_and_stays() {
    let (place, target) = (Place::new(), Target::start(1));
    fs::write(place.fence_record(), "precious").unwrap();
    let refusal = place.refused(place.command(&target.addrs(), ""));
    refusal.says(FAILED, &[place.fence_record().to_str().unwrap(), "no fence record", "remove it"]);
    refusal.alone();
    assert_eq!(fs::read_to_string(place.fence_record()).unwrap(), "precious");
    assert!(!place.socket().exists() && !place.api().exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let place = Place::new();
    let mut command = program();
    command.arg("--socket-path").arg(place.socket()).args(["--api", "/nonexistent/deeper/api.sock"]);
    command.args(["--subsystem", NQN, "--path", "tcp://127.0.0.1:4420"]);
    let refusal = place.refused(command);
    refusal.says(SOCKET, &["/nonexistent/deeper/api.sock", "directory"]);
    refusal.alone();
    nothing_left(&place);
}

/// However few descriptors it may have, the daemon says what it lacks, and leaves nothing behind.
#[test]
fn too_few_descriptors_are_told_as_such() {
    let target = Target::start(1);
    let (mut refusals, mut rings) = (0, 0);
    // With fewer, tokio itself does not come up.
    for limit in 9.. {
        let place = Place::new();
        let host = "--hostnqn nqn.2026-11.io.example:host --hostid 6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";
        let daemon = place.command(&target.addrs(), host);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n $0; exec \"$@\"", &limit.to_string()]);
        command.arg(daemon.get_program()).args(daemon.get_args());
        let Some((code, log)) = place.fails_or_serves(command) else { break };
        let line = log.lines().last().unwrap();
        assert!(line.starts_with("vhost-blk-mpath: ") && line.contains("Too many open files"), "{limit}: {log}");
        assert!([FAILED, NO_PATH, SOCKET].contains(&code), "{limit}: {code}: {log}");
        assert!(!line.contains("io_uring") || code == FAILED, "{limit}: {code}: {log}");
        rings += u32::from(line.contains("io_uring"));
        refusals += 1;
        nothing_left(&place);
    }
    assert!(refusals > 3 && rings > 0, "{refusals}, {rings} for want of a ring");
}

#[test]
fn capabilities_win_over_all_else() {
    for flags in ["", "--policy fastest", "--config /nonexistent --queues x", "--no-such-flag --version"] {
        let mut command = program();
        command.args(flags.split_whitespace()).arg("--print-capabilities").stdin(Stdio::null());
        let output = command.output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{flags}");
        let capabilities: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(capabilities, serde_json::json!({"type": "block", "features": ["read-only"]}), "{flags}");
    }
}
