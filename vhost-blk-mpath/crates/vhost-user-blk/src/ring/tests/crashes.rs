//! A device is killed after any of its stores to shared memory, those to the in-flight log included. The next device
//! must lose nothing and complete nothing twice. Requests in flight come first, in their order.

mod properties;

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use virtio_guest::features::{EVENT_IDX, FORMATS, INDIRECT_DESC, PACKED};
use virtio_guest::{Virtqueue, WRITE};

use super::driver::{AVAILABLE, BUFFERS, PAGE_BYTES, TestDriver};
use super::{Queue, UNTOUCHED, disk};
use crate::disk::VirtioDisk;
use crate::inflight::{InflightArea, InflightMemory, InflightShape};
use crate::request::{BlkStatus, Op};
use crate::testing::killed_after;

const IN: u32 = 0;
const GET_ID: u32 = 8;

/// The requests of a guest, and how the device runs.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    ring_size: u16,
    /// Start value of both ring indices.
    start: u16,
    features: u64,
    requests: u64,
    /// Completions per publication.
    batch: usize,
    /// Whether the driver continues while no device lives.
    driver_goes_on: bool,
    /// Whether a front-end copies the guest's memory meanwhile.
    migrating: bool,
    /// Whether the in-flight log has more entries than the ring, whose size the front-end passes.
    larger_log: bool,
}

impl Scenario {
    fn log_told(self) -> InflightShape {
        InflightShape { packed: self.features & PACKED != 0, num_queues: 1, queue_size: self.ring_size }
    }

    fn log(self) -> InflightShape {
        let larger = (4 * self.ring_size).next_power_of_two();
        self.log_told().enlarged_for(if self.larger_log { larger } else { self.ring_size })
    }

    /// The scenario with a log of the ring's size, and with a larger one.
    fn with_both_logs(self) -> [Self; 2] {
        [false, true].map(|larger_log| Self { larger_log, ..self })
    }
}

/// A guest and its devices. Requests are numbered as they become available. Request N is for sector N.
struct World {
    scenario: Scenario,
    disk: Arc<VirtioDisk>,
    driver: TestDriver,
    log: File,
    free: Vec<u16>,
    /// Free descriptors of the ring, and those that each head takes up.
    room: u16,
    descriptors: Vec<u16>,
    /// The request of each head.
    held: Vec<Option<u64>>,
    submitted: u64,
    used: BTreeSet<u64>,
    executed: BTreeSet<u64>,
    /// The front-end's copy of guest memory.
    copy: Vec<u8>,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let mut driver = TestDriver::new(scenario.ring_size, scenario.features | INDIRECT_DESC);
        driver.start_at(scenario.start);
        if scenario.migrating {
            driver.migrate();
        }
        let mut world = Self {
            copy: Vec::new(),
            scenario,
            disk: disk(),
            driver,
            log: scenario.log().create().unwrap(),
            free: (0..scenario.ring_size).rev().collect(),
            room: scenario.ring_size,
            descriptors: vec![0; scenario.ring_size.into()],
            held: vec![None; scenario.ring_size.into()],
            submitted: 0,
            used: BTreeSet::new(),
            executed: BTreeSet::new(),
        };
        if scenario.migrating {
            // Everything is available from the start. The front-end learns of the driver's writes in another way.
            world.submit();
            assert_eq!(world.submitted, scenario.requests);
            world.copy = world.driver.snapshot();
        }
        world
    }

    fn area(&self) -> InflightArea {
        let (told, log) = (self.scenario.log_told(), self.scenario.log());
        let file = self.log.try_clone().unwrap();
        InflightMemory::map(told, log.queue_size, file, 0, log.bytes()).unwrap().area(0).unwrap()
    }

    fn queue(&self) -> Queue {
        self.driver.queue_with(&self.disk, Some(self.area())).unwrap()
    }

    /// Requests that are answered without the runner come in between.
    fn kind(request: u64) -> u32 {
        if request % 4 == 3 { GET_ID } else { IN }
    }

    /// Descriptors of the ring for a request. In a packed ring some chains have more than one.
    fn descriptors(&self, request: u64) -> u16 {
        if self.driver.is_packed() && request % 3 == 1 { 3.min(self.scenario.ring_size) } else { 1 }
    }

    /// Makes requests available while there is room.
    fn submit(&mut self) {
        while self.submitted < self.scenario.requests
            && self.room >= self.descriptors(self.submitted)
            && let Some(head) = self.free.pop()
        {
            let descriptors = self.descriptors(self.submitted);
            let at = BUFFERS + 0x1000 * u64::from(head);
            self.driver.header(at, Self::kind(self.submitted), self.submitted);
            self.driver.write(at + 0x20, &[UNTOUCHED]);
            let chain = [(at, 16, 0), (at + 0x200, 512, WRITE), (at + 0x20, 1, WRITE)];
            if descriptors == 3 {
                self.driver.chain(head, &chain);
            } else {
                self.driver.indirect_chain(head, at + 0x40, &chain);
            }
            self.room -= descriptors;
            self.descriptors[usize::from(head)] = descriptors;
            self.held[usize::from(head)] = Some(self.submitted);
            self.submitted += 1;
            self.driver.make_available(head);
        }
    }

    /// Takes used chains back.
    fn reap(&mut self) {
        for (head, _) in self.driver.used() {
            let request = self.held[head as usize].take().expect("a chain is used once");
            assert!(Self::kind(request) == GET_ID || self.executed.contains(&request), "{request} was not executed");
            let status = self.driver.read(BUFFERS + 0x1000 * u64::from(head) + 0x20, 1);
            assert_eq!(status, [BlkStatus::Ok as u8], "{request}");
            assert!(self.used.insert(request), "{request} is answered once");
            self.room += self.descriptors[head as usize];
            self.free.push(head as u16);
        }
    }

    /// One life of the device, until all requests are done.
    fn live(&mut self) {
        let mut queue = self.queue();
        let (mut pending, mut last, mut turn) = (Vec::new(), None, 0);
        for _ in 0..1000 {
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
                queue.complete(request, BlkStatus::Ok);
            }
            queue.publish();
            let more = queue.enable_notifications();
            if !more && pending.is_empty() && self.submitted == self.scenario.requests {
                return;
            }
        }
        panic!("the device waits for ever");
    }

    /// What happens while no device lives: the front-end copies marked pages, and perhaps the driver continues.
    fn meanwhile(&mut self) {
        self.copy_marked();
        if self.scenario.driver_goes_on {
            self.reap();
            self.submit();
        }
    }

    /// Copies the marked pages.
    fn copy_marked(&mut self) {
        if !self.scenario.migrating {
            return;
        }
        let memory = self.driver.snapshot();
        for page in self.driver.take_marks() {
            let page = (page * PAGE_BYTES) as usize..((page + 1) * PAGE_BYTES) as usize;
            self.copy[page.clone()].copy_from_slice(&memory[page]);
        }
    }

    /// Takes and completes all requests, without checks.
    fn complete_all(&self, mut queue: Queue) {
        for _ in 0..20 {
            let mut requests = Vec::new();
            while let Ok(Some(request)) = queue.pop() {
                requests.push(request);
            }
            assert!(queue.outstanding() <= self.scenario.ring_size);
            for request in requests {
                queue.complete(request, BlkStatus::Ok);
            }
            queue.publish();
        }
        assert_eq!(queue.outstanding(), 0);
    }

    fn assert_done(&mut self) {
        self.reap();
        assert_eq!(self.used.len() as u64, self.scenario.requests, "none is lost");
        self.copy_marked();
        if self.scenario.migrating {
            let mut not_copied = self.driver.changed_since(&self.copy);
            not_copied.retain(|&page| page != AVAILABLE / PAGE_BYTES);
            assert_eq!(not_copied, [0_u64; 0], "all that the device wrote was marked");
        }
        let mut next = self.queue();
        assert_eq!((next.to_resubmit(), next.position()), (0, self.driver.position()), "nothing is left");
        assert!(next.pop().unwrap().is_none());
        let mut entries = [0; 2];
        // The number of entries is at the same place in both formats.
        self.log.read_exact_at(&mut entries, 10).unwrap();
        assert_eq!(u16::from_ne_bytes(entries), self.scenario.log().queue_size);
        self.driver.assert_guards();
    }
}

/// Kills the first device after each of its stores, and lets another one continue.
fn kill_once(scenario: Scenario) {
    for stores in 0.. {
        let mut world = World::new(scenario);
        let survived = killed_after(stores, || world.live()).is_some();
        if !survived {
            // The batches of the next device have another size than the one that may be half published.
            world.scenario.batch = if scenario.batch == 1 { 2 } else { 1 };
            world.meanwhile();
            world.live();
        }
        world.assert_done();
        if survived {
            assert!(stores as u64 > scenario.requests * 6, "{stores} stores are not all there are");
            return;
        }
    }
}

fn scenarios(batch: usize) -> [Scenario; 2] {
    let scenario = Scenario {
        ring_size: 4,
        start: 0,
        features: 0,
        requests: 14,
        batch,
        driver_goes_on: false,
        migrating: false,
        larger_log: false,
    };
    FORMATS.map(|features| Scenario { features, ..scenario })
}

#[test]
fn one_request_alone() {
    for scenario in scenarios(1).into_iter().flat_map(Scenario::with_both_logs) {
        kill_once(Scenario { requests: 1, ring_size: 1, ..scenario });
    }
}

#[test]
fn requests_published_one_by_one() {
    scenarios(1).into_iter().flat_map(Scenario::with_both_logs).for_each(kill_once);
}

#[test]
fn batches() {
    for batch in [2, 3, usize::MAX] {
        scenarios(batch).into_iter().flat_map(Scenario::with_both_logs).for_each(kill_once);
    }
    for scenario in scenarios(usize::MAX) {
        kill_once(Scenario { ring_size: 16, requests: 40, ..scenario });
    }
}

#[test]
fn the_index_wraps() {
    for scenario in [1, 3, usize::MAX].into_iter().flat_map(scenarios) {
        for before in [1, 2, 5, 9] {
            kill_once(Scenario { start: 0_u16.wrapping_sub(before), ..scenario });
        }
    }
}

/// The wrap counter flips where no power of two ends, and batches fill the ring.
#[test]
fn a_packed_ring_of_any_size() {
    for ring_size in [3, 5, 7] {
        for batch in [1, 2, usize::MAX] {
            let [_, packed] = scenarios(batch);
            kill_once(Scenario { ring_size, start: 1, requests: 20, ..packed });
        }
    }
    // A larger log is no multiple of the ring.
    let [_, packed] = scenarios(2);
    kill_once(Scenario { ring_size: 3, start: 1, requests: 20, larger_log: true, ..packed });
}

/// Between two devices the driver takes used chains and makes others available in their place.
#[test]
fn a_driver_that_continues_without_a_device() {
    for scenario in [1, 2, 3, usize::MAX].into_iter().flat_map(scenarios) {
        for start in [0, u16::MAX - 2] {
            kill_once(Scenario { driver_goes_on: true, start, ..scenario });
        }
    }
    for scenario in scenarios(3) {
        kill_once(Scenario { driver_goes_on: true, larger_log: true, ..scenario });
    }
}

/// The next device marks writes that the killed one could not mark.
#[test]
fn all_that_is_written_is_marked_for_a_migration() {
    for scenario in [1, usize::MAX].into_iter().flat_map(scenarios) {
        let scenario = Scenario { ring_size: 8, requests: 4, migrating: true, ..scenario };
        kill_once(scenario);
        kill_once(Scenario { features: scenario.features | EVENT_IDX, ..scenario });
        // A ring of several pages: the entries are in other pages than the index, which the next device need not write.
        let several_pages = Scenario { ring_size: 1024, start: 600, requests: 1, ..scenario };
        kill_once(Scenario { features: scenario.features | EVENT_IDX, ..several_pages });
    }
}

#[test]
fn with_event_idx() {
    for scenario in scenarios(2) {
        kill_once(Scenario { features: scenario.features | EVENT_IDX, ..scenario });
    }
}

/// The second device is killed after each of its own stores, also while it finishes the first one's batch.
#[test]
fn the_next_device_is_killed_too() {
    let larger_logs = scenarios(usize::MAX).map(|scenario| Scenario { larger_log: true, ..scenario });
    for scenario in [1, usize::MAX].into_iter().flat_map(scenarios).chain(larger_logs) {
        let ring_size = if scenario.features & PACKED != 0 { 3 } else { 2 };
        let scenario = Scenario { ring_size, requests: 5, start: u16::MAX - 1, ..scenario };
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
