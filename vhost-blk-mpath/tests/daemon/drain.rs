//! The fence by drain: a controller that has promised it closes what the host has ended only when everything is executed.

use std::time::{Duration, Instant};

use mpath_api::types::{PathAction, PathSelector, SteerPaths};
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const OLD: u8 = 1;
const NEW: u8 = 2;

/// A write that the first path's controller holds, and no other fence than drain and time.
struct InDoubt {
    target: Target,
    daemon: Daemon,
    disk: Disk,
}

impl InDoubt {
    fn start(flags: &str) -> Self {
        let target = Target::start(2);
        target.fail_cross_resets();
        let flags = format!("--policy numa --io-threads 2 --reconnect-delay 600 {flags}");
        let daemon = Daemon::start(&target.addrs(), &flags);
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!(disk.write(0, 0), Status::Ok);
        target.set(0, "hold=on");
        disk.submit_write(1, 0, OLD);
        eventually("the write is held", || target.status()[0].held == 1);
        // Or the path would come back, and get the write once more.
        target.set(0, "listen=off");
        Self { target, daemon, disk }
    }

    fn reset(&self) {
        let path = PathSelector::Index(0);
        self.daemon.api.steer(&SteerPaths { path, disk: None, action: PathAction::Reset, force: false }).unwrap();
    }

    /// What has lifted the fence, as the log says.
    fn lifted_by(&self, what: &str) -> bool {
        self.daemon.log().contains(&format!("fence lifted by {what}"))
    }
}

#[test]
fn it_lasts_until_the_controller_has_executed_everything_and_no_longer() {
    // By time it would be 10.1 s.
    let mut doubt = InDoubt::start("--keep-alive-tmo 5 --drain-fence");
    let begun = Instant::now();
    doubt.reset();
    assert_eq!(doubt.disk.answer(Duration::from_millis(300)), None, "the write may still be executed");
    assert_eq!(doubt.daemon.paths()[0].fenced, 1);
    doubt.target.set(0, "hold=off");
    assert_eq!(doubt.disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(doubt.lifted_by("drain"), "{}", doubt.daemon.log());
    assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
    assert_eq!(doubt.disk.read(0), OLD);
    assert_eq!(doubt.disk.write(0, NEW), Status::Ok);
    assert_eq!(doubt.disk.read(0), NEW);
}

/// The time counts from the end of the attempt, when the sockets are closed.
#[test]
fn a_controller_that_does_not_come_to_an_end_leaves_it_to_time() {
    let mut doubt = InDoubt::start("--keep-alive-tmo 1 --drain-fence");
    let begun = Instant::now();
    doubt.reset();
    assert_eq!(doubt.disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(begun.elapsed() >= Duration::from_millis(5000 + 2100), "{:?}", begun.elapsed());
    assert!(doubt.lifted_by("time"), "{}", doubt.daemon.log());
}
