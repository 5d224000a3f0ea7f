//! Policies and injections that change under verified load.

use std::time::Duration;

use mpath_api::types::{Injection, OpStats, PathSelector};
use mpath_config::PolicyKind;
use mpath_target::TargetConfig;

use crate::support::{Daemon, Target, Verification, VerificationSetup, eventually, inject, set_policy};

/// Cycles through the policies, with an injection on either path, on both, or on none.
fn verify_under_change(flags: &str, change: impl FnOnce(&mut TargetConfig)) {
    let target = Target::with(2, change);
    let daemon = Daemon::start(&target.addrs(), &format!("--policy round-robin {flags}"));
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    let all = |index| PathSelector::Index(index);
    for round in 0..2 {
        for (policy, turn) in PolicyKind::ALL.into_iter().zip(round..) {
            daemon.api.set(&set_policy(policy)).unwrap();
            verification.goes_on(50);
            match turn % 4 {
                0 => drop(daemon.api.set_injection(&inject(all(0), Duration::from_millis(3))).unwrap()),
                1 => drop(daemon.api.set_injection(&inject(all(1), Duration::from_millis(1))).unwrap()),
                2 => drop(daemon.api.clear_injections(&all(0), None).unwrap()),
                _ => drop(daemon.api.clear_injections(&all(1), None).unwrap()),
            }
            verification.goes_on(50);
            assert_eq!(daemon.status().disks[0].policy, policy.into());
        }
    }
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    assert_eq!(daemon.api.injections(None).unwrap(), []);
    verification.finish();
    let paths = daemon.paths();
    assert!(paths.iter().all(|path| path.ios() > 50), "both are used: {paths:?}");
    assert!(paths.iter().all(|path| path.errors() == 0 && path.in_flight() == 0), "{paths:?}");
}

#[test]
fn changes_with_one_io_thread() {
    verify_under_change("--io-threads 1", |_| {});
}

#[test]
fn changes_with_two_io_threads() {
    verify_under_change("--io-threads 2", |_| {});
}

#[test]
fn changes_with_digests() {
    verify_under_change("--io-threads 2 --hdr-digest --data-digest", |_| {});
}

#[test]
fn changes_with_header_digest() {
    verify_under_change("--hdr-digest", |_| {});
}

#[test]
fn changes_with_data_digest() {
    verify_under_change("--data-digest", |_| {});
}

#[test]
fn changes_with_4096_byte_blocks() {
    verify_under_change("--io-threads 2", |config| config.block_size = 4096);
}

#[test]
fn changes_with_a_small_window() {
    verify_under_change("--window-ios 2 --window-bytes 65536 --queue-size 16", |_| {});
}

#[test]
fn changes_with_large_requests() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin --io-threads 2");
    let shape = VerificationSetup { queues: 2, depth: 8, bs: 2 << 20, bytes: 32 << 20, flush: true };
    let verification = Verification::start(&daemon.socket(), shape);
    verification.goes_on(200);
    verification.finish();
}

/// The requests on a path since `before`.
fn mean_latency_shown(reads: &OpStats) -> Duration {
    Duration::from_micros(reads.latency.as_ref().unwrap().p50_us)
}

#[test]
fn an_injection_raises_the_latency_of_its_path_only() {
    let latency = Duration::from_millis(20);
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin");
    let injected = daemon.api.set_injection(&inject(PathSelector::Index(1), latency)).unwrap();
    assert_eq!(injected.len(), 1);
    let verification = Verification::start(
        &daemon.socket(),
        VerificationSetup { queues: 1, depth: 4, ..VerificationSetup::default() },
    );
    eventually("both paths are measured", || daemon.paths().iter().all(|path| path.read.ios >= 20));
    let paths = daemon.paths();
    assert!(mean_latency_shown(&paths[1].read) >= latency, "{paths:?}");
    assert!(mean_latency_shown(&paths[0].read) < latency, "{paths:?}");
    assert_eq!(paths[1].injections[0].injection, Injection::latency(latency.try_into().unwrap()));
    assert_eq!(paths[0].injections, []);
    assert_eq!(daemon.api.injections(None).unwrap().len(), 1);

    let cleared = daemon.api.clear_injections(&PathSelector::Index(1), None).unwrap();
    assert_eq!(cleared[0].index, 1);
    assert_eq!(daemon.api.injections(None).unwrap(), []);
    assert!(daemon.paths().iter().all(|path| path.injections.is_empty()));
    verification.goes_on(200);
    verification.finish();
}

#[test]
fn clearing_an_injection_releases_its_requests() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin");
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(50);
    daemon.api.set_injection(&inject(PathSelector::All, Duration::from_secs(60))).unwrap();
    eventually("all stand still", || {
        let completed = verification.completed();
        std::thread::sleep(Duration::from_millis(50));
        completed == verification.completed()
    });
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    verification.goes_on(500);
    verification.finish();
}
