//! The health of a disk: its condition with its reasons, and the errors that its guest got. Each fault is in `fault_table.rs`.

use mpath_api::types::{Condition, Event, EventKind, GuestErrorReason, GuestOperation, Severity};
use vublk_bench::request::Status;

use crate::fault_table::{READ, Stage};
use crate::support::{BadDriver, Daemon, Disk, Target, eventually};

#[test]
fn a_disk_that_is_held_says_until_when() {
    let mut stage = Stage::start();
    stage.guest().submit_write(1, 0, 1);
    stage.replace_killed_daemon();
    let health = stage.disk().health;
    assert_eq!(health.condition, Condition::Held, "{health:?}");
    assert!(health.reasons[0].message.contains("was killed or left writes in doubt"), "{health:?}");
    eventually("it goes on", || stage.disk().health.condition != Condition::Held);
}

#[test]
fn a_path_that_came_back_keeps_its_losses_and_its_last_error() {
    let stage = Stage::start();
    for times in 1..=2 {
        stage.target.stop_listener(0);
        eventually("the path is lost", || !stage.daemon().is_live(0));
        let path = &stage.daemon().paths()[0];
        assert!(path.unusable.as_ref().is_some_and(|reason| reason.starts_with("lost: ")), "{path:?}");
        eventually("an event tells", || stage.events(EventKind::DiskDegraded) == times);
        stage.target.resume_listener(0).unwrap();
        eventually("the path is back", || stage.daemon().is_live(0));
        eventually("an event tells", || stage.events(EventKind::DiskOk) == times);
        let path = &stage.daemon().paths()[0];
        let times = times as u64;
        assert_eq!((path.losses, path.losses_1h, path.reconnects), (times, times, times));
        assert!(path.last_error.is_some() && path.last_error_at.is_some() && path.unusable.is_none(), "{path:?}");
    }
}

#[test]
fn the_event_of_an_error_has_its_first_request_and_the_answer_of_the_path() {
    let mut stage = Stage::start();
    stage.target.set(0, "fail=2:0/0x06/dnr");
    assert_eq!((stage.guest().write(8192, 1), stage.guest().write(4096, 1)), (Status::IoError, Status::IoError));
    stage.target.set(0, "fail=1:2/0x81/dnr");
    assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
    for (kind, message) in [
        (
            EventKind::DiskFailing,
            "the guest got an error: a write failed: the controller failed the command (sector 16, 4096 bytes, path 0 \
             answered `Internal Error, Do Not Retry`)",
        ),
        (
            EventKind::MediumError,
            "the guest got an error: a read failed: the medium reported an error (sector 0, 4096 bytes, path 0 answered \
             `Unrecovered Read Error, Do Not Retry`)",
        ),
    ] {
        let events = || stage.daemon().api.events(0).unwrap().events;
        eventually("an event tells", || events().iter().any(|event| event.kind == kind && event.message == message));
    }
}

#[test]
fn errors_of_a_flood_are_counted_and_told_once() {
    let mut stage = Stage::start();
    stage.lose_all_paths();
    for _ in 0..500 {
        assert_eq!(stage.guest().run(READ, &[0; 4096]), Status::IoError);
    }
    eventually("an event tells", || stage.events(EventKind::DiskFailing) == 1);
    let health = stage.disk().health;
    let [errors] = &health.guest_errors[..] else { panic!("{health:?}") };
    assert_eq!((errors.operation, errors.reason), (GuestOperation::Read, GuestErrorReason::NoPath));
    assert_eq!((errors.count, stage.events(EventKind::DiskFailing)), (500, 1));
    assert_eq!(EventKind::DiskFailing.severity(), Severity::Error);
    let log = stage.daemon().log();
    assert_eq!(log.lines().filter(|line| line.contains("ERROR") && line.contains("a read failed")).count(), 1, "{log}");
}

#[test]
fn requests_of_a_front_end_that_has_gone_are_no_errors_of_its_guest() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--reconnect-delay 1 --keep-alive-tmo 1");
    let mut guest = Disk::connect(&daemon.socket());
    assert_eq!(guest.write(0, 7), Status::Ok);
    target.stop_listener(0);
    eventually("the path is lost", || !daemon.is_live(0));
    guest.submit_write(0, 0, 8);
    eventually("the request waits", || daemon.status().disks[0].queued > 0);
    drop(guest);
    eventually("it has gone", || !daemon.status().disks[0].connected);
    let health = daemon.status().disks.remove(0).health;
    assert!(health.guest_errors.is_empty() && health.condition == Condition::Waiting, "{health:?}");
}

#[test]
fn a_broken_virtqueue_keeps_its_disk_failing_until_the_front_end_ends_it() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let reasons = || {
        let health = daemon.status().disks.remove(0).health;
        health.reasons.into_iter().filter(|reason| reason.message.starts_with("virtqueue 0 stands still since "))
    };
    let mut driver = BadDriver::connect(&daemon.socket(), 8);
    assert_eq!(reasons().count(), 0);
    driver.break_ring();
    eventually("the disk is failing", || reasons().count() == 1);
    let reason = reasons().next().unwrap();
    assert_eq!(reason.condition, Condition::Failing);
    assert!(reason.message.contains("until the guest resets the device: available index 1000"), "{reason:?}");
    drop(driver);
    eventually("the virtqueue has ended", || reasons().count() == 0);
}

#[test]
fn an_event_names_a_virtqueue_that_a_request_without_a_status_byte_has_stopped() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut driver = BadDriver::connect(&daemon.socket(), 0);
    driver.submit_without_status();
    let why = "a request cannot be answered: the status byte of chain 0 was not found, because it has no writable byte";
    let message = format!("virtqueue 0 stands still until the guest resets the device: {why}");
    let told = |event: &Event| event.kind == EventKind::DiskFailing && event.message == message;
    eventually("an event tells", || daemon.api.events(0).unwrap().events.iter().any(told));
    let health = daemon.status().disks.remove(0).health;
    assert!(health.reasons.iter().any(|reason| reason.message.ends_with(why)), "{health:?}");
}
