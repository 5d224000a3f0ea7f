//! Front-ends whose memory goes away while the daemon uses it. Neither paths nor other disks are affected, even those
//! on the same I/O thread.

use std::time::Duration;

use mpath_api::types::EventKind;
use virtio_guest::features::PROTOCOL_FEATURES;
use vublk_bench::request::Status;

use crate::guest::Guest;
use crate::support::{
    Bystanders, Daemon, DaemonDirectory, Disk, FAULTY_REQUESTS, FaultyGuest, Priority, Target, disk, eventually,
    sharer, socket_of, target_of,
};

/// The number of disks besides the first one, whose front-end breaks.
const BYSTANDERS: usize = 2;
const ROUNDS: usize = 3;
const FAILED: i32 = -5;
/// A disk that is blocked is blocked for longer: a leaving front-end has ten seconds.
const LONGEST: Duration = Duration::from_secs(2);

fn start(data_digest: bool) -> (Target, Daemon) {
    let target = target_of(1 + BYSTANDERS, 2, 16 << 20);
    let place = DaemonDirectory::new();
    let mut config = disk(&place, &target, 0);
    config.share_paths_with = (1..=BYSTANDERS).map(|number| sharer(&place, number)).collect();
    (config.queues, config.data_digest) = ("4".parse().unwrap(), data_digest);
    let command = place.configured(vec![config]);
    (target, place.spawn(command).ready())
}

/// The front-ends of the first disk that have gone. The log has only some of them.
fn gone(daemon: &Daemon) -> u64 {
    let first = daemon.status().disks.remove(0).name;
    let events = daemon.api.events(0).unwrap().events.into_iter();
    let gone = events.filter(|of| of.kind == EventKind::FrontEndDisconnected && of.disk.as_ref() == Some(&first));
    gone.map(|event| 1 + event.repeated).sum()
}

/// Breaks the first disk's front-end over and over, and checks that no other disk is affected.
fn affects_no_other_disk((target, daemon): &(Target, Daemon), mut happens: impl FnMut(&Daemon)) {
    let others = Bystanders::start((1..=BYSTANDERS).map(|number| socket_of(&daemon.place, number)), 1);
    for round in 0..ROUNDS {
        let before = gone(daemon);
        happens(daemon);
        eventually("the front-end is hung up on", || gone(daemon) > before);
        // The memory of the next front-end is in order.
        let mut disk = Disk::connect_patiently(&socket_of(&daemon.place, 0));
        let byte = round as u8 + 1;
        assert_eq!((disk.write(0, byte), disk.read(0)), (Status::Ok, byte));
        drop(disk);
        eventually("this one is gone, too", || gone(daemon) == before + 2);
    }
    assert!(daemon.log().contains("front-end lost: guest memory at guest address"), "{}", daemon.log());
    (0..2).for_each(|listener| target.set_delay(listener, Duration::ZERO));
    let longest = others.finish().into_iter().map(|took| took.ended - took.begun).max().unwrap();
    assert!(longest < LONGEST, "{longest:?}");
    for path in daemon.paths() {
        assert_eq!(path.last_error, None);
    }
    let events = daemon.api.events(0).unwrap().events;
    assert!(events.iter().all(|event| event.kind != EventKind::PathLost), "{events:?}");
    let log = daemon.log();
    assert!(!log.contains("panicked") && log.contains("truncated to"), "{log}");
}

fn answered(front_end: &mut FaultyGuest, count: usize) -> Vec<i32> {
    let mut results = Vec::new();
    eventually("all is answered", || {
        results.extend(front_end.results());
        results.len() >= count
    });
    results
}

#[test]
fn buffers_outside_the_memory_file() {
    let _priority = Priority::take();
    // With data digests all payloads are copied.
    for data_digest in [false, true] {
        let running = start(data_digest);
        affects_no_other_disk(&running, |daemon| {
            let mut front_end = FaultyGuest::connect(&socket_of(&daemon.place, 0));
            front_end.submit();
            assert_eq!(answered(&mut front_end, FAULTY_REQUESTS), [0; FAULTY_REQUESTS], "while they are there");
            front_end.cut_off(0);
            front_end.submit();
            assert_eq!(answered(&mut front_end, FAULTY_REQUESTS), [FAILED; FAULTY_REQUESTS]);
        });
    }
}

#[test]
fn buffers_truncated_under_requests() {
    let _priority = Priority::take();
    let running = start(false);
    (0..2).for_each(|listener| running.0.set_delay(listener, Duration::from_millis(50)));
    affects_no_other_disk(&running, |daemon| {
        let mut front_end = FaultyGuest::connect(&socket_of(&daemon.place, 0));
        front_end.submit();
        let served = || daemon.paths().iter().map(mpath_api::types::Path::in_flight).sum::<u64>();
        eventually("they are in flight", || served() > BYSTANDERS as u64);
        // In the middle of the last read.
        front_end.cut_off((4 << 20) + (300 << 10));
        let results = answered(&mut front_end, 1);
        assert!(results.iter().all(|&result| result == 0 || result == FAILED), "{results:?}");
        // An unanswered request has met the missing memory, or the next one does.
        if daemon.log().matches("front-end lost: guest memory at guest address").count() == 0 {
            front_end.submit();
        }
    });
}

#[test]
fn truncated_rings() {
    let _priority = Priority::take();
    let running = start(false);
    affects_no_other_disk(&running, |daemon| {
        let mut guest = Guest::connect(&socket_of(&daemon.place, 0), PROTOCOL_FEATURES);
        guest.share_memory();
        let mut ring = guest.start(0);
        ring.submit(0, 0, 0, &[0xff; 4096]);
        assert_eq!((ring.finish(), ring.status(0)), (vec![0], 0));
        guest.cut_off(0);
        let before = gone(daemon);
        ring.kick.write(1).unwrap();
        eventually("the front-end is hung up on", || gone(daemon) > before);
    });
}
