//! A device that is killed after any of its stores to shared memory, the in-flight log's included, and one that follows it:
//! nothing is lost, nothing is completed twice, and what was in flight comes first and in its order.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use proptest::prelude::*;

use super::driver::{BUFFERS, EVENT_IDX, INDIRECT_DESC, TestDriver, WRITE};
use super::{Queue, UNTOUCHED, disk};
use crate::crash::killed_after;
use crate::disk::Disk;
use crate::inflight::{InflightMemory, InflightShape};
use crate::request::Op;
use crate::ring::BlkStatus;

const IN: u32 = 0;
const GET_ID: u32 = 8;

/// What a guest asks for, and how the device goes about it.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    ring_size: u16,
    /// Where both ring indices start.
    start: u16,
    features: u64,
    requests: u64,
    /// Completions that are published together.
    batch: usize,
}

/// A guest and the device's life in it. Requests are numbered as they become available; a request for sector N is number N.
struct World {
    scenario: Scenario,
    disk: Arc<Disk>,
    driver: TestDriver,
    log: File,
    free: Vec<u16>,
    /// The request that each head is used for.
    held: Vec<Option<u64>>,
    submitted: u64,
    used: BTreeSet<u64>,
    executed: BTreeSet<u64>,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let mut driver = TestDriver::new(scenario.ring_size, scenario.features | INDIRECT_DESC);
        driver.start_at(scenario.start);
        let shape = InflightShape { num_queues: 1, queue_size: scenario.ring_size };
        Self {
            scenario,
            disk: disk(),
            driver,
            log: shape.create().unwrap(),
            free: (0..scenario.ring_size).collect(),
            held: vec![None; scenario.ring_size.into()],
            submitted: 0,
            used: BTreeSet::new(),
            executed: BTreeSet::new(),
        }
    }

    fn queue(&self) -> Queue {
        let shape = InflightShape { num_queues: 1, queue_size: self.scenario.ring_size };
        let memory = InflightMemory::map(shape, self.log.try_clone().unwrap(), 0, shape.bytes()).unwrap();
        self.driver.queue_with(&self.disk, Some(memory.area(0).unwrap())).unwrap()
    }

    /// What is answered without the sink comes in between.
    fn kind(request: u64) -> u32 {
        if request % 4 == 3 { GET_ID } else { IN }
    }

    /// Makes available what there is room for.
    fn submit(&mut self) {
        while self.submitted < self.scenario.requests
            && let Some(head) = self.free.pop()
        {
            let at = BUFFERS + 0x1000 * u64::from(head);
            self.driver.header(at, Self::kind(self.submitted), self.submitted);
            self.driver.write(at + 0x20, &[UNTOUCHED]);
            self.driver.indirect_chain(
                head,
                at + 0x40,
                &[(at, 16, 0), (at + 0x200, 512, WRITE), (at + 0x20, 1, WRITE)],
            );
            self.held[usize::from(head)] = Some(self.submitted);
            self.submitted += 1;
            self.driver.make_available(head);
        }
    }

    /// Takes back what was used.
    fn reap(&mut self) {
        for (head, _) in self.driver.used() {
            let request = self.held[head as usize].take().expect("a chain is used once");
            assert!(Self::kind(request) == GET_ID || self.executed.contains(&request), "{request} was not executed");
            let status = self.driver.read(BUFFERS + 0x1000 * u64::from(head) + 0x20, 1);
            assert_eq!(status, [BlkStatus::Ok as u8], "{request}");
            assert!(self.used.insert(request), "{request} is answered once");
            self.free.push(head as u16);
        }
    }

    /// One life of the device: until all is done.
    fn live(&mut self) {
        let mut queue = self.queue();
        let (mut pending, mut last, mut turn) = (Vec::new(), None, 0);
        loop {
            self.reap();
            self.submit();
            queue.disable_notifications();
            while let Some(request) = queue.pop().unwrap() {
                let number = request.sector;
                assert!(
                    Some(number) > last,
                    "{number} after {last:?}: the oldest first, and what was in flight before all"
                );
                assert!(!self.used.contains(&number), "{number} was answered by a device before this one");
                assert_eq!(request.op, Op::Read);
                last = Some(number);
                pending.push(request);
            }
            for _ in 0..self.scenario.batch.min(pending.len()) {
                turn += 1;
                let request = pending.swap_remove(turn * 7 % pending.len());
                self.executed.insert(request.sector);
                queue.complete(request.token, BlkStatus::Ok);
            }
            queue.publish();
            let more = queue.enable_notifications();
            if !more && pending.is_empty() && self.submitted == self.scenario.requests {
                return;
            }
        }
    }

    fn assert_done(&mut self) {
        self.reap();
        assert_eq!(self.used.len() as u64, self.scenario.requests, "none is lost");
        let mut next = self.queue();
        assert_eq!((next.to_resubmit(), next.next_available()), (0, self.driver.available_idx()), "nothing is left");
        assert!(next.pop().unwrap().is_none());
        self.driver.assert_guards();
    }
}

/// Kills the first device after every store there is, and has another one go on.
fn kill_once(scenario: Scenario) {
    for stores in 0.. {
        let mut world = World::new(scenario);
        let survived = killed_after(stores, || world.live()).is_some();
        if !survived {
            world.live();
        }
        world.assert_done();
        if survived {
            assert!(stores as u64 > scenario.requests * 6, "{stores} stores are not all there are");
            return;
        }
    }
}

fn scenario(batch: usize) -> Scenario {
    Scenario { ring_size: 4, start: 0, features: 0, requests: 14, batch }
}

#[test]
fn one_request_alone() {
    kill_once(Scenario { requests: 1, ring_size: 1, ..scenario(1) });
}

#[test]
fn requests_published_one_by_one() {
    kill_once(scenario(1));
}

#[test]
fn batches() {
    kill_once(scenario(2));
    kill_once(scenario(3));
    kill_once(scenario(usize::MAX));
    kill_once(Scenario { ring_size: 16, requests: 40, ..scenario(usize::MAX) });
}

#[test]
fn the_index_wraps() {
    for batch in [1, 3, usize::MAX] {
        for before in [1, 2, 5, 9] {
            kill_once(Scenario { start: 0_u16.wrapping_sub(before), ..scenario(batch) });
        }
    }
}

#[test]
fn with_event_idx() {
    kill_once(Scenario { features: EVENT_IDX, ..scenario(2) });
}

/// The second device is killed after every store of its own, be it at the end of the first one's batch or later.
#[test]
fn the_device_that_follows_is_killed_too() {
    for batch in [1, usize::MAX] {
        let scenario = Scenario { ring_size: 2, requests: 5, start: u16::MAX - 1, ..scenario(batch) };
        for first in 0.. {
            let mut survived_first = false;
            for second in 0.. {
                let mut world = World::new(scenario);
                survived_first = killed_after(first, || world.live()).is_some();
                if survived_first {
                    break;
                }
                let survived = killed_after(second, || world.live()).is_some();
                if !survived {
                    world.live();
                }
                world.assert_done();
                if survived {
                    break;
                }
            }
            if survived_first {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_number_of_devices_is_killed(
        size in 0_u32..5,
        start: u16,
        batch in 1_usize..9,
        event_idx: bool,
        kills in prop::collection::vec(0_usize..60, 0..40),
    ) {
        let features = if event_idx { EVENT_IDX } else { 0 };
        let mut world = World::new(Scenario { ring_size: 1 << size, start, features, requests: 40, batch });
        for stores in kills {
            if killed_after(stores, || world.live()).is_some() {
                break;
            }
        }
        world.live();
        world.assert_done();
    }

    /// Whatever a front-end wrote into the log: an error, or a queue that gives out at most what it can hold; no panic, no loop.
    #[test]
    fn any_log_is_survived(
        used: u16,
        size in 0_u32..4,
        words in prop::collection::vec(prop_oneof![2 => 0_u16..9, 1 => any::<u16>()], 8 + 8 * 8),
        version in prop_oneof![8 => Just(1_u16), 1 => any::<u16>()],
        behind in prop_oneof![3 => 0_u16..9, 1 => any::<u16>()],
    ) {
        use std::os::unix::fs::FileExt;
        let scenario = Scenario { ring_size: 1 << size, start: used, features: 0, requests: 20, batch: 3 };
        let mut world = World::new(Scenario { ring_size: 8, ..scenario });
        world.scenario.ring_size = 8;
        let mut words = words;
        // Features, mostly those that are known; then what belongs to the ring, more or less.
        if version == 1 {
            words[..4].fill(0);
        }
        words[4] = version;
        words[7] = used.wrapping_sub(behind);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        world.log.write_all_at(&bytes, 0).unwrap();
        let shape = InflightShape { num_queues: 1, queue_size: 8 };
        let memory = InflightMemory::map(shape, world.log.try_clone().unwrap(), 0, shape.bytes()).unwrap();
        if let Ok(mut queue) = world.driver.queue_with(&world.disk, Some(memory.area(0).unwrap())) {
            world.submit();
            for _ in 0..20 {
                let mut requests = Vec::new();
                while let Ok(Some(request)) = queue.pop() {
                    requests.push(request);
                }
                prop_assert!(queue.outstanding() <= 8);
                for request in requests {
                    queue.complete(request.token, BlkStatus::Ok);
                }
                queue.publish();
            }
            prop_assert_eq!(queue.outstanding(), 0);
        }
        world.driver.assert_guards();
    }
}
