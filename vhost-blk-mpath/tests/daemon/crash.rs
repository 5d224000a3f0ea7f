//! The daemon killed with requests in flight: the front-end keeps the log of them, and the next daemon finishes them.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::Path;
use rustix::process::Signal;
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserInflight;

use crate::guest::{FLUSH, Guest, PROTOCOL_FEATURES, Ring};
use crate::support::{Daemon, Target, eventually};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 1 --reconnect-delay 1 --queues 4";
const QUEUE: usize = 2;
/// 2 × keep-alive time-out of 1 s, the quiesce time (CQT) that our target tells, and the time for sockets to close.
const FENCE: Duration = Duration::from_millis(2600);
const IN: u32 = 0;
const OUT: u32 = 1;

/// A guest with one queue, and what its front-end keeps of it when the daemon is gone.
struct World {
    target: Target,
    daemon: Option<Daemon>,
    guest: Guest,
    ring: Ring,
    inflight: (VhostUserInflight, File),
}

impl World {
    fn start() -> Self {
        let target = Target::start(2);
        let daemon = Daemon::start(&target.addrs(), FLAGS);
        let mut guest = Guest::connect(&daemon.socket(), FEATURES);
        guest.share_memory();
        let inflight = guest.get_inflight();
        guest.set_inflight(&inflight);
        let ring = guest.start(QUEUE);
        Self { target, daemon: Some(daemon), guest, ring, inflight }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn delay(&self, delay: Duration) {
        (0..2).for_each(|listener| self.target.set_delay(listener, delay));
    }

    /// Each slot has a place of its own on the disk.
    fn submit(&mut self, slot: u16, kind: u32, byte: u8) {
        self.ring.submit(slot, kind, u64::from(slot) * 8, &[byte; 4096]);
    }

    fn kick(&self) {
        self.ring.kick.write(1).unwrap();
    }

    /// Ends the daemon and starts another one, to which the front-end connects; when the first had ended.
    fn replace(&mut self, signal: Signal) -> Instant {
        let (_, place) = self.daemon.take().unwrap().end(signal);
        let ended = Instant::now();
        self.delay(Duration::ZERO);
        let command = place.command(&self.target.addrs(), FLAGS);
        let daemon = place.spawn(command).ready();
        self.guest.reconnect(UnixStream::connect(daemon.socket()).unwrap(), FEATURES);
        self.guest.set_inflight(&self.inflight);
        self.guest.restart(&self.ring, self.ring.position());
        self.daemon = Some(daemon);
        ended
    }

    /// Waits for all requests: their slots, in order.
    fn finish(&mut self) -> Vec<u16> {
        let mut slots = self.ring.finish();
        slots.sort_unstable();
        assert!(slots.iter().all(|&slot| self.ring.status(slot) == 0), "{slots:?}");
        slots
    }

    fn assert_contents(&mut self, bytes: impl Iterator<Item = u8>) {
        let bytes: Vec<_> = bytes.collect();
        let slots: Vec<_> = (0..bytes.len() as u16).collect();
        for &slot in &slots {
            self.submit(slot, IN, 0);
        }
        assert_eq!(self.finish(), slots);
        let found: Vec<_> = slots.iter().map(|&slot| self.ring.data::<4096>(slot)).collect();
        for (slot, (found, byte)) in found.iter().zip(bytes).enumerate() {
            assert_eq!(*found, [byte; 4096], "{slot}");
        }
    }
}

#[test]
fn what_a_killed_daemon_had_in_flight_is_finished_by_the_next() {
    let mut world = World::start();
    for slot in 0..3 {
        world.submit(slot, OUT, 1);
        assert_eq!(world.finish(), [slot]);
    }
    world.delay(Duration::from_secs(60));
    (3..19).for_each(|slot| world.submit(slot, OUT, 2));
    world.kick();
    eventually("all are in flight", || world.daemon().paths().iter().map(Path::in_flight).sum::<u64>() == 16);
    let killed = world.replace(Signal::KILL);
    let log = world.daemon().log();
    assert!(log.contains("16 requests were in flight when an earlier daemon ended"), "{log}");
    // What is new comes after them, and is no more executed before the fence than they are.
    world.submit(19, OUT, 3);
    assert_eq!(world.finish(), (3..20).collect::<Vec<_>>(), "each once, and nothing that was answered before");
    assert!(killed.elapsed() >= FENCE, "answered after {:?}", killed.elapsed());
    world.assert_contents((0..20).map(|slot| if slot < 3 { 1 } else { 2 + slot / 19 }));
    let base = world.guest.frontend.get_vring_base(QUEUE).unwrap();
    assert_eq!(base, world.ring.position());
    let (ended, place) = world.daemon.take().unwrap().end(Signal::TERM);
    ended.cleanly(&place);
}

#[test]
fn daemons_killed_one_after_the_other_lose_nothing() {
    let mut world = World::start();
    for (round, after) in [0, 300, 1000, 3000].into_iter().enumerate() {
        world.delay(Duration::from_millis(1));
        let byte = round as u8 + 1;
        (0..20).for_each(|slot| world.submit(slot, OUT, byte));
        world.kick();
        // Any moment will do: none, some or all of them are answered.
        thread::sleep(Duration::from_micros(after));
        world.replace(Signal::KILL);
        assert_eq!(world.finish(), (0..20).collect::<Vec<_>>(), "round {round}");
        world.assert_contents(std::iter::repeat_n(byte, 20));
    }
}

/// The daemon is told to end while requests do not complete: what it gives up stays in the log.
/// As at the end of a migration: whoever has the guest next takes what was taken from the ring for executed.
#[test]
fn a_virtqueue_that_is_stopped_during_the_fence_is_drained_first() {
    let mut world = World::start();
    world.delay(Duration::from_secs(60));
    (0..16).for_each(|slot| world.submit(slot, OUT, 2));
    world.kick();
    eventually("all are in flight", || world.daemon().paths().iter().map(Path::in_flight).sum::<u64>() == 16);
    let killed = world.replace(Signal::KILL);
    let base = world.guest.frontend.get_vring_base(QUEUE).unwrap();
    assert!(killed.elapsed() >= FENCE, "answered after {:?}", killed.elapsed());
    assert_eq!(world.finish(), (0..16).collect::<Vec<_>>());
    assert_eq!(base, world.ring.position());
}

#[test]
fn what_an_ending_daemon_gives_up_is_finished_by_the_next() {
    let mut world = World::start();
    world.delay(Duration::from_secs(60));
    (0..4).for_each(|slot| world.submit(slot, OUT, 7));
    world.kick();
    eventually("all are in flight", || world.daemon().paths().iter().map(Path::in_flight).sum::<u64>() == 4);
    world.replace(Signal::TERM);
    assert_eq!(world.finish(), [0, 1, 2, 3]);
    world.assert_contents([7; 4].into_iter());
}
