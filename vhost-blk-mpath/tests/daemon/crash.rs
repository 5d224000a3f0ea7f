//! A daemon that is killed with requests in flight. The front-end keeps their in-flight log, and the next daemon
//! finishes them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use mpath_api::types::Path;
use mpath_config::DiskConfig;
use mpath_target::NamespaceConfig;
use rustix::process::Signal;
use vhost::VhostBackend;
use vhost::vhost_user::message::VhostUserInflight;
use virtio_guest::features::{FLUSH, PROTOCOL_FEATURES};

use crate::guest::{Guest, Ring};
use crate::live_disks::{config, refusal};
use crate::support::{Daemon, DaemonDirectory, NQN, Target, eventually};

const FEATURES: u64 = PROTOCOL_FEATURES | FLUSH;
const FLAGS: &str = "--policy round-robin --keep-alive-tmo 1 --reconnect-delay 1 --queues 4 --namespace";
const QUEUE: usize = 2;
/// 2 × the keep-alive timeout of 1 s, the test target's quiesce time (CQT), and the time in which sockets close.
const FENCE: Duration = Duration::from_millis(2600);
const IN: u32 = 0;
const OUT: u32 = 1;

/// A guest with one queue, and the state that its front-end keeps without a daemon.
struct World {
    target: Target,
    daemon: Option<Daemon>,
    guest: Guest,
    ring: Ring,
    inflight: (VhostUserInflight, File),
}

impl World {
    fn start() -> Self {
        let target = Target::with(2, |config| config.namespaces.push(NamespaceConfig::memory(32 << 20)));
        let daemon = Daemon::start(&target.addrs(), &format!("{FLAGS} 1"));
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

    /// Each slot has its own range of the disk.
    fn submit(&mut self, slot: u16, kind: u32, byte: u8) {
        self.ring.submit(slot, kind, u64::from(slot) * 8, &[byte; 4096]);
    }

    fn kick(&self) {
        self.ring.kick.write(1).unwrap();
    }

    /// Ends the daemon and starts another, to which the front-end connects. Returns when the first has ended.
    fn replace(&mut self, signal: Signal) -> Instant {
        let (ended, place) = self.end(signal);
        self.serve(place);
        self.come_back();
        ended
    }

    /// Ends the daemon. Returns when it has ended.
    fn end(&mut self, signal: Signal) -> (Instant, DaemonDirectory) {
        let (_, place) = self.daemon.take().unwrap().end(signal);
        let ended = Instant::now();
        self.delay(Duration::ZERO);
        (ended, place)
    }

    /// The command of a daemon with that namespace on the same sockets.
    fn command(&self, place: &DaemonDirectory, namespace: u32) -> Command {
        place.command(&self.target.addrs(), &format!("{FLAGS} {namespace}"))
    }

    fn serve(&mut self, place: DaemonDirectory) {
        let command = self.command(&place, 1);
        self.daemon = Some(place.spawn(command).ready());
    }

    /// The front-end connects again.
    fn come_back(&mut self) {
        self.guest.reconnect(UnixStream::connect(self.daemon().socket()).unwrap(), FEATURES);
        self.guest.set_inflight(&self.inflight);
        self.guest.restart(&self.ring, self.ring.position());
    }

    /// Checks that no daemon serves another namespace on the socket.
    fn assert_kept(&self, place: &DaemonDirectory) {
        let remedy = format!("remove {}", place.fence_record().display());
        let mut command = self.command(place, 2);
        command.args(["--wait-for", "any"]);
        let refused = place.refused(command);
        refused.says(2, &["this socket last served namespace 1 of", "whose guest may come back", &remedy]);
    }

    fn submit_all(&mut self, slots: u16, byte: u8) {
        (0..slots).for_each(|slot| self.submit(slot, OUT, byte));
        self.kick();
    }

    /// Waits for all requests and returns their slots in order.
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
fn the_next_daemon_finishes_requests_of_a_killed_one() {
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
    // A new request comes after them and waits for the fence too.
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
        // At a random moment: none, some or all of them are answered.
        thread::sleep(Duration::from_micros(after));
        world.replace(Signal::KILL);
        assert_eq!(world.finish(), (0..20).collect::<Vec<_>>(), "round {round}");
        world.assert_contents(std::iter::repeat_n(byte, 20));
    }
}

/// As at the end of a migration: the next daemon takes every request that has left the ring as executed. So a stopped
/// virtqueue has to be drained.
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
fn the_next_daemon_finishes_requests_given_up_at_the_end() {
    let mut world = World::start();
    world.delay(Duration::from_secs(60));
    (0..4).for_each(|slot| world.submit(slot, OUT, 7));
    world.kick();
    eventually("all are in flight", || world.daemon().paths().iter().map(Path::in_flight).sum::<u64>() == 4);
    world.replace(Signal::TERM);
    assert_eq!(world.finish(), [0, 1, 2, 3]);
    world.assert_contents([7; 4].into_iter());
}

/// Requests in flight belong to their namespace, even when no fence is left and no front-end has connected since.
#[test]
fn a_guest_that_may_come_back_finds_no_other_namespace() {
    let mut world = World::start();
    world.delay(Duration::from_secs(60));
    world.submit_all(4, 7);
    eventually("all are in flight", || world.daemon().paths().iter().map(Path::in_flight).sum::<u64>() == 4);
    let (_, place) = world.end(Signal::KILL);
    world.serve(place);
    eventually("the fence is over", || world.daemon().status().disks[0].held_ms.is_none());
    let on = |daemon: &Daemon, namespace: u32| DiskConfig {
        namespace: namespace.to_string().parse().ok(),
        queues: "4".parse().unwrap(),
        // A disk of this name is on the same socket.
        ..config(&daemon.place, "disk.sock", &world.target.addrs())
    };
    let daemon = world.daemon();
    daemon.api.remove_disk("disk0", false).unwrap();
    let (_, said) = refusal(daemon.api.add_disk(&on(daemon, 2)));
    assert!(said.contains("this socket last served namespace 1 of"), "{said}");
    let added = daemon.api.add_disk(&on(daemon, 1)).unwrap();
    assert_eq!(added[0].held_ms, None);
    let (_, place) = world.end(Signal::TERM);
    world.assert_kept(&place);
    world.serve(place);
    world.come_back();
    assert_eq!(world.finish(), [0, 1, 2, 3]);
    world.assert_contents([7; 4].into_iter());
    // After that, no requests are left that a guest could come back for.
    world.guest.hang_up();
    eventually("it has left", || !world.daemon().status().disks[0].connected);
    world.daemon().api.remove_disk("disk0", false).unwrap();
    let daemon = world.daemon();
    eventually("the record is removed", || !daemon.place.fence_record().exists());
    let on = DiskConfig { namespace: "2".parse().ok(), ..config(&daemon.place, "disk.sock", &world.target.addrs()) };
    daemon.api.add_disk(&on).unwrap();
}

/// The requests were not sent, so nothing is in doubt and no association is recorded. They are in the in-flight log
/// all the same.
#[test]
fn requests_without_a_path_at_the_end_run_on_no_other_namespace() {
    for signal in [Signal::TERM, Signal::KILL] {
        let mut world = World::start();
        (0..2).for_each(|listener| world.target.stop_listener(listener));
        eventually("the paths are lost", || world.daemon().status().disks[0].path_counts.usable == 0);
        world.submit_all(4, 7);
        eventually("they wait", || world.daemon().status().disks[0].queued == 4);
        let record = |place: &DaemonDirectory| fs::read_to_string(place.fence_record()).unwrap();
        eventually("no fence is left", || !record(&world.daemon().place).contains("fence_ms"));
        let (_, place) = world.end(signal);
        assert!(!record(&place).contains("fence_ms") && record(&place).contains(NQN), "{}", record(&place));
        (0..2).for_each(|listener| world.target.resume_listener(listener).unwrap());
        world.assert_kept(&place);
        world.serve(place);
        world.come_back();
        assert_eq!(world.finish(), [0, 1, 2, 3]);
        world.assert_contents([7; 4].into_iter());
        let (ended, place) = world.daemon.take().unwrap().end(Signal::TERM);
        ended.cleanly(&place);
    }
}

/// Such requests are in no log, and the guest does not know that the daemon has not read them.
#[test]
fn requests_left_in_the_ring_run_on_no_other_namespace() {
    let mut world = World::start();
    // There is no kick. The daemon reads a virtqueue when it starts and while requests are in flight.
    world.submit(0, OUT, 7);
    world.replace(Signal::TERM);
    eventually("it was looked into", || world.ring.reap() == [0]);
    // The I/O thread answers this after the turn in which it looked. Then nothing is in flight, so it looks no more.
    world.daemon().status();
    world.submit(1, OUT, 8);
    let (_, place) = world.end(Signal::TERM);
    world.assert_kept(&place);
    world.serve(place);
    world.come_back();
    assert_eq!(world.finish(), [1]);
    // A virtqueue stopped by its front-end has no requests left.
    world.submit(2, OUT, 9);
    world.guest.frontend.get_vring_base(QUEUE).unwrap();
    let (ended, place) = world.daemon.take().unwrap().end(Signal::TERM);
    ended.cleanly(&place);
}

/// The front-end connects just before the daemon ends, or is refused because of one virtqueue.
#[test]
fn a_guest_may_come_back_for_virtqueues_it_did_not_start() {
    let mut world = World::start();
    // The log of queue 0, written by hand: version 1, with its first entry in flight.
    let log = &world.inflight.1;
    log.write_all_at(&1_u16.to_ne_bytes(), 8).unwrap();
    log.write_all_at(&[1], 16).unwrap();
    world.replace(Signal::KILL);
    world.submit_all(1, 7);
    assert_eq!(world.finish(), [0]);
    let (_, place) = world.end(Signal::TERM);
    world.assert_kept(&place);
    // A guest that was reset starts with a new log.
    world.serve(place);
    world.guest.reconnect(UnixStream::connect(world.daemon().socket()).unwrap(), FEATURES);
    world.inflight = world.guest.get_inflight();
    world.guest.set_inflight(&world.inflight);
    world.guest.restart(&world.ring, world.ring.position());
    world.submit_all(1, 8);
    assert_eq!(world.finish(), [0]);
    let (ended, place) = world.daemon.take().unwrap().end(Signal::TERM);
    ended.cleanly(&place);
}
