//! Paths that are given up.

use std::thread::sleep;
use std::time::{Duration, Instant};

use mpath_api::types::PathState;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const TMO: Duration = Duration::from_secs(2);
const READ: Request = Request { kind: Kind::Read, offset: 0, len: 4096 };

fn given_up(daemon: &Daemon, path: usize) {
    eventually("the path is given up", || daemon.paths()[path].state == PathState::GaveUp);
}

#[test]
fn after_the_configured_time_attempts_end_and_requests_fail() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--ctrl-loss-tmo 2 --reconnect-delay 1 --keep-alive-tmo 1");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 1), Status::Ok);
    let lost = Instant::now();
    target.stop_listener(0);
    given_up(&daemon, 0);
    assert!(lost.elapsed() >= TMO, "{:?}", lost.elapsed());
    target.resume_listener(0).unwrap();
    // The other path serves, and the daemon does not retry the first.
    assert_eq!(disk.read(0), 1);
    sleep(Duration::from_millis(1500));
    assert_eq!((daemon.paths()[0].state, target.connections(0)), (PathState::GaveUp, 0));
    let reason = daemon.paths()[0].unusable.clone().unwrap();
    assert!(reason.starts_with("gave-up: ") && reason.contains("refused"), "{reason}");
    assert_eq!(daemon.log().matches("path given up").count(), 1, "{}", daemon.log());

    let lost = Instant::now();
    target.stop_listener(1);
    eventually("the loss is noticed", || !daemon.is_live(1));
    disk.submit(1, READ, &[0; 4096]);
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::IoError)));
    assert!(lost.elapsed() >= TMO, "{:?}", lost.elapsed());
    given_up(&daemon, 1);
    assert_eq!(disk.write(0, 2), Status::IoError);
}

#[test]
fn reconnecting_in_time_restarts_ctrl_loss_tmo() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--ctrl-loss-tmo 3 --reconnect-delay 1");
    for _ in 0..3 {
        target.stop_listener(0);
        eventually("the loss is noticed", || !daemon.is_live(0));
        sleep(Duration::from_millis(1200));
        target.resume_listener(0).unwrap();
        eventually("it comes back", || daemon.is_live(0));
    }
    assert!(!daemon.log().contains("path given up"), "{}", daemon.log());
}
