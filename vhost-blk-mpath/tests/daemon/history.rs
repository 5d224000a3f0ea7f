//! `GET /v1/disks/{disk}/history`: the minutes of a disk, also after a restart.

use std::time::{Duration, SystemTime};

use mpath_api::types::HistoryMinute;
use rustix::process::Signal;

use crate::support::{Daemon, Disk, Target};

const READS: u64 = 20;

fn history(daemon: &Daemon) -> Vec<HistoryMinute> {
    let from = SystemTime::now() - Duration::from_secs(600);
    daemon.api.history("disk0", from, SystemTime::now()).unwrap()
}

/// The reads of the guest, and those that each path has answered.
fn reads(minutes: &[HistoryMinute]) -> (u64, u64) {
    let guest = minutes.iter().filter_map(|minute| minute.guest.read).map(|of| of.ios).sum();
    let paths = minutes.iter().flat_map(|minute| &minute.paths).filter_map(|path| path.io.read).map(|of| of.ios).sum();
    (guest, paths)
}

#[test]
fn the_history_goes_on_after_a_restart() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut disk = Disk::connect(&daemon.socket());
    (0..READS).for_each(|block| assert_eq!(disk.read(4096 * block), 0));
    assert_eq!(reads(&history(&daemon)), (READS, READS), "the minute that has begun is there, too");
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    let command = place.command(&target.addrs(), "");
    let daemon = place.spawn(command).ready();
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.read(0), 0);
    let minutes = history(&daemon);
    assert_eq!(reads(&minutes), (READS + 1, READS + 1), "{minutes:?}");
    let path = &minutes[0].paths[0];
    assert!(target.addrs().iter().any(|address| path.address == format!("tcp://{address}")), "{path:?}");
    assert!(minutes.iter().all(|minute| minute.seconds <= 61), "{minutes:?}");
}
