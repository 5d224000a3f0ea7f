//! Disks that share their paths: namespaces of one subsystem, each with its own socket.

use std::fmt::Write;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use mpath_api::types::{AnaState, EventKind, PathState, SetLimits, SetSettings, Tier};
use mpath_target::NamespaceConfig;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{
    Daemon, DaemonDirectory, Disk, NQN, Target, Verification, VerificationSetup, eventually, program,
};

const NAMES: [&str; 3] = ["system", "data", "backup"];
/// Another identity for the second namespace.
const OTHER: &str = "uuid=2:6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";

/// Three namespaces of different sizes.
fn target() -> Target {
    Target::with(2, |config| config.namespaces.extend([32, 16].map(|mib| NamespaceConfig::memory(mib << 20))))
}

/// The daemon with the disk `system` and `more` disks that share its paths.
fn command(place: &DaemonDirectory, target: &Target, more: usize, settings: &str) -> Command {
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}")).collect::<Vec<_>>().join(", ");
    let keep_alive_tmo = if settings.contains("keep-alive-tmo") { "" } else { "    keep-alive-tmo: 60\n" };
    let mut text = format!(
        "api: {}\nio-threads: 2\nwait-for: any\ndisks:\n  - name: system\n    socket-path: {}\n    subsystem: {NQN}\n    namespace: 1\n    \
         paths: [{paths}]\n    reconnect-delay: 1\n{keep_alive_tmo}{settings}    share-paths-with:\n",
        place.api().display(),
        place.file("system").display(),
    );
    for (name, namespace) in NAMES.iter().zip(1..).skip(1).take(more) {
        let socket = place.file(name);
        let socket = socket.display();
        write!(text, "      - name: {name}\n        socket-path: {socket}\n        namespace: {namespace}\n").unwrap();
    }
    fs::write(place.file("config.yaml"), text).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    command
}

fn start(target: &Target, more: usize, settings: &str) -> Daemon {
    let place = DaemonDirectory::new();
    let command = command(&place, target, more, settings);
    place.spawn(command).ready()
}

fn connect(daemon: &Daemon, name: &str) -> Disk {
    Disk::connect_patiently(&daemon.place.file(name))
}

fn verify(daemon: &Daemon, name: &str, shape: VerificationSetup) -> Verification {
    Verification::start(&daemon.place.file(name), shape)
}

fn unflushed() -> VerificationSetup {
    VerificationSetup { bs: 16 << 10, flush: false, ..VerificationSetup::default() }
}

/// The state of the disk `data` on path 0.
fn to_data(daemon: &Daemon) -> (Option<AnaState>, Option<String>) {
    let sharer = daemon.paths()[0].sharers[0].clone();
    assert_eq!(sharer.disk, "data");
    (sharer.ana_state, sharer.unusable)
}

#[test]
fn each_disk_is_its_own_namespace() {
    let target = target();
    let daemon = start(&target, 2, "    policy: round-robin\n");
    // One admin queue, and one I/O queue for each thread, however many disks there are.
    assert_eq!(target.connections(0), 3);
    let mut disks = NAMES.map(|name| connect(&daemon, name));
    for (disk, byte) in disks.iter_mut().zip(1..) {
        assert_eq!((disk.write(8192, byte), disk.flush()), (Status::Ok, Status::Ok));
    }
    for (disk, byte) in disks.iter_mut().zip(1..) {
        assert_eq!((disk.read(8192), disk.read(4096)), (byte, 0));
    }
    drop(disks);
    let verifications = NAMES.map(|name| verify(&daemon, name, VerificationSetup::default()));
    for verification in &verifications {
        verification.goes_on(1000);
    }
    let status = daemon.status();
    let owners: Vec<_> =
        status.disks.iter().map(|disk| (disk.name.as_str(), disk.shares_paths_of.as_deref())).collect();
    assert_eq!(owners, [("system", None), ("data", Some("system")), ("backup", Some("system"))]);
    assert!(
        status.disks.iter().all(|disk| (disk.path_counts.total, disk.path_counts.usable) == (2, 2) && disk.connected)
    );
    assert_eq!(status.disks.iter().map(|disk| disk.namespace.unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(status.disks.iter().map(|disk| disk.capacity_bytes >> 20).collect::<Vec<_>>(), [64, 32, 16]);
    assert_eq!(daemon.paths().len(), 2, "listed once");
    for detail in daemon.api.scheduler_detail(None).unwrap() {
        assert_eq!(detail.queues.iter().map(|queue| queue.queue).collect::<Vec<_>>(), [0, 1, 2, 3], "{}", detail.disk);
        assert!(detail.queues.iter().all(|queue| queue.served > 0));
    }
    for verification in verifications {
        verification.finish();
    }
}

#[test]
fn the_ana_state_of_one_namespace_does_not_affect_other_disks() {
    let target = target();
    let daemon = start(&target, 1, "    policy: round-robin\n");
    let system = verify(&daemon, "system", unflushed());
    let data = verify(&daemon, "data", unflushed());
    system.goes_on(100);
    // One path leads to the second namespace, the other to the first.
    target.set(0, "ana=2:inaccessible");
    target.set(1, "ana=1:inaccessible");
    eventually("both are shown", || {
        to_data(&daemon).0 == Some(AnaState::Inaccessible)
            && daemon.paths()[1].ana_state == Some(AnaState::Inaccessible)
    });
    assert_eq!(daemon.paths()[0].ana_state, Some(AnaState::Optimized));
    data.goes_on(300);
    system.goes_on(300);
    // Without a path to its namespace, a disk's requests wait. The other disk continues.
    target.set(1, "ana=2:inaccessible");
    eventually("requests wait", || daemon.status().disks[1].queued > 0);
    assert_eq!(daemon.status().disks[0].queued, 0);
    system.goes_on(300);
    target.set(0, "ana=2:optimized");
    data.goes_on(300);
    system.finish();
    data.finish();
}

#[test]
fn a_flush_that_waits_for_one_disks_path_holds_up_no_other_disk() {
    let target = target();
    let daemon = start(&target, 1, "    policy: numa\n");
    let (mut system, mut data) = (connect(&daemon, "system"), connect(&daemon, "data"));
    for disk in [&mut system, &mut data] {
        assert_eq!((disk.flush(), disk.write(0, 1)), (Status::Ok, Status::Ok));
    }
    target.set(0, "ana=2:inaccessible");
    eventually("the state is shown", || to_data(&daemon).0 == Some(AnaState::Inaccessible));
    data.submit(1, vublk_bench::request::Request::FLUSH, &[]);
    assert_eq!(data.answer(Duration::from_millis(300)), None, "it cannot be done");
    assert_eq!(system.flush(), Status::Ok);
    target.set(0, "ana=2:optimized");
    assert_eq!(data.answer(crate::support::PATIENCE), Some((1, Status::Ok)));
}

#[test]
fn a_path_that_leads_one_disk_elsewhere_serves_the_others() {
    let target = target();
    target.stop_listener(0);
    let daemon = start(&target, 1, "    policy: round-robin\n");
    target.set(0, OTHER);
    target.resume_listener(0).unwrap();
    eventually("the path is live", || daemon.paths()[0].state == PathState::Live);
    let (state, error) = to_data(&daemon);
    assert_eq!(state, None);
    let error = error.unwrap();
    assert!(error.contains("UUID") && daemon.log().contains(&error), "{error}; {}", daemon.log());
    assert_eq!(daemon.status().disks.iter().map(|disk| disk.path_counts.usable).collect::<Vec<_>>(), [2, 1]);
    // It is the real namespace, so any write that reaches it would show.
    let mut data = connect(&daemon, "data");
    (0..64).for_each(|block| assert_eq!(data.write(block * 4096, 7), Status::Ok));
    drop(data);
    assert_eq!(daemon.paths()[0].write.ios, 0, "nothing of the disk has gone there");
    assert_eq!(daemon.paths()[1].write.ios, 64);
    let system = verify(&daemon, "system", unflushed());
    system.goes_on(200);
    assert!(daemon.paths()[0].write.ios > 0);
    system.finish();

    // The identity is right again, on the same connections.
    let written = daemon.paths()[0].write.ios;
    target.set(0, "uuid=2:own");
    eventually("the path leads to both", || daemon.status().disks[1].path_counts.usable == 2);
    assert_eq!(to_data(&daemon), (Some(AnaState::Optimized), None));
    let data = verify(&daemon, "data", unflushed());
    eventually("the disk uses it", || daemon.paths()[0].write.ios > written + 100);
    data.finish();
    let events = daemon.api.events(0).unwrap().events;
    let of_path = events.iter().filter(|event| event.path.as_ref().is_some_and(|path| path.index == 0));
    assert_eq!(of_path.filter(|event| event.kind == EventKind::PathLive).count(), 1, "{events:?}");
}

/// Results of requests under the old identity must not count.
#[test]
fn a_namespace_that_becomes_another_one_ends_the_association_and_then_leaves_its_disk() {
    let target = target();
    let daemon = start(&target, 1, "    policy: round-robin\n");
    let system = verify(&daemon, "system", unflushed());
    let data = verify(&daemon, "data", unflushed());
    data.goes_on(200);
    target.set(0, OTHER);
    // On a busy machine the path may be suspect before.
    let is_elsewhere = || to_data(&daemon).1.is_some_and(|why| why.contains("UUID"));
    eventually("the path is back without the disk", || daemon.is_live(0) && is_elsewhere());
    let events = daemon.api.events(0).unwrap().events;
    let lost = events.iter().find(|event| event.kind == EventKind::PathLost).unwrap();
    assert!(lost.message.contains("UUID"), "{lost:?}");
    data.goes_on(300);
    system.goes_on(300);
    target.set(0, "uuid=2:own");
    eventually("it is back", || to_data(&daemon) == (Some(AnaState::Optimized), None));
    data.goes_on(300);
    system.finish();
    data.finish();
}

/// This holds for any end of the association. Here a namespace became another one.
#[test]
fn losing_an_association_is_reported_to_each_disk_with_unflushed_writes() {
    let target = target();
    let daemon = start(&target, 1, "    policy: numa\n");
    let (mut system, mut data) = (connect(&daemon, "system"), connect(&daemon, "data"));
    for disk in [&mut system, &mut data] {
        assert_eq!((disk.flush(), disk.write(0, 1)), (Status::Ok, Status::Ok));
    }
    target.set(0, OTHER);
    eventually("the disk leaves the path", || to_data(&daemon).1.is_some());
    // Flushes just after the loss, or just after a flush that reported it, may have been under way before.
    let passes = || std::thread::sleep(Duration::from_millis(300));
    passes();
    let begun = Instant::now();
    assert_eq!((system.flush(), data.flush()), (Status::IoError, Status::IoError));
    assert!(begun.elapsed() < Duration::from_secs(60), "at once: {:?}", begun.elapsed());
    passes();
    assert_eq!((system.flush(), data.flush()), (Status::Ok, Status::Ok), "told once");
}

#[test]
fn the_loss_of_a_path_moves_all_disks_and_loses_nothing() {
    let target = target();
    let daemon = start(&target, 2, "    policy: round-robin\n");
    let verifications = NAMES.map(|name| verify(&daemon, name, unflushed()));
    let all_go_on = || {
        for verification in &verifications {
            verification.goes_on(100);
        }
    };
    for _ in 0..3 {
        all_go_on();
        target.set(0, "reset=all");
        all_go_on();
        eventually("the path is back", || daemon.is_live(0));
    }
    for verification in verifications {
        verification.finish();
    }
}

/// Either disk may be alone in the next daemon's configuration.
#[test]
fn a_killed_daemon_leaves_a_record_for_each_disk() {
    let target = target();
    let daemon = start(&target, 1, "    keep-alive-tmo: 1\n");
    let mut disks = ["system", "data"].map(|name| connect(&daemon, name));
    for disk in &mut disks {
        assert_eq!(disk.write(0, 1), Status::Ok);
    }
    let records = |place: &DaemonDirectory| ["system.fence", "data.fence"].map(|name| place.file(name).exists());
    let (_, place) = daemon.end(Signal::KILL);
    assert_eq!(records(&place), [true, true]);
    for name in ["system", "data"] {
        fs::remove_file(place.file(name)).unwrap();
    }
    let again = command(&place, &target, 1, "    keep-alive-tmo: 1\n");
    let begun = Instant::now();
    let daemon = place.spawn(again).ready();
    let mut data = connect(&daemon, "data");
    assert_eq!(data.read(0), 1);
    assert!(begun.elapsed() >= Duration::from_secs(1), "it has waited for the fence");
    drop(data);
    let left = |name: &str| fs::read_to_string(daemon.place.file(name)).unwrap().matches("fence_ms").count();
    assert_eq!(["system.fence", "data.fence"].map(left), [1, 1], "a record names the longest fence alone");
    let (_, place) = daemon.end(Signal::TERM);
    assert_eq!(records(&place), [true, true], "a front-end with an in-flight log may come back to either");
}

#[test]
fn a_disk_whose_namespace_no_path_leads_to_is_an_error_at_the_start() {
    let target = Target::start(1);
    let place = DaemonDirectory::new();
    let refused = place.refused(command(&place, &target, 1, ""));
    refused.says(3, &["disk data", "no path leads to its namespace", "`namespace` 2 is not active", "tcp://"]);
    assert!(!place.file("system").exists() && !place.file("data").exists());
}

#[test]
fn limits_of_a_disk_are_its_own() {
    let target = target();
    let daemon = start(&target, 1, "");
    let (iops, burst) = (Some("50".parse().unwrap()), Some("0ms".parse().unwrap()));
    daemon.api.set(&SetSettings::from(SetLimits { iops, burst, bandwidth: None }).of("data")).unwrap();
    let system = verify(&daemon, "system", unflushed());
    let mut data = connect(&daemon, "data");
    let start = Instant::now();
    (0..20).for_each(|block| assert_eq!(data.read(block * 4096), 0));
    assert!(start.elapsed() >= Duration::from_millis(300), "{:?}", start.elapsed());
    let [system_limits, data_limits] = [0, 1].map(|disk: usize| daemon.status().disks[disk].limits.unwrap());
    assert!(data_limits.throttled_ms > 0 && system_limits.throttled_ms == 0, "{system_limits:?} {data_limits:?}");
    let before = daemon.api.scheduler_detail(Some("system")).unwrap()[0].queues[0].served;
    system.goes_on(300);
    assert!(daemon.api.scheduler_detail(Some("system")).unwrap()[0].queues[0].served > before);
    system.finish();
}

/// Both are busy. One has four virtqueues and the other two.
#[test]
fn service_is_divided_by_weight_and_not_by_virtqueues() {
    let target = target();
    // A small window and slow answers, so that there is a queue to divide.
    target.set(0, "delay=8ms");
    let daemon = start(&target, 1, "    policy: numa\n    window: {ios: 2}\n");
    let shape = VerificationSetup { bs: 4096, depth: 16, flush: false, ..VerificationSetup::default() };
    let system = verify(&daemon, "system", VerificationSetup { queues: 4, ..shape });
    let data = verify(&daemon, "data", VerificationSetup { queues: 2, depth: 32, ..shape });
    for (weight, least, most) in [(300, 200, 450), (50, 33, 75)] {
        let wanted = SetSettings { weight: format!("{weight}").parse().ok(), ..SetSettings::default() };
        daemon.api.set(&wanted.of("data")).unwrap();
        let served = || {
            let details = daemon.api.scheduler_detail(None).unwrap();
            let sum = |disk: usize| details[disk].queues.iter().map(|queue| queue.served_bytes).sum::<u64>();
            [sum(0), sum(1)]
        };
        system.goes_on(100);
        let before = served();
        system.goes_on(400);
        let after = served();
        let percent = 100 * (after[1] - before[1]) / (after[0] - before[0]);
        assert!((least..most).contains(&percent), "{percent} % for {weight:?}");
    }
    let details = daemon.api.scheduler_detail(None).unwrap();
    assert!(details.iter().all(|detail| detail.tier == Some(Tier::Bulk)), "{details:?}");
    system.finish();
    data.finish();
}
