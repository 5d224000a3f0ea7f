//! Fences lifted by Cross-Controller Reset: the controller of another path ends what a lost path may still execute.

use std::time::{Duration, Instant};

use mpath_api::types::PathState;
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, Link, PATIENCE, Target, eventually};

const OLD: u8 = 1;
const NEW: u8 = 2;
/// With this keep-alive timeout a fence takes two minutes. If an answer comes earlier, time has not lifted the fence.
const LONG: &str = "--keep-alive-tmo 60 --reconnect-delay 1";
const WELL_BEFORE: Duration = Duration::from_secs(60);
/// The fence with a keep-alive timeout of 3 s.
const SHORT_FENCE: Duration = Duration::from_millis(6100);

/// A write that is held on its way over the first path.
struct InDoubt {
    target: Target,
    link: Link,
    daemon: Daemon,
    disk: Disk,
}

impl InDoubt {
    fn start(flags: &str) -> Self {
        let target = Target::start(2);
        let link = Link::to(target.addrs()[0]);
        let daemon = Daemon::start(&[link.address(), target.addrs()[1]], &format!("--policy numa {flags}"));
        let mut disk = Disk::connect(&daemon.socket());
        assert_eq!(disk.write(0, 0), Status::Ok);
        link.hold();
        disk.submit_write(1, 0, OLD);
        eventually("the write is under way", || link.held_bytes() > 4096);
        Self { target, link, daemon, disk }
    }

    /// Waits for the answer to the write. Returns the time since `since`.
    fn answered(&mut self, since: Instant) -> Duration {
        assert_eq!(self.disk.answer(PATIENCE), Some((1, Status::Ok)));
        assert_eq!(self.disk.read(0), OLD);
        since.elapsed()
    }

    /// The held write reaches the target after newer data, and must not be executed.
    fn deliver_late(&mut self) {
        assert_eq!(self.disk.write(0, NEW), Status::Ok);
        self.link.deliver();
        eventually("the path comes back", || self.daemon.is_live(0));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(self.disk.read(0), NEW);
    }
}

#[test]
fn a_successful_reset_lifts_the_fence_at_once() {
    let mut doubt = InDoubt::start(LONG);
    let cut = Instant::now();
    doubt.link.cut();
    let took = doubt.answered(cut);
    assert!(took < WELL_BEFORE, "{took:?}");
    let log = doubt.daemon.log();
    assert!(log.contains("fence lifted by cross-controller reset"), "{log}");
    eventually("nothing is held", || doubt.daemon.paths()[0].fenced == 0);
    doubt.deliver_late();
}

/// Checks that time lifts the fence, whatever the only other controller does with the request.
fn time_fences(setting: &str) {
    let mut doubt = InDoubt::start("--keep-alive-tmo 3 --reconnect-delay 600");
    doubt.target.set(1, setting);
    let cut = Instant::now();
    doubt.link.cut();
    eventually("the loss is noticed", || doubt.daemon.paths()[0].state == PathState::Lost);
    assert_eq!(doubt.daemon.paths()[0].fenced, 1);
    // The path that was asked continues to serve.
    assert_eq!(doubt.disk.read_by(2, 0), 0);
    let took = doubt.answered(cut);
    assert!(took >= SHORT_FENCE, "{took:?}");
    assert!(!doubt.daemon.log().contains("cross_controller_reset_by"), "{}", doubt.daemon.log());
    assert!(doubt.daemon.is_live(1));
}

#[test]
fn after_a_failed_reset_time_lifts_the_fence() {
    time_fences("cross-reset=fail");
}

#[test]
fn without_an_answer_time_lifts_the_fence() {
    time_fences("cross-reset=mute");
}

#[test]
fn a_path_that_reconnects_during_a_fence_is_asked_too() {
    let mut doubt = InDoubt::start(LONG);
    let cut = Instant::now();
    doubt.target.stop_listener(1);
    doubt.link.cut();
    eventually("both are lost", || doubt.daemon.status().disks[0].path_counts.usable == 0);
    doubt.target.resume_listener(1).unwrap();
    let took = doubt.answered(cut);
    assert!(took < WELL_BEFORE, "{took:?}");
    doubt.deliver_late();
}
