//! Front-ends that connect and leave.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use mpath_api::types::{Condition, EventKind, PathSelector};
use mpath_config::DiskConfig;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;
use vhost::VhostBackend;
use vhost::vhost_user::Frontend;
use virtio_guest::features::{LOG_ALL, PROTOCOL_FEATURES};
use vublk_bench::request::{Kind, Request, Status};

use crate::disk_isolation::start;
use crate::guest::Guest;
use crate::support::{
    Daemon, Disk, Link, PATIENCE, Target, Verification, VerificationSetup, disk, eventually, inject, sharer, socket_of,
    target_of,
};

const SLOTS: u16 = 16;
/// The shortest time for which writes are held that a front-end leaves on silent paths. It is twice the keep-alive timeout of
/// 5 s, and the test target's quiesce time (CQT). It begins after the 10 s to drain, or when a busy machine loses the paths.
const FENCED: Duration = Duration::from_millis(10_100);

#[test]
fn front_ends_are_served_one_after_the_other() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--io-threads 2");
    let mut resources = None;
    for queues in [4, 1, 8, 4] {
        let verification =
            Verification::start(&daemon.socket(), VerificationSetup { queues, ..VerificationSetup::default() });
        assert!(daemon.status().disks[0].connected);
        verification.goes_on(200);
        verification.finish();
        eventually("the front-end has left", || !daemon.status().disks[0].connected);
        let before = *resources.get_or_insert_with(|| daemon.settled_resources());
        daemon.comes_back_to(before);
    }
}

/// QEMU without `share=on` does so once a second.
#[test]
fn front_ends_that_leave_at_once_are_explained() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    for _ in 0..8 {
        drop(UnixStream::connect(daemon.socket()).unwrap());
    }
    let events = |kind| {
        let events = daemon.api.events(0).unwrap().events.into_iter();
        events.filter(|event| event.kind == kind).collect::<Vec<_>>()
    };
    let left = || events(EventKind::FrontEndDisconnected);
    eventually("all have left", || left().iter().map(|event| 1 + event.repeated).sum::<u64>() == 8);
    assert!(left().len() < 8, "{:?}", left());
    let explained = events(EventKind::FrontEndFlapping);
    assert!(explained.len() == 1 && explained[0].message.contains("share=on"), "{explained:?}");
    let reason = || {
        let reasons = daemon.status().disks.remove(0).health.reasons.into_iter();
        reasons
            .filter(|reason| reason.condition == Condition::NoFrontEnd)
            .map(|reason| reason.message)
            .collect::<String>()
    };
    eventually("the condition says why", || {
        reason().starts_with("no front-end is connected; the last 8 ") && reason().contains("share=on")
    });
    // A front-end that uses the disk ends the trouble.
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 7), Status::Ok);
    drop(disk);
    eventually("it has left", || reason() == "no front-end is connected");
}

/// A second QEMU on the same socket stands still and says nothing.
#[test]
fn a_front_end_that_waits_for_another_is_told_with_both_processes() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "");
    let mut first = Disk::connect(&daemon.socket());
    assert_eq!(first.write(0, 1), Status::Ok);
    let process = daemon.status().disks.remove(0).front_end.unwrap();
    assert_eq!(process.pid, std::process::id());
    assert!(process.program.as_deref().is_some_and(|program| program.starts_with("daemon")), "{process:?}");
    let told = || {
        let events = daemon.api.events(0).unwrap().events.into_iter();
        events.filter(|event| event.kind == EventKind::FrontEndWaiting).map(|event| event.message).collect::<Vec<_>>()
    };
    let degraded = || {
        let reasons = daemon.status().disks.remove(0).health.reasons.into_iter();
        reasons
            .filter(|reason| reason.condition == Condition::Degraded)
            .map(|reason| reason.message)
            .collect::<Vec<_>>()
    };
    // Clients that have gone hide none.
    let gone: Vec<_> = (0..4).map(|_| UnixStream::connect(daemon.socket()).unwrap()).collect();
    drop(gone);
    let second = UnixStream::connect(daemon.socket()).unwrap();
    let expected = format!("{process} waits on the socket until {process} has left, because");
    eventually("it is told", || told().len() == 1);
    assert!(told()[0].starts_with(&expected), "{:?}", told());
    assert_eq!(degraded(), told());
    drop(second);
    eventually("none waits", || degraded().is_empty());
    assert_eq!(first.write(0, 2), Status::Ok);
    // Another one stays, and is served when the first one has left.
    let next = UnixStream::connect(daemon.socket()).unwrap();
    eventually("it is told, too", || told().len() == 2);
    drop(first);
    next.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = Frontend::from_stream(next, 1);
    next.set_owner().unwrap();
    assert_ne!(next.get_features().unwrap() & PROTOCOL_FEATURES, 0);
    drop(next);
    eventually("none is left", || !daemon.status().disks[0].connected);
}

/// Fills all slots, half of them with writes of `byte`, and hangs up.
fn dies_with_requests_in_flight(daemon: &Daemon, byte: u8) {
    let mut disk = Disk::connect(&daemon.socket());
    for slot in 0..SLOTS {
        let (kind, offset) = (if slot % 2 == 0 { Kind::Write } else { Kind::Read }, u64::from(slot) * 4096);
        disk.submit(slot, Request { kind, offset, len: 4096 }, &[byte; 4096]);
    }
    eventually("all are in flight", || {
        daemon.paths().iter().map(mpath_api::types::Path::in_flight).sum::<u64>() == u64::from(SLOTS)
    });
}

#[test]
fn a_front_end_that_dies_is_drained_before_the_next() {
    let target = Target::start(2);
    let mut daemon = Daemon::start(&target.addrs(), "--policy round-robin");
    daemon.api.set_injection(&inject(PathSelector::All, Duration::from_secs(5))).unwrap();
    dies_with_requests_in_flight(&daemon, 1);
    // The next front-end is served once nothing of the first can happen any more.
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert!(!daemon.log().contains("given up without an answer"), "{}", daemon.log());
    assert_eq!(daemon.paths().iter().map(mpath_api::types::Path::in_flight).sum::<u64>(), 0);
    daemon.api.clear_injections(&PathSelector::All, None).unwrap();
    let found: Vec<_> = (0..SLOTS).map(|slot| disk.read(u64::from(slot) * 4096)).collect();
    assert!(found.iter().all(|&byte| byte < 2));
    drop(disk);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    verification.finish();
    assert!(daemon.is_running());
}

#[test]
fn a_dead_front_end_on_silent_paths_delays_the_next_for_a_limited_time() {
    let target = Target::start(2);
    target.fail_cross_resets();
    let mut daemon = Daemon::start(&target.addrs(), "--policy round-robin --reconnect-delay 1 --keep-alive-tmo 5");
    (0..2).for_each(|listener| target.set_delay(listener, Duration::from_secs(60)));
    dies_with_requests_in_flight(&daemon, 1);
    let died = Instant::now();
    // Other front-ends that connect and leave in between change nothing.
    for _ in 0..1000 {
        drop(UnixStream::connect(daemon.socket()).unwrap());
    }
    // After ten seconds the next front-end is answered, but its requests wait for the fence of the writes.
    let mut disk = Disk::connect_patiently(&daemon.socket());
    assert!(daemon.log().contains("given up without an answer"), "{}", daemon.log());
    // Not before: a busy target may not have read the requests until now.
    (0..2).for_each(|listener| target.set_delay(listener, Duration::ZERO));
    assert_eq!(disk.write(0, 2), Status::Ok);
    assert!(died.elapsed() >= FENCED, "{:?}", died.elapsed());
    assert_eq!(disk.read(0), 2);
    drop(disk);
    let verification = Verification::start(&daemon.socket(), VerificationSetup::default());
    verification.goes_on(500);
    verification.finish();
    assert!(daemon.is_running());
}

/// The old front-end's write is still on its way over a healthy path and arrives after the next front-end has begun.
/// The new data must stay.
#[test]
fn writes_of_the_last_front_end_do_not_overwrite_the_next() {
    let target = Target::start(2);
    let link = Link::to(target.addrs()[0]);
    let flags = "--policy numa --keep-alive-tmo 3 --reconnect-delay 1";
    let daemon = Daemon::start(&[link.address(), target.addrs()[1]], flags);
    let mut disk = Disk::connect(&daemon.socket());
    assert_eq!(disk.write(0, 0), Status::Ok);
    link.hold();
    disk.submit_write(1, 0, 1);
    eventually("the write is under way", || link.held_bytes() > 4096);
    drop(disk);
    link.cut();
    let mut next = Disk::connect_patiently(&daemon.socket());
    assert_eq!(next.write(0, 2), Status::Ok);
    link.deliver();
    eventually("the path comes back", || daemon.is_live(0));
    assert_eq!(next.read(0), 2);
}

/// QEMU stops a guest's virtqueues when the guest is reset, and stands still meanwhile.
#[test]
fn a_front_end_does_not_stand_still_for_requests_that_cannot_be_sent() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--queues 4 --reconnect-delay 1 --keep-alive-tmo 5");
    let mut guest = Guest::connect(&daemon.socket(), PROTOCOL_FEATURES);
    guest.share_memory();
    let inflight = guest.get_inflight();
    guest.set_inflight(&inflight);
    let mut rings = [guest.start(0), guest.start(1)];
    target.stop_listener(0);
    eventually("the path is lost", || !daemon.is_live(0));
    for (byte, ring) in (1..).zip(&mut rings) {
        ring.submit(0, 1, u64::from(byte) * 8, &[byte; 4096]);
        ring.kick.write(1).unwrap();
    }
    eventually("the writes wait", || daemon.status().disks[0].queued == 2);
    assert!(guest.frontend.get_vring_base(0).is_err(), "an answer would be a false promise");
    assert!(daemon.log().contains("virtqueue cannot drain, as no path is live"), "{}", daemon.log());
    // The log has kept the writes for the next front-end.
    target.resume_listener(0).unwrap();
    guest.reconnect(UnixStream::connect(daemon.socket()).unwrap(), PROTOCOL_FEATURES);
    guest.set_inflight(&inflight);
    for ring in &mut rings {
        guest.restart(ring, ring.position());
        assert_eq!((ring.finish(), ring.status(0)), (vec![0], 0));
    }
}

/// A migration's dirty log is announced, and does not arrive before the virtqueues are enabled.
#[test]
fn virtqueues_that_wait_for_a_dirty_log_are_reported_once() {
    let target = Target::start(1);
    let daemon = Daemon::start(&target.addrs(), "--queues 4");
    let warnings = || daemon.log().matches("virtqueues wait for its SET_LOG_BASE").count();
    let mut guest = Guest::connect(&daemon.socket(), PROTOCOL_FEATURES);
    guest.share_memory();
    let _runs = guest.start(0);
    assert_eq!(warnings(), 0);
    for waits in 1..3 {
        guest.set_features(PROTOCOL_FEATURES | LOG_ALL);
        assert_eq!(warnings(), waits, "virtqueue 0");
        let mut ring = guest.start(waits);
        ring.submit(0, 0, 0, &[0xff; 4096]);
        ring.assert_idle();
        assert_eq!(warnings(), waits, "as long as they wait");
        let _log = guest.set_log(Guest::LOG_BYTES, Guest::LOG_BYTES).unwrap();
        assert_eq!(ring.finish(), [0]);
        guest.set_features(PROTOCOL_FEATURES);
    }
    assert_eq!(warnings(), 2);
}

/// A front-end keeps its thread as long as the daemon waits for it.
#[test]
fn a_front_end_that_stalls_holds_up_neither_another_nor_the_end() {
    let target = target_of(2, 1, 8 << 20);
    let daemon = start(|place| vec![disk(place, &target, 0), disk(place, &target, 1)]);
    let [stalling, other] = [0, 1].map(|number| socket_of(&daemon.place, number));
    let is_connected = || daemon.status().disks[0].connected;
    let ask = [GET_FEATURES, 1, 0].map(u32::to_ne_bytes).concat();
    for reads_answers in [true, false] {
        let mut front_end = UnixStream::connect(&stalling).unwrap();
        if reads_answers {
            front_end.write_all(&ask[..5]).unwrap();
        } else {
            front_end.set_nonblocking(true).unwrap();
            // Until both directions are full.
            while daemon_reads(&front_end) {
                let _ = front_end.write(&ask);
            }
        }
        for byte in 1..3 {
            let mut disk = Disk::connect(&other);
            assert_eq!((disk.write(0, byte), disk.read(0)), (Status::Ok, byte));
            drop(disk);
            eventually("it has left", || !daemon.status().disks[1].connected);
        }
        assert!(is_connected());
        assert_eq!(daemon.threads_named("vhost-user"), 1);
        drop(front_end);
        eventually("it has left", || !is_connected());
        assert_eq!(Disk::connect(&stalling).write(0, 1), Status::Ok);
        eventually("the next one has left", || !is_connected());
    }
    let mut front_end = UnixStream::connect(&stalling).unwrap();
    front_end.write_all(&ask[..5]).unwrap();
    eventually("it is served", is_connected);
    assert!(daemon.end(Signal::TERM).0.status.success());
}

/// The number of the message.
const GET_FEATURES: u32 = 1;

/// Whether there is room for a message, or the daemon makes room by and by.
fn daemon_reads(front_end: &UnixStream) -> bool {
    let mut fds = [PollFd::new(front_end, PollFlags::OUT)];
    poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn front_ends_that_are_quiet_need_no_thread() {
    const DISKS: usize = 64;
    let target = target_of(DISKS, 1, 1 << 20);
    let daemon = start(|place| {
        let share_paths_with = (1..DISKS).map(|number| sharer(place, number)).collect();
        vec![DiskConfig { share_paths_with, queues: "4".parse().unwrap(), ..disk(place, &target, 0) }]
    });
    let mut guest = Guest::connect(&socket_of(&daemon.place, 0), PROTOCOL_FEATURES);
    guest.share_memory();
    let ring = guest.start(0);
    let mut disks: Vec<_> = (1..DISKS).map(|number| Disk::connect(&socket_of(&daemon.place, number))).collect();
    for disk in &mut disks {
        assert_eq!(disk.write(0, 1), Status::Ok);
    }
    let connected = || daemon.status().disks.iter().filter(|disk| disk.connected).count();
    let are_quiet = || daemon.threads_named("vhost-user") == 0;
    assert_eq!(connected(), DISKS);
    eventually("all are quiet", are_quiet);
    eventually("helpers of the start have ended", || daemon.threads_named("") - daemon.threads_named("io") <= 10);
    // Messages, faults and hang-ups are still seen.
    assert_ne!(guest.frontend.get_features().unwrap() & PROTOCOL_FEATURES, 0);
    eventually("it is quiet again", are_quiet);
    guest.cut_off(0);
    ring.kick.write(1).unwrap();
    eventually("the fault is seen", || connected() == DISKS - 1);
    assert!(daemon.log().contains("front-end lost: guest memory"), "{}", daemon.log());
    disks.truncate(1);
    eventually("the hang-ups are seen", || connected() == 1);
    assert_eq!((disks[0].write(0, 2), disks[0].read(0)), (Status::Ok, 2));
    eventually("the last one is quiet", are_quiet);
    assert!(daemon.end(Signal::TERM).0.status.success());
}
