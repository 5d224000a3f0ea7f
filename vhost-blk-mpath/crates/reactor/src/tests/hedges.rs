//! An I/O thread reads from one controller and hedges over another.

use monotonic::{Duration, Instant};
use mpath_core::{GroupConfig, GroupStats, Hedging, MAX_HEDGE_BYTES, PathId};

use crate::IoThreadHandle;
use crate::testing::{self, Controller, FLOW, Guest, eventually, start_queue, stop_queue, two_paths};

const BYTES: usize = MAX_HEDGE_BYTES as usize;
/// Reads before anything is hedged.
const LEARNED: usize = 100;

struct Rig {
    thread: IoThreadHandle,
    /// The first path is the preferred one.
    controllers: [Controller; 2],
    guest: Guest,
}

impl Rig {
    /// A thread that has learned the time of a read and hedges a slower one. One read is in flight on both paths. Also
    /// returns the CIDs of both copies. No path becomes suspect during the test.
    fn hedging() -> (Self, [u16; 2]) {
        let hedging = Hedging { quantile_permille: 999, budget_permille: 50 };
        let config =
            GroupConfig { suspect_timeout: Duration::from_secs(60), hedging: Some(hedging), ..GroupConfig::default() };
        let (thread, controllers) = two_paths(&config);
        let guest = Guest::new();
        start_queue(&thread, FLOW, guest.queue()).unwrap();
        let mut rig = Self { thread, controllers, guest };
        for _ in 0..LEARNED {
            rig.read();
            let cid = rig.controllers[0].command();
            rig.controllers[0].send(&Controller::answer(cid, 0, BYTES));
            rig.completes();
        }
        // The latency is evaluated after a tenth of a second.
        std::thread::sleep(Duration::from_millis(150).into());
        rig.read();
        let [first, second] = &mut rig.controllers;
        let cids = [first.command(), second.command()];
        (rig, cids)
    }

    fn read(&mut self) {
        self.guest.read(0, BYTES);
        self.guest.kick();
    }

    fn completes(&mut self) {
        testing::completes(&mut self.guest);
    }

    fn reads(&self, byte: u8) -> bool {
        self.guest.memory(BYTES).iter().all(|read| *read == byte)
    }

    fn stats(&self) -> GroupStats {
        testing::stats(&self.thread)
    }

    /// Checks that the queue pair of `path` has taken every byte: it answers another read.
    fn has_taken_all(&mut self, path: usize) {
        let other = 1 - path;
        self.thread.set_draining(PathId(other as u16), true);
        self.thread.set_hedging(None);
        self.read();
        let cid = self.controllers[path].command();
        self.controllers[path].send(&Controller::answer(cid, 0xc3, BYTES));
        self.completes();
        assert!(self.reads(0xc3));
    }

    fn end(self) {
        self.thread.begin_shutdown();
        self.thread.join();
    }
}

/// Before the data, in a header, in buffered data, in data for a direct receive, before the last data byte, and before
/// the completion.
const STOPS: [usize; 9] = [0, 5, 24, 1000, 100_000, 200_000, 24 + BYTES - 1, 24 + BYTES, 24 + BYTES + 23];

#[test]
fn the_faster_answer_reaches_the_guest_and_the_slower_one_is_dropped() {
    for stop in STOPS {
        let (mut rig, [slow, fast]) = Rig::hedging();
        let answer = Controller::answer(slow, 0xa1, BYTES);
        let (first, rest) = answer.split_at(stop);
        rig.controllers[0].send(first);
        rig.controllers[1].send(&Controller::answer(fast, 0xb2, BYTES));
        rig.completes();
        assert!(rig.reads(0xb2), "after {stop}");
        let seen = rig.stats();
        assert_eq!((seen.paths[1].hedges, seen.paths[1].hedges_won), (1, 1));
        assert_eq!(seen.paths[0].classes[0].in_flight, 0);
        rig.controllers[0].send(rest);
        rig.has_taken_all(0);
        rig.end();
    }
}

#[test]
fn a_late_hedge_writes_nothing_at_any_point_of_its_answer() {
    for stop in STOPS {
        let (mut rig, [slow, fast]) = Rig::hedging();
        let answer = Controller::answer(fast, 0xb2, BYTES);
        let (first, rest) = answer.split_at(stop);
        rig.controllers[1].send(first);
        rig.controllers[0].send(&Controller::answer(slow, 0xa1, BYTES));
        rig.completes();
        assert!(rig.reads(0xa1), "after {stop}");
        rig.controllers[1].send(rest);
        rig.has_taken_all(1);
        assert_eq!(rig.stats().paths[1].hedges_won, 0);
        rig.end();
    }
}

#[test]
fn a_hedge_ends_with_its_path_and_the_read_continues() {
    for stop in [0, 100_000] {
        let (mut rig, [slow, fast]) = Rig::hedging();
        rig.controllers[1].send(&Controller::answer(fast, 0xb2, BYTES)[..stop]);
        drop(rig.controllers[1].stream.shutdown(std::net::Shutdown::Both));
        eventually("the path is lost", || rig.stats().paths[1].ana.is_none());
        rig.controllers[0].send(&Controller::answer(slow, 0xa1, BYTES));
        rig.completes();
        assert!(rig.reads(0xa1));
        rig.end();
    }
}

#[test]
fn a_read_of_a_lost_path_is_sent_again_and_its_hedge_is_dropped() {
    for stop in [0, 100_000] {
        let (mut rig, [slow, fast]) = Rig::hedging();
        rig.controllers[0].send(&Controller::answer(slow, 0xa1, BYTES)[..stop]);
        drop(rig.controllers[0].stream.shutdown(std::net::Shutdown::Both));
        let again = rig.controllers[1].command();
        rig.controllers[1].send(&Controller::answer(fast, 0xb2, BYTES));
        rig.controllers[1].send(&Controller::answer(again, 0xd4, BYTES));
        rig.completes();
        assert!(rig.reads(0xd4));
        rig.end();
    }
}

#[test]
fn shutdown_does_not_wait_for_hedges() {
    for stop in [0, 100_000] {
        let (mut rig, [slow, fast]) = Rig::hedging();
        rig.controllers[0].send(&Controller::answer(slow, 0xa1, BYTES)[..stop]);
        rig.controllers[1].send(&Controller::answer(fast, 0xb2, BYTES)[..stop]);
        let start = Instant::now();
        rig.thread.begin_shutdown();
        if let Some(queue) = stop_queue(&rig.thread) {
            assert_eq!(queue.outstanding(), 1, "given up");
        }
        rig.thread.join();
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(rig.guest.results().is_empty());
    }
}
