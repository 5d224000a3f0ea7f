//! A host that does not run the daemon: the storage is not blamed for that.

use std::thread;
use std::time::Duration;

use mpath_api::types::{Condition, Event, EventKind};
use rustix::process::Signal;
use vublk_bench::request::{Kind, Request, Status};

use crate::support::{Daemon, Disk, PATIENCE, Target, eventually};

const STALL: Duration = Duration::from_millis(800);

/// Stops the daemon for this time.
fn stall(daemon: &Daemon, time: Duration) {
    daemon.signal(Signal::STOP);
    thread::sleep(time);
    daemon.signal(Signal::CONT);
}

fn events(daemon: &Daemon, of: EventKind) -> Vec<Event> {
    daemon.api.events(0).unwrap().events.into_iter().filter(|event| event.kind == of).collect()
}

#[test]
fn a_daemon_that_was_stopped_blames_its_host() {
    const READS: u16 = 8;
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60");
    let mut disk = Disk::connect(&daemon.socket());
    target.set(0, "delay=20ms");
    target.set(1, "delay=20ms");
    for _ in 0..3 {
        for slot in 0..READS {
            disk.submit(slot, Request { kind: Kind::Read, offset: 4096 * u64::from(slot), len: 4096 }, &[0; 4096]);
        }
        eventually("the daemon has them", || daemon.status().disks[0].health.outstanding > 0);
        stall(&daemon, STALL);
        (0..READS).for_each(|_| assert_eq!(disk.answer(PATIENCE).map(|(_, status)| status), Some(Status::Ok)));
    }
    let slow = daemon.api.slow(None).unwrap();
    let stalled: Vec<_> = slow.iter().filter(|of| of.total_us > 500_000).collect();
    assert!(!stalled.is_empty(), "{slow:?}");
    for of in stalled {
        assert!(of.longest == "host" && of.stages.host > STALL / 2, "{of:?}");
    }
    eventually("an event tells", || !events(&daemon, EventKind::HostStalled).is_empty());
    let told = &events(&daemon, EventKind::HostStalled)[0];
    assert!(told.disk.is_none() && told.message.starts_with("this host did not run the daemon "), "{told:?}");
    for kind in [EventKind::PathSuspect, EventKind::PathLost, EventKind::DiskDegraded, EventKind::DiskWaiting] {
        assert_eq!(events(&daemon, kind), []);
    }
    let disk = &daemon.status().disks[0];
    assert_eq!(disk.health.condition, Condition::Degraded);
    assert!(disk.health.reasons[0].message.starts_with("the host is starved: "), "{:?}", disk.health);
    let stalls: u64 = disk.io_threads.iter().map(|thread| thread.stalls).sum();
    let stalled_ms: u64 = disk.io_threads.iter().map(|thread| thread.stalled_ms).sum();
    assert!(stalls >= 3 && stalled_ms > 1_500, "{:?}", disk.io_threads);
    assert!(disk.io_threads.iter().all(|thread| thread.ran_ms.is_some() && thread.processor_wait_ms.is_some()));
}

/// The target ends connections of a host that is silent for the keep-alive timeout.
#[test]
fn a_connection_lost_by_a_silent_host_says_so() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 1 --reconnect-delay 1");
    stall(&daemon, Duration::from_secs(4));
    let is_told = |event: &Event| {
        event.message.contains("; just before, this host did not run the daemon for ")
            && event.message.ends_with("missed the keep-alive of this host (keep-alive-tmo 1s)")
    };
    eventually("an event of a path names the host", || events(&daemon, EventKind::PathLost).iter().any(is_told));
    eventually("an event of the daemon tells", || !events(&daemon, EventKind::HostStalled).is_empty());
    eventually("the paths are back", || daemon.is_live(0) && daemon.is_live(1));
}

/// It is found although another target was stalled for far longer.
#[test]
fn a_silent_path_beside_a_stalled_host_is_found() {
    let target = Target::start(2);
    let daemon = Daemon::start(&target.addrs(), "--keep-alive-tmo 60 --policy round-robin");
    let mut disk = Disk::connect(&daemon.socket());
    target.set(0, "delay=60s");
    for slot in 0..4 {
        disk.submit(slot, Request { kind: Kind::Read, offset: 0, len: 4096 }, &[0; 4096]);
    }
    eventually("the silent path has some", || daemon.paths()[0].read.in_flight > 0);
    stall(&daemon, STALL);
    (0..4).for_each(|_| assert_eq!(disk.answer(PATIENCE).map(|(_, status)| status), Some(Status::Ok)));
    let told = events(&daemon, EventKind::PathSuspect);
    assert!(told.iter().all(|event| event.path.as_ref().is_some_and(|path| path.index == 0)), "{told:?}");
    assert_eq!(told.len(), 1);
}
