//! Writes in doubt: sent on a path that was lost, unanswered, and perhaps still on their way.

use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::{PathState, WaitCause};
use rustix::process::Signal;
use vublk_bench::request::Status;

use crate::metrics::Scrape;
use crate::support::{Daemon, Disk, Link, PATIENCE, Target, eventually};

const OLD: u8 = 1;
const NEW: u8 = 2;
/// 2 × the keep-alive timeout of 3 s, and the test target's quiesce time (CQT). A shorter timeout would end associations on a busy
/// machine.
const FENCE: Duration = Duration::from_millis(6100);

/// A daemon whose first path can hold data. The policy sends everything there. Only time can lift fences.
fn over_a_link(target: &Target, flags: &str) -> (Link, Daemon) {
    target.fail_cross_resets();
    let link = Link::to(target.addrs()[0]);
    let daemon = Daemon::start(&[link.address(), target.addrs()[1]], &format!("--policy numa {flags}"));
    (link, daemon)
}

/// Has the link hold a write that the daemon has sent.
fn hold_a_write(link: &Link, disk: &mut Disk) {
    assert_eq!(disk.write(0, 0), Status::Ok);
    link.hold();
    disk.submit_write(1, 0, OLD);
    eventually("the write is under way", || link.held_bytes() > 4096);
}

#[test]
fn a_write_in_doubt_waits_for_its_fence_and_cannot_overtake() {
    let target = Target::start(2);
    let (link, daemon) = over_a_link(&target, "--keep-alive-tmo 3 --reconnect-delay 1");
    let mut disk = Disk::connect(&daemon.socket());
    hold_a_write(&link, &mut disk);
    let cut = Instant::now();
    link.cut();
    eventually("the loss is noticed", || daemon.paths()[0].state == PathState::Lost);
    assert_eq!(daemon.paths()[0].fenced, 1);
    let explained = daemon.api.explain("disk0").unwrap();
    let waiting: Vec<_> = explained.threads.iter().flat_map(|thread| &thread.waiting).collect();
    let ends_in = waiting.iter().find(|of| of.cause == WaitCause::Fence).and_then(|of| of.ends_in);
    assert!(ends_in.is_some_and(|time| !time.is_zero() && time <= FENCE.into()), "{waiting:?}");
    // Reads continue at once and return the old data: the write was executed on neither path.
    assert_eq!(disk.read_by(2, 0), 0);
    // The write is executed long after its connection ended, and before the controller misses keep-alives.
    link.deliver();
    eventually("the write arrives", || disk.read_by(2, 0) == OLD);
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(cut.elapsed() >= FENCE, "answered after {:?}", cut.elapsed());
    assert_eq!(disk.write(0, NEW), Status::Ok);
    eventually("the path comes back", || daemon.is_live(0));
    assert_eq!(disk.read(0), NEW);
}

#[test]
fn losing_the_admin_queue_ends_the_association() {
    let target = Target::start(2);
    target.fail_cross_resets();
    let daemon =
        Daemon::start(&target.addrs(), "--policy numa --keep-alive-tmo 3 --reconnect-delay 1 --suspect-timeout 60s");
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 0), Status::Ok);
    target.set(0, "hold=on");
    disk.submit_write(1, 0, OLD);
    eventually("the write is held", || target.status()[0].held == 1);
    let reset = Instant::now();
    target.set(0, "listen=off reset=admin");
    eventually("the I/O connections go too", || target.connections(0) == 0);
    eventually("the loss is noticed", || daemon.paths()[0].state == PathState::Lost);
    assert_eq!(daemon.paths()[0].fenced, 1);
    assert_eq!(disk.read_by(2, 0), 0);
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(reset.elapsed() >= FENCE, "answered after {:?}", reset.elapsed());
    assert_eq!(disk.read(0), OLD);
    // The write was the only request that moved, and its fence does not count as time in which I/O stood still.
    let status = daemon.status().disks.remove(0);
    assert_eq!((status.first_moved.ios, status.moved_writes.ios, status.fence_waits.ios), (0, 1, 1));
    let waited = Duration::from_millis(status.fence_waits.total_ms);
    // Shown in whole milliseconds.
    assert!(waited + Duration::from_millis(1) >= FENCE && waited <= reset.elapsed(), "{waited:?}");
    assert_eq!(Scrape::of(&daemon).get("disk_fence_waits_total{disk=\"disk0\"}").to_string(), "1");
}

#[test]
fn a_killed_daemons_write_cannot_overtake_those_of_the_next() {
    let target = Target::start(2);
    let flags = "--keep-alive-tmo 3 --reconnect-delay 1";
    let (link, daemon) = over_a_link(&target, flags);
    let mut disk = Disk::connect(&daemon.socket());
    hold_a_write(&link, &mut disk);
    let (_, place) = daemon.end(Signal::KILL);
    let killed = Instant::now();
    drop(disk);
    link.cut();

    let command = place.command(&[target.addrs()[1]], flags);
    let daemon = place.spawn(command).ready();
    // On a busy machine the fence may have passed.
    let whose = ["was killed or left writes in doubt", "the previous daemon did not end in order"];
    assert!(whose.iter().any(|whose| daemon.log().contains(whose)), "{}", daemon.log());
    // The write is executed while the next daemon runs.
    let late = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        link.deliver();
    });
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert_eq!(disk.write(0, NEW), Status::Ok);
    assert!(killed.elapsed() >= FENCE, "served after {:?}", killed.elapsed());
    late.join().unwrap();
    assert_eq!(disk.read(0), NEW);

    // Once the fence has passed, an orderly end leaves none.
    drop(disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly_but_for_a_guest(&place);
}

#[test]
fn an_end_with_writes_in_doubt_leaves_their_fence_to_the_next() {
    let target = Target::start(2);
    let (link, daemon) = over_a_link(&target, "--keep-alive-tmo 3");
    let mut disk = Disk::connect(&daemon.socket());
    hold_a_write(&link, &mut disk);
    let (ended, place) = daemon.end(Signal::TERM);
    ended.cleanly(&place);
    assert!(place.fence_record().exists());
}

#[test]
fn a_silent_path_is_lost_and_its_writes_go_elsewhere() {
    let target = Target::start(2);
    let (link, daemon) = over_a_link(&target, "--keep-alive-tmo 3 --reconnect-delay 1");
    let mut disk = Disk::connect(&daemon.socket());
    hold_a_write(&link, &mut disk);
    let held = Instant::now();
    // No connection is closed: only keep-alives detect the loss.
    assert_eq!(disk.answer(PATIENCE), Some((1, Status::Ok)));
    assert!(held.elapsed() >= FENCE, "answered after {:?}", held.elapsed());
    assert_eq!(disk.read(0), OLD);
    assert_eq!(disk.write(0, NEW), Status::Ok);
    link.deliver();
    eventually("the path comes back", || daemon.is_live(0));
    assert_eq!(disk.read(0), NEW);
}
