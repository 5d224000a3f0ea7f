//! Asymmetric namespace access: ANA states change under verified load.

use std::time::{Duration, Instant};

use mpath_api::types;
use mpath_target::AnaState;
use vublk_bench::request::{Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, Verification, VerificationSetup, eventually};

/// A busy machine makes no path suspect.
const STEADY: &str = "--policy round-robin --suspect-timeout 60s";

/// A verification without flushes, which have a test of their own.
fn unflushed() -> VerificationSetup {
    VerificationSetup { bs: 16 << 10, flush: false, ..VerificationSetup::default() }
}

/// Waits until the daemon shows this ANA state on path 0.
fn shown(daemon: &Daemon, state: types::AnaState) {
    eventually("the ANA state is shown", || daemon.paths()[0].ana_state == Some(state));
}

/// Whether path `index` gets requests while others complete.
fn is_used(daemon: &Daemon, verification: &Verification, index: usize) -> bool {
    // Requests sent to it before may still complete.
    verification.goes_on(200);
    let before = daemon.paths()[index].ios();
    verification.goes_on(300);
    daemon.paths()[index].ios() > before
}

#[test]
fn requests_follow_the_ana_state_of_a_path() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{STEADY} --io-threads 2"));
    let verification = Verification::start(&daemon.socket(), unflushed());
    assert!(is_used(&daemon, &verification, 0));
    for (state, shows, used) in [
        (AnaState::Inaccessible, types::AnaState::Inaccessible, false),
        (AnaState::Optimized, types::AnaState::Optimized, true),
        (AnaState::NonOptimized, types::AnaState::NonOptimized, false),
        (AnaState::Optimized, types::AnaState::Optimized, true),
        (AnaState::Change, types::AnaState::Change, false),
        (AnaState::PersistentLoss, types::AnaState::PersistentLoss, false),
        (AnaState::Optimized, types::AnaState::Optimized, true),
    ] {
        target.set_ana(0, state);
        shown(&daemon, shows);
        assert_eq!(is_used(&daemon, &verification, 0), used, "{shows}");
        assert!(is_used(&daemon, &verification, 1));
    }
    verification.finish();
}

#[test]
fn a_non_optimized_path_serves_without_an_optimized_one() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{STEADY} --reconnect-delay 1"));
    target.set_ana(0, AnaState::NonOptimized);
    shown(&daemon, types::AnaState::NonOptimized);
    let verification = Verification::start(&daemon.socket(), unflushed());
    assert!(!is_used(&daemon, &verification, 0));
    target.stop_listener(1);
    eventually("the optimized path is lost", || !daemon.is_live(1));
    assert!(is_used(&daemon, &verification, 0));
    target.resume_listener(1).unwrap();
    eventually("the optimized path is back", || daemon.is_live(1));
    assert!(!is_used(&daemon, &verification, 0));
    verification.finish();
}

#[test]
fn without_an_accessible_path_requests_wait() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy round-robin");
    let verification = Verification::start(&daemon.socket(), unflushed());
    verification.goes_on(200);
    (0..2).for_each(|listener| target.set_ana(listener, AnaState::Inaccessible));
    eventually("requests wait", || daemon.status().disks[0].queued > 0);
    target.set_ana(1, AnaState::Optimized);
    verification.goes_on(200);
    verification.finish();
}

#[test]
fn a_flush_owed_to_an_inaccessible_controller_is_never_a_silent_success() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.flush(), Status::Ok);
    assert_eq!(disk.write(0, 1), Status::Ok);
    assert_eq!(daemon.paths()[0].write.ios, 1);
    target.set_ana(0, AnaState::Inaccessible);
    shown(&daemon, types::AnaState::Inaccessible);
    disk.submit(1, Request::FLUSH, &[]);
    // Reads continue on the other path.
    assert_eq!(disk.read_by(2, 0), 1);
    assert_eq!(disk.answer(Duration::from_millis(300)), None);
    target.set_ana(0, AnaState::Optimized);
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
}

#[test]
fn a_controller_that_stays_in_ana_change_is_reconnected() {
    let target = Target::with(2, |config| config.anatt_seconds = 1);
    let daemon = Daemon::start(&target.addrs(), &format!("{STEADY} --reconnect-delay 1"));
    let verification = Verification::start(&daemon.socket(), unflushed());
    let changed = Instant::now();
    target.set_ana(0, AnaState::Change);
    eventually("the path is lost", || daemon.log().contains("for more than 2s"));
    assert!(changed.elapsed() >= Duration::from_secs(2), "{:?}", changed.elapsed());
    // The next association begins with that state, and stays for longer.
    eventually("the path is lost again", || daemon.log().contains("for more than 4s"));
    assert!(changed.elapsed() >= Duration::from_secs(7), "{:?}", changed.elapsed());
    target.set_ana(0, AnaState::Optimized);
    eventually("the path comes back", || daemon.is_live(0));
    assert!(is_used(&daemon, &verification, 0));
    // A state that is not persistent does not end the association.
    target.set_ana(1, AnaState::Change);
    std::thread::sleep(Duration::from_secs(1));
    target.set_ana(1, AnaState::Optimized);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(daemon.is_live(1));
    assert_eq!(daemon.log().matches("for more than").count(), 2, "{}", daemon.log());
    verification.finish();
}
