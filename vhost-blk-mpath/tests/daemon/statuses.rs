//! Statuses of commands that reach the guest, and those that do not.

use std::time::{Duration, Instant};

use mpath_api::types::Condition;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, Target, Verification, VerificationSetup, eventually};

/// Every command fails until another setting.
const ALWAYS: &str = "4294967295";
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 60 --reconnect-delay 1";

fn unflushed() -> VerificationSetup {
    VerificationSetup { bs: 16 << 10, flush: false, ..VerificationSetup::default() }
}

fn condition(daemon: &Daemon) -> Condition {
    daemon.status().disks[0].health.condition
}

/// A namespace is removed at one of two controllers: the event comes before the first refusal, after it, or never.
#[test]
fn a_namespace_that_one_controller_does_not_have_is_read_over_the_other() {
    let refuses = format!("fail={ALWAYS}:0/0x0b/dnr");
    for (removed, back) in [
        (vec!["size=1:0", &refuses], "fail=0:0/0x0b size=1:own"),
        (vec![&refuses, "size=1:0"], "fail=0:0/0x0b size=1:own"),
        (vec![&refuses], "fail=0:0/0x0b"),
    ] {
        let target = Target::start(2);
        let daemon = Daemon::start(&target.addrs(), FLAGS);
        let verification = Verification::start(&daemon.socket(), unflushed());
        verification.goes_on(200);
        for setting in &removed {
            target.set(0, setting);
            verification.goes_on(100);
        }
        let before = daemon.paths()[0].ios();
        verification.goes_on(200);
        assert_eq!(daemon.paths()[0].ios(), before, "{removed:?}: nothing succeeds there");
        target.set(0, back);
        eventually("the path is used again", || daemon.paths()[0].ios() > before);
        verification.finish();
        assert!(daemon.status().disks[0].health.guest_errors.is_empty(), "{removed:?}");
    }
}

/// If every controller refuses the namespace, its disk waits as without a path.
#[test]
fn a_disk_waits_if_every_controller_refuses_it() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} --fast-io-fail-tmo 3"));
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    (0..2).for_each(|listener| target.set(listener, &format!("fail={ALWAYS}:0/0x0b/dnr")));
    let start = Instant::now();
    disk.submit_write(1, 0, 2);
    eventually("the disk waits", || condition(&daemon) == Condition::Waiting);
    assert_eq!(disk.answer(Duration::from_secs(30)), Some((1, Status::IoError)));
    assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
    (0..2).for_each(|listener| target.set(listener, "fail=0:0/0x0b"));
    eventually("a path is tried again", || disk.write(0, 3) == Status::Ok);
    eventually("both paths are usable", || daemon.paths().iter().all(|path| path.unusable.is_none()));
    assert_ne!(condition(&daemon), Condition::Waiting);
    assert_eq!(disk.read(0), 3);
}

#[test]
fn a_status_without_dnr_is_repeated_and_the_guest_sees_nothing() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), FLAGS);
    let mut disk = Disk::connect(&daemon.socket());
    let kinds = [Kind::Read, Kind::Write, Kind::Flush];
    for status in ["0/0x04", "0/0x05", "0/0x07", "0/0x0b", "0/0x20", "0/0x84", "2/0x81", "7/0x10", "3/0x70/dnr"] {
        for kind in kinds {
            // After a status of the medium, a flush that succeeds does not tell what was lost.
            let is_loss = kind == Kind::Flush && ["0/0x20", "2/0x81", "7/0x10"].contains(&status);
            if kind == Kind::Flush {
                assert_eq!(disk.write(0, 1), Status::Ok);
            }
            target.set(0, &format!("fail=1:{status}"));
            target.set(1, &format!("fail=1:{status}"));
            let len = if kind == Kind::Flush { 0 } else { 4096 };
            let answer = disk.run(Request { kind, offset: 0, len }, &vec![1; len as usize]);
            assert_eq!(answer, if is_loss { Status::IoError } else { Status::Ok }, "{status}, {kind:?}");
            (0..2).for_each(|listener| target.set(listener, "fail=0:0/0x04"));
            if is_loss {
                eventually("the loss is reported", || disk.flush() == Status::Ok);
            }
        }
    }
    target.set(0, "fail=1:0/0x83");
    target.set(1, "fail=1:0/0x83");
    assert_eq!(disk.write(0, 1), Status::IoError, "a reservation conflict is final");
}
