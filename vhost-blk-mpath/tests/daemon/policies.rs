//! Policies with parameters, and their estimates of paths.

use std::fs;
use std::time::{Duration, Instant};

use mpath_api::types::{PathSelector, SetPolicy};
use mpath_config::{PolicyClass, PolicyKind};

use crate::support::{
    Daemon, DaemonDirectory, NQN, Target, Verification, VerificationSetup, eventually, inject, program,
};

#[test]
fn policies_switch_every_10_ms_under_verification() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin --io-threads 2");
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    daemon.api.set_injection(&inject(PathSelector::Index(1), Duration::from_millis(1))).unwrap();
    let mut longest = Duration::ZERO;
    let begun = Instant::now();
    let mut switches = 0;
    let classes = [None, Some(PolicyClass::Read), Some(PolicyClass::Write)];
    for class in classes.into_iter().cycle().take(9) {
        for policy in PolicyKind::ALL {
            let wanted = SetPolicy { class, ..policy.into() };
            let asked = Instant::now();
            daemon.api.set(&wanted.into()).unwrap();
            longest = longest.max(asked.elapsed());
            switches += 1;
            let next = begun + switches * Duration::from_millis(10);
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
        }
    }
    verification.goes_on(100);
    println!("{switches} switches in {:?}, the longest in {longest:?}, the API included", begun.elapsed());
    verification.finish();
    assert!(daemon.paths().iter().all(|path| path.ios() > 50 && path.errors() == 0 && path.in_flight() == 0));
}

#[test]
fn estimates_and_shares_are_shown() {
    // A value above the latency of any path is due to a busy machine.
    let slower = Duration::from_millis(100);
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy adaptive --io-threads 2");
    let params = vec![("interval".to_owned(), "50ms".to_owned())];
    let wanted = SetPolicy { params, ..PolicyKind::Adaptive.into() };
    assert_eq!(daemon.api.set(&wanted.into()).unwrap()[0].policy.to_string(), "adaptive interval=50ms");
    daemon.api.set_injection(&inject(PathSelector::Index(1), slower)).unwrap();
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    let detail = || daemon.api.policy_detail(None).unwrap().remove(0);
    eventually("the slow path has the lower weight", || {
        let paths = detail().paths;
        let weight = |index: usize| paths[index].estimate.weight.unwrap_or(0);
        weight(0) > weight(1) && weight(1) > 0
    });
    let (detail, paths) = (detail(), daemon.paths());
    assert_eq!((detail.policies.len(), &*detail.policies[0].class), (1, "all"));
    let interval = &detail.policies[0].params[0];
    assert_eq!((&*interval.name, &*interval.value, &*interval.default), ("interval", "50ms", "15s"));
    let slow = detail.paths.iter().find(|path| path.class == "read" && path.index == 1).unwrap();
    assert!(slow.estimate.latency_us.unwrap() >= 100_000.0, "{slow:?}");
    assert_eq!(slow.estimate.age, None, "adaptive knows no ages");
    eventually("a second has passed", || daemon.paths().iter().all(|path| path.ios_1s() > 0));
    let [first, second] = &*daemon.paths() else { panic!("{paths:?}") };
    assert!(first.io_share_1s > second.io_share_1s, "{first:?} {second:?}");
    assert!((first.io_share_1s + second.io_share_1s - 1.0).abs() < 1e-9, "{first:?} {second:?}");

    // A changed parameter keeps the estimates. Another policy does not.
    let smoothed = |kind: PolicyKind, value: &str| {
        let params = if kind == PolicyKind::Adaptive { vec![("credits".to_owned(), value.to_owned())] } else { vec![] };
        daemon.api.set(&SetPolicy { params, ..kind.into() }.into()).unwrap();
        daemon.paths()[1].write.estimate.latency_us
    };
    daemon.api.set_injection(&inject(PathSelector::All, Duration::from_secs(60))).unwrap();
    assert!(smoothed(PolicyKind::Adaptive, "100").is_some());
    assert_eq!(daemon.status().disks[0].policy.to_string(), "adaptive interval=50ms credits=100");
    assert_eq!(smoothed(PolicyKind::Numa, ""), None);
    assert_eq!(smoothed(PolicyKind::Adaptive, "default"), None);
    assert_eq!(daemon.status().disks[0].policy.to_string(), "adaptive");
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    verification.finish();
}

#[test]
fn a_file_may_set_parameters_and_split_by_class() {
    let target = Target::start(2);
    let place = DaemonDirectory::new();
    let paths = target.addrs().iter().map(|path| format!("tcp://{path}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "api: {}\ndisks:\n  - socket-path: {}\n    subsystem: {NQN}\n    paths: [{paths}]\n    policy:\n      read: {{name: \
         latency-rr, threshold: 1.5, rehabilitation: ios}}\n      write: queue\n",
        place.api().display(),
        place.socket().display()
    );
    fs::write(place.file("config.yaml"), text).unwrap();
    let mut command = program();
    command.arg("--config").arg(place.file("config.yaml"));
    let daemon = place.spawn(command).ready();
    let shown = "read: latency-rr threshold=1.5 rehabilitation=ios, write: queue-depth";
    assert_eq!(daemon.status().disks[0].policy.to_string(), shown);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    verification.finish();
    let detail = daemon.api.policy_detail(Some("disk0")).unwrap().remove(0);
    assert_eq!(detail.policies.iter().map(|policy| &*policy.class).collect::<Vec<_>>(), ["read", "write"]);
    let of = |class: &str| detail.paths.iter().find(|path| path.class == class).unwrap().estimate;
    assert!(of("read").age.is_some() && of("write").age.is_none(), "{detail:?}");
}
