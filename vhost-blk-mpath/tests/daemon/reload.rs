//! The reload of the configuration file, while front-ends use the disks.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;

use mpath_api::types::{AddPath, ConditionReason, ErrorCode, EventKind, Origin, PathSelector, Reload};
use mpath_config::{Config, DiskConfig, PathAddress, PolicyKind, SharerConfig};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::Signal;

use crate::live_disks::{config, refusal, target};
use crate::support::{
    Daemon, DaemonDirectory, Disk, PATIENCE, Target, Verification, VerificationSetup, eventually, own_address,
    set_policy,
};

/// Writes the file of a daemon with these disks.
fn write(place: &DaemonDirectory, disks: Vec<DiskConfig>, change: impl FnOnce(&mut Config)) {
    let mut config = Config { api: place.api().to_str().unwrap().parse().unwrap(), ..Config::new(disks) };
    change(&mut config);
    fs::write(place.file("config.yaml"), serde_json::to_string(&config).unwrap()).unwrap();
}

/// A daemon with a file of one disk over these two paths, in use.
fn start(target: &Target) -> (Daemon, DiskConfig, Verification) {
    let place = DaemonDirectory::new();
    let disk = first(&place, target);
    let command = place.configured(vec![disk.clone()]);
    let daemon = place.spawn(command).ready();
    let verification = Verification::start(&daemon.place.file("db"), VerificationSetup::default());
    verification.goes_on(50);
    (daemon, disk, verification)
}

fn first(place: &DaemonDirectory, target: &Target) -> DiskConfig {
    DiskConfig { namespace: "1".parse().ok(), ..config(place, "db", &target.addrs()) }
}

fn reload(daemon: &Daemon) -> Reload {
    daemon.api.reload(false, false).unwrap()
}

fn applied(reload: &Reload) -> Vec<String> {
    assert_eq!(reload.failed, []);
    reload.applied.iter().map(ToString::to_string).collect()
}

fn addresses(daemon: &Daemon) -> Vec<PathAddress> {
    daemon.paths().into_iter().map(|path| path.address).collect()
}

/// The messages of this kind of event.
fn told(daemon: &Daemon, kind: EventKind) -> Vec<String> {
    let events = daemon.api.events(0).unwrap().events;
    events.into_iter().filter(|event| event.kind == kind).map(|event| event.message).collect()
}

#[test]
fn settings_apply_under_load_and_live_changes_are_undone() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    assert_eq!(applied(&reload(&daemon)), [""; 0]);
    let wanted = DiskConfig {
        policy: PolicyKind::RoundRobin.into(),
        weight: "7".parse().unwrap(),
        hedge: "p95".parse().unwrap(),
        limits: serde_json::from_str(r#"{"iops": 100000}"#).unwrap(),
        ..disk.clone()
    };
    write(&daemon.place, vec![wanted], |_| {});
    let dry = daemon.api.reload(true, false).unwrap();
    assert_eq!((dry.dry_run, dry.applied.len(), daemon.status().disks[0].policy), (true, 4, PolicyKind::Bdp.into()));
    assert_eq!(reload(&daemon).applied, dry.applied);
    let shown = daemon.status().disks.remove(0);
    assert_eq!(
        (shown.policy, shown.weight, shown.hedge.hedge.to_string()),
        (PolicyKind::RoundRobin.into(), 7, "p95".into())
    );
    assert_eq!(daemon.api.disks(None).unwrap()[0].limits.unwrap().limits.iops.to_string(), "100000");
    verification.goes_on(100);
    daemon.api.set(&set_policy(PolicyKind::Numa)).unwrap();
    assert_eq!(daemon.api.configuration().unwrap().effective["disks"][0]["policy"], "numa");
    // A file that has the live change is what was given, also without a reload.
    let file = daemon.place.file("config.yaml");
    let before = fs::read_to_string(&file).unwrap();
    fs::write(&file, before.replace("round-robin", "numa")).unwrap();
    assert_eq!(daemon.api.reload(true, false).unwrap().applied, []);
    assert_eq!(daemon.api.configuration().unwrap().given["disks"][0]["policy"], "numa");
    fs::write(&file, before).unwrap();
    assert_eq!(applied(&reload(&daemon)), ["disk `db`: policy: numa becomes round-robin"]);
    let events = told(&daemon, EventKind::ConfigReloaded);
    assert!(events.len() == 3 && events[2].ends_with("changes applied: 1, failed: 0, not live: 0"), "{events:?}");
    verification.goes_on(100);
    verification.finish();
    let (ended, _place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn a_disk_over_shared_paths_has_its_own_limits_and_weight() {
    let (target, place) = (target(), DaemonDirectory::new());
    let shared = |weight: &str, limits: &str| {
        let (socket, namespace) = (place.file("s").to_str().unwrap().parse().unwrap(), "2".parse().unwrap());
        let sharer = SharerConfig::new("s".parse().unwrap(), socket, namespace);
        let (weight, limits) = (weight.parse().unwrap(), serde_json::from_str(limits).unwrap());
        DiskConfig { share_paths_with: vec![SharerConfig { weight, limits, ..sharer }], ..first(&place, &target) }
    };
    let (before, after) = (shared("100", "{}"), shared("7", r#"{"iops": 9000}"#));
    let command = place.configured(vec![before]);
    let daemon = place.spawn(command).ready();
    write(&daemon.place, vec![after], |_| {});
    let changes = applied(&reload(&daemon));
    assert!(changes.len() == 2 && changes.iter().all(|change| change.starts_with("disk `s`: ")), "{changes:?}");
    let disks = daemon.status().disks;
    assert_eq!((disks[0].weight, disks[1].weight), (100, 7));
    let iops: Vec<_> =
        daemon.api.disks(None).unwrap().iter().map(|of| of.limits.unwrap().limits.iops.to_string()).collect();
    assert_eq!(iops, ["off", "9000"]);
}

/// Both paths are replaced. The new one takes over before the old ones go.
#[test]
fn paths_are_replaced_under_load() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let both = disk.paths.clone();
    write(&daemon.place, vec![DiskConfig { paths: both[..1].to_vec(), ..disk.clone() }], |_| {});
    assert_eq!(applied(&reload(&daemon)), [format!("disk `db`: path {} is removed", both[1])]);
    eventually("the path is gone", || addresses(&daemon) == both[..1]);
    verification.goes_on(100);
    write(&daemon.place, vec![DiskConfig { paths: both[1..].to_vec(), ..disk.clone() }], |_| {});
    assert_eq!(applied(&reload(&daemon)).len(), 2);
    eventually("the path is replaced", || addresses(&daemon) == both[1..]);
    verification.goes_on(100);
    // A path that cannot take over leaves the last one in place.
    let dead: PathAddress = format!("tcp://{}", own_address()).replace(":0", ":9").parse().unwrap();
    write(&daemon.place, vec![DiskConfig { paths: vec![dead.clone()], ..disk }], |_| {});
    let answer = reload(&daemon);
    assert_eq!((answer.applied.len(), answer.failed.len()), (1, 1), "{answer:?}");
    assert!(answer.failed[0].reason.contains("no usable path left"), "{answer:?}");
    verification.goes_on(100);
    verification.finish();
    assert!(addresses(&daemon).contains(&both[1]) && addresses(&daemon).contains(&dead));
}

#[test]
fn disks_come_and_go_and_a_connected_one_stays() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let second = DiskConfig { namespace: "2".parse().ok(), ..config(&daemon.place, "data", &target.addrs()) };
    write(&daemon.place, vec![disk.clone(), second.clone()], |_| {});
    assert_eq!(applied(&reload(&daemon)), ["disk `data` is added"]);
    let data = Verification::start(&daemon.place.file("data"), VerificationSetup::default());
    data.goes_on(50);
    write(&daemon.place, vec![disk], |_| {});
    let answer = reload(&daemon);
    assert!(answer.applied.is_empty() && answer.failed[0].reason.contains("has a front-end connected"), "{answer:?}");
    // The file says more than what is in effect, so a save would remove the disk's entry.
    let given = || daemon.api.configuration().unwrap().given["disks"].as_array().map(Vec::len);
    assert_eq!(given(), Some(2));
    data.goes_on(50);
    assert_eq!(told(&daemon, EventKind::ConfigReloaded).len(), 2);
    let by: Vec<_> = daemon.api.events(0).unwrap().events.into_iter().map(|event| (event.kind, event.by)).collect();
    assert!(by.iter().all(|(kind, by)| *kind != EventKind::ConfigReloaded || by.is_some()), "{by:?}");
    data.finish();
    eventually("the front-end has left", || !daemon.status().disks[1].connected);
    assert_eq!(applied(&reload(&daemon)), ["disk `data` is removed"]);
    assert_eq!(given(), Some(1));
    verification.goes_on(100);
    verification.finish();
    assert_eq!(daemon.status().disks.len(), 1);
}

#[test]
fn force_takes_a_disk_from_its_front_end() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let second = DiskConfig { namespace: "2".parse().ok(), ..config(&daemon.place, "data", &target.addrs()) };
    write(&daemon.place, vec![disk.clone(), second], |_| {});
    assert_eq!(applied(&reload(&daemon)), ["disk `data` is added"]);
    let _connected = Disk::connect(&daemon.place.file("data"));
    write(&daemon.place, vec![disk], |_| {});
    assert_eq!(reload(&daemon).failed.len(), 1);
    assert_eq!(applied(&daemon.api.reload(false, true).unwrap()), ["disk `data` is removed"]);
    verification.goes_on(50);
    verification.finish();
}

/// Configured paths become discovered ones, and the other way round, without a new connection.
#[test]
fn discovery_keeps_paths_that_leave_the_file() {
    let at = SocketAddr::new(own_address().ip(), 8009);
    let target = Target::with(2, |config| config.discovery = Some(at));
    let place = DaemonDirectory::new();
    let both = config(&place, "db", &target.addrs());
    let discovery = vec![format!("tcp://{at}").parse().unwrap()];
    let paths =
        |paths: &[PathAddress]| DiskConfig { paths: paths.to_vec(), discovery: discovery.clone(), ..both.clone() };
    let command = place.configured(vec![paths(&both.paths[..1])]);
    let daemon = place.spawn(command).ready();
    eventually("the other path is discovered", || {
        daemon.paths().iter().filter(|path| path.cntlid.is_some()).count() == 2
    });
    let connections = target.connections(0) + target.connections(1);
    let origins = || daemon.paths().into_iter().map(|path| path.origin).collect::<Vec<_>>();
    assert_eq!(origins(), [Origin::Configured, Origin::Discovery]);
    assert_eq!(applied(&reload(&daemon)), [""; 0], "a discovered path is no difference");
    write(&daemon.place, vec![paths(&both.paths)], |_| {});
    assert_eq!(applied(&reload(&daemon)), [format!("disk `db`: path {} is added", both.paths[1])]);
    assert_eq!(origins(), [Origin::Configured; 2]);
    write(&daemon.place, vec![paths(&[])], |_| {});
    assert_eq!(applied(&reload(&daemon)).len(), 2);
    assert_eq!((origins(), applied(&reload(&daemon)).len()), (vec![Origin::Discovery; 2], 0));
    assert_eq!(target.connections(0) + target.connections(1), connections);
}

#[test]
fn an_error_in_the_file_changes_nothing() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let before = daemon.api.configuration().unwrap();
    write(&daemon.place, vec![DiskConfig { policy: PolicyKind::Numa.into(), ..disk }], |_| {});
    let file = daemon.place.file("config.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"weight\":100", "\"weight\":0,\"colour\":1")).unwrap();
    let (code, message) = refusal(daemon.api.reload(false, false));
    let lines: Vec<_> = message.lines().collect();
    assert_eq!((code, lines.len()), (ErrorCode::ConfigInvalid, 2), "{message}");
    assert!(lines.iter().all(|line| line.starts_with(&format!("{}:1:", file.display()))), "{message}");
    assert_eq!(daemon.api.configuration().unwrap(), before);
    let events = told(&daemon, EventKind::ConfigNotReloaded);
    assert!(
        events[0].contains("disks[0].weight: invalid value: integer `0`") && events[0].ends_with("further errors: 1")
    );
    fs::remove_file(&file).unwrap();
    assert!(refusal(daemon.api.reload(false, false)).1.contains("No such file"));
    mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
    assert!(refusal(daemon.api.reload(false, false)).1.contains("not a regular file"));
    verification.goes_on(50);
    verification.finish();
}

#[test]
fn settings_that_need_a_restart_are_named_and_not_applied() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    write(&daemon.place, vec![DiskConfig { queues: "3".parse().unwrap(), ..disk }], |config| {
        config.io_threads = "2".parse().unwrap();
    });
    let answer = reload(&daemon);
    assert_eq!(applied(&answer), [""; 0]);
    let named: Vec<_> = answer.not_live.iter().map(ToString::to_string).collect();
    assert_eq!(
        named,
        [
            "io-threads: 1 becomes 2; restart the daemon",
            "disk `db`: queues: 64 becomes 3; remove and add the disk, or restart the daemon"
        ]
    );
    assert_eq!(daemon.api.configuration().unwrap().effective["io-threads"], 1);
    verification.finish();
}

#[test]
fn a_daemon_with_flags_has_nothing_to_reload() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    assert_eq!(refusal(daemon.api.reload(false, false)).0, ErrorCode::NoConfigFile);
    let shown = daemon.api.configuration().unwrap();
    assert_eq!((shown.file, &shown.given["disks"][0]["policy"]), (None, &"numa".into()));
    assert_eq!(shown.given["disks"][0].get("weight"), None, "defaults are left out");
    assert_eq!(shown.effective["disks"][0]["weight"], 100);
}

/// As `Type=notify-reload` of systemd expects it.
#[test]
fn a_sighup_reloads_and_tells_systemd() {
    let (target, place) = (target(), DaemonDirectory::new());
    let notified = UnixDatagram::bind(place.file("notify")).unwrap();
    notified.set_read_timeout(Some(PATIENCE)).unwrap();
    let said = || {
        let mut buffer = [0; 4096];
        let length = notified.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let disk = first(&place, &target);
    let mut command = place.configured(vec![disk.clone()]);
    command.env("NOTIFY_SOCKET", place.file("notify"));
    let daemon = place.spawn(command).ready();
    assert_eq!(said().trim_end(), "READY=1");
    write(&daemon.place, vec![DiskConfig { policy: PolicyKind::Numa.into(), ..disk }], |_| {});
    daemon.signal(Signal::HUP);
    let reloading = said();
    assert!(reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(said().trim_end(), "READY=1");
    assert_eq!(daemon.status().disks[0].policy, PolicyKind::Numa.into());
    let events = told(&daemon, EventKind::ConfigReloaded);
    assert!(events[0].contains(" by SIGHUP; changes applied: 1,"), "{events:?}");
    fs::write(daemon.place.file("config.yaml"), "disks: 3\n").unwrap();
    daemon.signal(Signal::HUP);
    assert!(said().contains("RELOADING=1") && said().contains("READY=1"));
    let events = told(&daemon, EventKind::ConfigNotReloaded);
    assert!(events[0].contains("by SIGHUP: ") && events[0].contains(":1:8: disks: invalid type"), "{events:?}");
    assert_eq!(daemon.status().disks[0].policy, PolicyKind::Numa.into());
}

/// A disk can have 64 paths, and new ones come before others go.
#[test]
fn paths_stay_if_one_that_is_to_replace_them_cannot_be_added() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let (first, second) = (disk.paths[0].clone(), disk.paths[1].clone());
    let new = (1..64).map(|port| format!("tcp://{}:{port}", own_address().ip()).parse().unwrap());
    let paths = std::iter::once(first).chain(new).collect();
    write(&daemon.place, vec![DiskConfig { paths, ..disk }], |_| {});
    let answer = reload(&daemon);
    let failed: Vec<_> = answer.failed.iter().map(|of| (of.change.to_string(), &*of.reason)).collect();
    assert_eq!(failed.len(), 2, "{failed:?}");
    let stays = (
        format!("disk `db`: path {second} is removed"),
        "a new path of the disk could not be added, so none of its paths is removed",
    );
    assert_eq!(failed[1], stays);
    assert!(addresses(&daemon).contains(&second));
    verification.goes_on(50);
    verification.finish();
}

#[test]
fn a_disk_is_to_keep_the_paths_that_a_reload_drops() {
    let target = target();
    let (daemon, disk, verification) = start(&target);
    let reasons = || -> Vec<String> {
        let health = daemon.status().disks.remove(0).health;
        let others = ["the host is starved", "a request of the guest has had no answer"];
        let of_paths = |reason: &ConditionReason| !others.iter().any(|other| reason.message.starts_with(other));
        health.reasons.into_iter().filter(of_paths).map(|reason| reason.message).collect()
    };
    eventually("both paths are usable", || reasons().is_empty());
    let one_path = |min_paths: &str| {
        let paths = disk.paths[..1].to_vec();
        write(&daemon.place, vec![DiskConfig { paths, min_paths: min_paths.parse().unwrap(), ..disk.clone() }], |_| {});
        applied(&reload(&daemon))
    };
    assert_eq!(one_path("auto").len(), 1);
    eventually("the path is gone", || daemon.paths().len() == 1);
    let dropped = format!("1 of 2 paths are left: a reload dropped {} at ", disk.paths[1]);
    let [reason] = &reasons()[..] else { panic!("{:?}", reasons()) };
    assert!(reason.starts_with(&dropped) && reason.ends_with("; if that is meant, set `min-paths` to 1"), "{reason}");
    assert_eq!(one_path("1"), ["disk `db`: min-paths: auto becomes 1"]);
    assert_eq!(
        (reasons(), told(&daemon, EventKind::MinPathsSet)),
        (vec![], vec!["min-paths set to 1, was auto".into()])
    );
    assert_eq!(one_path("2").len(), 1);
    assert_eq!(reasons(), ["usable paths: 1, fewer than min-paths (2)"]);
    assert_eq!(one_path("auto").len(), 1);
    // An operator who removes a path means it.
    daemon.api.add_path("db", &AddPath { address: disk.paths[1].clone() }).unwrap();
    eventually("both paths are usable", || reasons().is_empty() && daemon.status().disks[0].path_counts.usable == 2);
    daemon.api.remove_path("db", &PathSelector::Address(disk.paths[1].clone()), false).unwrap();
    eventually("the path is gone", || daemon.paths().len() == 1);
    assert_eq!(reasons(), [""; 0]);
    verification.finish();
}
