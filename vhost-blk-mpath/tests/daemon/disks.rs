//! The disk that a front-end sees, and several disks in one daemon.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use mpath_api::types::{PathSelector, SetSettings};
use mpath_config::{DiskConfig, PolicyKind};
use mpath_target::NamespaceConfig;
use uuid::uuid;
use vublk_bench::options::{Mode, Options, OptionsError};
use vublk_bench::request::{Kind, Request, Status};
use vublk_bench::session::{self, RunError};

use crate::support::{
    Daemon, DaemonDirectory, Disk, NQN, Target, Verification, VerificationSetup, disk, get_id, inject, program,
    socket_of, target_of,
};

#[test]
fn a_disk_is_as_large_as_its_namespace() {
    for block_size in [512, 4096] {
        let target = Target::with(1, |config| {
            config.block_size = block_size;
            config.namespaces = vec![NamespaceConfig::memory(12_345 * 4096)];
        });
        let daemon = Daemon::start(&target.addrs(), "--queues 7");
        let disk = Disk::connect(&daemon.socket());
        let info = disk.info();
        assert_eq!((info.capacity_bytes, info.block_bytes), (12_345 * 4096, block_size));
        assert_eq!((info.queues_offered, info.read_only), (7, false));
        assert!(info.flush && info.discard && info.write_zeroes && info.event_idx);
        let status = &daemon.status().disks[0];
        assert_eq!((status.capacity_bytes, status.block_size_bytes), (12_345 * 4096, block_size));
        assert_eq!((status.namespace, status.queues), (Some(1), 7));
    }
}

#[test]
fn the_serial_is_the_same_whichever_path_comes_first() {
    let target =
        Target::with(2, |config| config.namespaces[0].uuid = Some(uuid!("6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21")));
    for first in 0..2 {
        let daemon = Daemon::start(&[target.addrs()[first], target.addrs()[1 - first]], "");
        assert_eq!(get_id(&daemon.socket()), (*b"4f8e9a410d8f5b6c7e21", 0));
    }
}

#[test]
fn requests_beyond_the_end_of_the_disk_fail() {
    let target = Target::with(1, |config| config.namespaces = vec![NamespaceConfig::memory(1 << 20)]);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut disk = Disk::connect(&daemon.socket());
    let end = 1 << 20;
    assert_eq!(disk.write(end - 4096, 5), Status::Ok);
    assert_eq!(disk.write(end - 2048, 6), Status::IoError);
    assert_eq!(disk.run(Request { kind: Kind::Read, offset: end, len: 512 }, &[]), Status::IoError);
    assert_eq!(disk.read(end - 4096), 5);
}

#[test]
fn a_read_only_disk_refuses_what_would_change_it() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "");
    assert_eq!(Disk::connect(&daemon.socket()).write(0, 3), Status::Ok);
    drop(daemon);

    let daemon = Daemon::start(&target.addrs(), "--read-only");
    let refused = session::run(&Options::with_defaults(&daemon.socket(), Mode::Verify), &false.into(), |_| {});
    assert!(matches!(refused, Err(RunError::Options(OptionsError::ReadOnly))), "{refused:?}");
    let mut disk = Disk::connect(&daemon.socket());
    assert!(disk.info().read_only && daemon.status().disks[0].read_only);
    for (kind, status) in [
        (Kind::Write, Status::IoError),
        // A read-only disk does not offer these.
        (Kind::WriteZeroes { unmap: false }, Status::Unsupported),
        (Kind::Discard, Status::Unsupported),
    ] {
        assert_eq!(disk.run(Request { kind, offset: 0, len: 4096 }, &[4; 4096]), status, "{kind:?}");
    }
    assert_eq!(disk.read(0), 3);
    assert_eq!(disk.flush(), Status::Ok);
    assert!(daemon.paths().iter().all(|path| path.write.ios == 0));
}

/// Two disks on two namespaces of one subsystem.
fn two_disks(target: &Target) -> Daemon {
    let place = DaemonDirectory::new();
    let command = two_disks_with(&place, target, ["    namespace: 1\n", "    namespace: 2\n"]);
    place.spawn(command).ready()
}

/// Two disks of one target, each with these settings.
fn two_disks_with(place: &DaemonDirectory, target: &Target, settings: [&str; 2]) -> Command {
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}")).collect::<Vec<_>>().join(", ");
    let disk = |name: &str, settings: &str| {
        format!(
            "  - name: {name}\n    socket-path: {socket}\n    subsystem: {NQN}\n    policy: round-robin\n    paths: [{paths}]\n    \
             suspect-timeout: 60s\n    keep-alive-tmo: 60\n\
             {settings}",
            socket = place.file(name).display()
        )
    };
    let api = place.api();
    let text = format!(
        "api: {}\nio-threads: 2\nwait-for: any\ndisks:\n{}{}",
        api.display(),
        disk("system", settings[0]),
        disk("data", settings[1])
    );
    fs::write(place.file("config.yaml"), text).unwrap();
    let mut command = program();
    // The API socket variable is for mpathctl. The daemon uses the socket of its file.
    command.env("MPATH_API", "/nonexistent/api.sock").arg("--config").arg(place.file("config.yaml"));
    command
}

/// With the namespace configured in any way.
#[test]
fn two_disks_do_not_write_to_one_namespace() {
    let target = Target::start(2);
    for settings in [["", ""], ["    namespace: 1\n", "    namespace: 1\n"], ["", "    namespace: 1\n"]] {
        let place = DaemonDirectory::new();
        let refused = place.refused(two_disks_with(&place, &target, settings));
        let said = |disk, of| {
            format!("disk {disk}: disk {of} already uses namespace 1 of `subsystem` {NQN}, and both would write")
        };
        // The disk that a path leads there first has the namespace.
        let said = [said("data", "system"), said("system", "data")];
        let said = said.iter().find(|said| refused.line.contains(*said)).unwrap_or(&said[0]);
        refused.says(2, &[said, "give each its own `namespace`", "`read-only`"]);
        assert!(!place.file("system").exists() && !place.file("data").exists() && !place.api().exists());
    }
    // One disk may write, and any number may read.
    let place = DaemonDirectory::new();
    let command = two_disks_with(&place, &target, ["    read-only: true\n", ""]);
    let daemon = place.spawn(command).ready();
    assert_eq!(Disk::connect(&daemon.place.file("data")).write(0, 3), Status::Ok);
    assert_eq!(Disk::connect(&daemon.place.file("system")).read(0), 3);
}

/// Under any spelling. The second disk must not wait for the lock of the first, or blame another process.
#[test]
fn two_disks_do_not_have_one_socket() {
    let target = target_of(2, 1, 1 << 20);
    let place = DaemonDirectory::new();
    let socket = socket_of(&place, 0);
    let directory = socket.parent().unwrap();
    symlink(directory, place.file("link")).unwrap();
    let (first, root) = (socket.display(), directory.display());
    for other in [format!("{root}//disk-0"), format!("{root}/./disk-0"), format!("{root}/link/disk-0"), "disk-0".into()]
    {
        let second = DiskConfig { socket_path: other.parse().unwrap(), ..disk(&place, &target, 1) };
        let mut command = place.configured(vec![disk(&place, &target, 0), second]);
        command.current_dir(directory);
        let said =
            format!("disk disk-1: `socket-path` {other} is the same socket as {first} of disk disk-0; give each");
        place.refused(command).says(2, &[&said]);
        assert!(!socket.exists() && !place.api().exists());
    }
}

#[test]
fn a_disk_does_not_have_the_socket_of_the_api() {
    let target = target_of(1, 1, 1 << 20);
    let place = DaemonDirectory::new();
    let (api, name) = (place.api(), place.api().file_name().unwrap().to_str().unwrap().to_owned());
    let socket = format!("{}/./{name}", api.parent().unwrap().display());
    let config = DiskConfig { socket_path: socket.parse().unwrap(), ..disk(&place, &target, 0) };
    let said = format!("disk disk-0: `socket-path` {socket} is the same socket as the API's, {}; give", api.display());
    place.refused(place.configured(vec![config])).says(2, &[&said]);
    assert!(!api.exists());
}

#[test]
fn two_disks_in_one_daemon_are_independent() {
    let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
    let daemon = two_disks(&target);
    let verifications =
        ["system", "data"].map(|name| Verification::start(&daemon.place.file(name), VerificationSetup::default()));
    let policies = || daemon.status().disks.iter().map(|disk| (disk.name.clone(), disk.policy)).collect::<Vec<_>>();
    let both =
        |system: PolicyKind, data: PolicyKind| [("system".to_owned(), system.into()), ("data".to_owned(), data.into())];
    assert_eq!(policies(), both(PolicyKind::RoundRobin, PolicyKind::RoundRobin));

    let only_data = SetSettings::from(PolicyKind::Numa).of("data");
    assert_eq!(daemon.api.set(&only_data).unwrap().len(), 1);
    assert_eq!(policies(), both(PolicyKind::RoundRobin, PolicyKind::Numa));
    let mut injection = inject(PathSelector::Index(0), std::time::Duration::from_millis(1));
    injection.disk = Some("system".into());
    assert_eq!(daemon.api.set_injection(&injection).unwrap().len(), 1);
    let injected: Vec<_> = daemon.paths().iter().map(|path| !path.injections.is_empty()).collect();
    assert_eq!(injected, [true, false, false, false]);
    // With the numa policy one path of the disk is idle.
    let before = daemon.paths();
    for verification in &verifications {
        verification.goes_on(500);
    }
    let used: Vec<_> = daemon.paths().iter().zip(before).map(|(now, before)| now.ios() > before.ios() + 64).collect();
    assert_eq!(used.iter().filter(|used| **used).count(), 3, "{used:?}");
    assert_eq!(used[..2], [true, true]);
    let capacities: Vec<_> = daemon.status().disks.iter().map(|disk| disk.capacity_bytes).collect();
    assert_eq!(capacities, [64 << 20, 32 << 20]);
    for verification in verifications {
        verification.finish();
    }
}
