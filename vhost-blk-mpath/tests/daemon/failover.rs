//! Paths that are lost and come back under verified load.

use std::fs;
use std::time::{Duration, Instant};

use mpath_api::types::PathState;
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Target, Verification, VerificationSetup, eventually};

/// The keep-alive timeout outlasts any time that a busy machine keeps the daemon waiting.
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1 --io-threads 2";

fn unflushed() -> VerificationSetup {
    VerificationSetup { flush: false, ..VerificationSetup::default() }
}

#[test]
fn a_lost_path_is_bypassed_and_comes_back() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), unflushed());
    verification.goes_on(500);
    let resources = daemon.settled_resources();
    for cycle in 0..4 {
        let lost = cycle % 2;
        target.stop_listener(lost);
        eventually("the loss is noticed", || daemon.paths()[lost].state == PathState::Lost);
        // Time would lift the fence of writes in doubt after two minutes.
        let begun = Instant::now();
        verification.goes_on(100);
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        let path = &daemon.paths()[lost];
        assert!(path.last_error.is_some() && path.cntlid.is_none(), "{path:?}");
        target.resume_listener(lost).unwrap();
        eventually("it comes back", || daemon.is_live(lost));
        let before = daemon.paths()[lost].ios();
        eventually("it is used again", || daemon.paths()[lost].ios() > before + 20);
    }
    eventually("nothing is held", || daemon.paths().iter().all(|path| path.fenced == 0));
    daemon.comes_back_to(resources);
    verification.finish();
}

#[test]
fn without_any_path_requests_wait() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let verification = Verification::start(&daemon.socket(), unflushed());
    for _ in 0..2 {
        verification.goes_on(500);
        (0..2).for_each(|listener| target.stop_listener(listener));
        eventually("both are lost", || daemon.status().disks[0].path_counts.usable == 0);
        eventually("requests wait", || daemon.status().disks[0].queued > 0);
        (0..2).for_each(|listener| target.resume_listener(listener).unwrap());
        eventually("both come back", || daemon.status().disks[0].path_counts.usable == 2);
    }
    verification.goes_on(500);
    verification.finish();
}

#[test]
fn without_any_path_requests_fail_after_the_configured_time() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--fast-io-fail-tmo 4 --reconnect-delay 1");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    (0..2).for_each(|listener| target.stop_listener(listener));
    eventually("both are lost", || daemon.status().disks[0].path_counts.usable == 0);
    assert_eq!(disk.write(0, 2), Status::IoError);
    let start = Instant::now();
    assert_eq!(disk.write(0, 2), Status::IoError);
    assert!(start.elapsed() < Duration::from_secs(3), "later ones fail at once");
    (0..2).for_each(|listener| target.resume_listener(listener).unwrap());
    eventually("both come back", || daemon.status().disks[0].path_counts.usable == 2);
    assert_eq!(disk.read(0), 1, "what has failed was not done later");
    assert_eq!(disk.write(0, 3), Status::Ok);
    assert_eq!(disk.read(0), 3);
}

#[test]
fn a_lost_path_is_bypassed_with_digests() {
    let target = Target::with(2, |config| config.block_size = 4096);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --hdr-digest --data-digest"));
    let verification = Verification::start(&daemon.socket(), VerificationSetup { bs: 256 << 10, ..unflushed() });
    for lost in [0, 1, 0] {
        verification.goes_on(100);
        target.stop_listener(lost);
        verification.goes_on(100);
        target.resume_listener(lost).unwrap();
        eventually("it comes back", || daemon.is_live(lost));
    }
    verification.finish();
}

#[test]
fn a_flush_fails_once_for_writes_lost_with_a_cache() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    assert_eq!(disk.flush(), Status::Ok);
    let used = daemon.paths().iter().position(|path| path.write.ios == 1).unwrap();

    // A path whose writes were flushed loses nothing.
    target.stop_listener(used);
    eventually("the path is lost", || !daemon.is_live(used));
    assert_eq!(disk.flush(), Status::Ok);

    let other = 1 - used;
    target.resume_listener(used).unwrap();
    eventually("the path is back", || daemon.is_live(used));
    assert_eq!(disk.write(0, 2), Status::Ok);
    let used = if daemon.paths()[other].write.ios > 0 { other } else { used };
    target.stop_listener(used);
    eventually("the path is lost", || !daemon.is_live(used));
    assert_eq!(disk.flush(), Status::IoError);
    // A flush that may have been in its virtqueue meanwhile fails too. A later one finds the loss reported.
    eventually("the loss is reported", || disk.flush() == Status::Ok);
    assert_eq!(disk.read(0), 2);
    assert!(daemon.log().contains("shared-write-cache"), "the operator was told: {}", daemon.log());
}

#[test]
fn the_next_daemon_reports_lost_writes() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--policy numa");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    let used = daemon.paths().iter().position(|path| path.write.ios == 1).unwrap();
    target.stop_listener(used);
    eventually("the path is lost", || !daemon.is_live(used));
    drop(disk);
    let (_, place) = daemon.end(Signal::TERM);
    assert!(fs::read_to_string(place.fence_record()).unwrap().contains("lost_writes"));

    target.resume_listener(used).unwrap();
    let command = place.command(&target.addrs(), "--policy numa");
    let daemon = place.spawn(command).ready();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.flush(), Status::IoError);
    eventually("the loss is reported", || disk.flush() == Status::Ok);
    // The daemon flushes this write at its end.
    assert_eq!(disk.write(0, 2), Status::Ok);
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    let command = place.command(&target.addrs(), "--policy numa");
    let daemon = place.spawn(command).ready();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!((disk.flush(), disk.read(0)), (Status::Ok, 2));
}

#[test]
fn with_a_shared_write_cache_no_flush_fails_for_a_lost_path() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --shared-write-cache"));
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    for lost in [0, 1, 0, 1] {
        verification.goes_on(200);
        target.stop_listener(lost);
        eventually("the loss is noticed", || !daemon.is_live(lost));
        verification.goes_on(200);
        target.resume_listener(lost).unwrap();
        eventually("it comes back", || daemon.is_live(lost));
    }
    assert!(!daemon.log().contains("shared-write-cache"), "nothing to warn of: {}", daemon.log());
    verification.finish();
}
