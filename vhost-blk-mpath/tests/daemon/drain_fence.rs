//! Fences lifted by drain: a controller with `drain-fence` closes ended connections only when everything is executed.

use std::time::{Duration, Instant};

use mpath_api::types::{ActOnPaths, PathAction, PathSelector};
use vublk_bench::request::Status;

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const OLD: u8 = 1;
const NEW: u8 = 2;

/// A write that the first path's controller holds. Only drain and time can lift its fence.
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
        // Otherwise the path would come back and get the write again.
        target.set(0, "listen=off");
        Self { target, daemon, disk }
    }

    fn reset(&self) {
        let path = PathSelector::Index(0);
        self.daemon
            .api
            .act_on_paths(&ActOnPaths { path, disk: None, all: false, action: PathAction::Reset, force: false })
            .unwrap();
    }

    /// Whether the log says that this has lifted the fence.
    fn lifted_by(&self, what: &str) -> bool {
        self.daemon.log().contains(&format!("fence lifted by {what}"))
    }
}

#[test]
fn a_drain_lifts_the_fence_once_everything_is_executed() {
    // Time alone would take two minutes.
    let mut doubt = InDoubt::start("--keep-alive-tmo 60 --drain-fence");
    doubt.reset();
    assert_eq!(doubt.disk.answer(Duration::from_millis(300)), None, "the write may still be executed");
    assert_eq!(doubt.daemon.paths()[0].fenced, 1);
    doubt.target.set(0, "hold=off");
    assert_eq!(doubt.disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(doubt.lifted_by("drain"), "{}", doubt.daemon.log());
    assert_eq!(doubt.disk.read(0), OLD);
    assert_eq!(doubt.disk.write(0, NEW), Status::Ok);
    assert_eq!(doubt.disk.read(0), NEW);
}

/// The fence time counts from the end of the drain, when the sockets are closed.
#[test]
fn if_a_controller_does_not_drain_time_lifts_the_fence() {
    // Long enough that a busy machine does not lose the path before the reset.
    let mut doubt = InDoubt::start("--keep-alive-tmo 3 --drain-fence");
    let begun = Instant::now();
    doubt.reset();
    assert_eq!(doubt.disk.answer(PATIENCE), Some((1, Status::Ok)));
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(5000 + 6100), "{took:?}: {}", doubt.daemon.log());
    assert!(doubt.lifted_by("time"), "{}", doubt.daemon.log());
}
