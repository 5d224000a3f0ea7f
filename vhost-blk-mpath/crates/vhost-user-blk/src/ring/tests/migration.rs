//! What a queue marks in the dirty log, and when.

use std::cell::RefCell;
use std::fs::File;
use std::rc::Rc;

use virtio_guest::features::{EVENT_IDX, FORMATS, PACKED};
use virtio_guest::{Virtqueue, WRITE};

use super::driver::{BUFFERS, DESCRIPTORS, MEMORY_BYTES, PAGE_BYTES, TestDriver, USED};
use super::{BlkStatus, DATA, HEADER, Queue, READ, SIZE, STATUS, UNTOUCHED, disk, driver, pop};
use crate::inflight::{InflightMemory, InflightShape};
use crate::request::Op;
use crate::testing::{killed_after, watched};

fn migrating(features: u64) -> TestDriver {
    let mut driver = driver(features);
    driver.migrate();
    driver
}

fn page(address: u64) -> u64 {
    address / PAGE_BYTES
}

/// Address of the first used entry.
fn given_back(format: u64) -> u64 {
    if format == PACKED { DESCRIPTORS } else { USED }
}

/// The pages of these addresses, sorted.
fn pages<const N: usize>(addresses: [u64; N]) -> [u64; N] {
    let mut pages = addresses.map(page);
    pages.sort_unstable();
    pages
}

#[test]
fn without_a_migration_there_is_no_log() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &READ);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        driver.migrate();
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        let _ = queue.enable_notifications();
        assert!(driver.marked().is_empty());
    }
}

/// The front-end may take a bit and copy the page at any moment. Before the write it would copy the old data.
#[test]
fn nothing_is_marked_before_it_is_written() {
    // The entry is in another page of the used ring than the index.
    let mut driver = TestDriver::new(1024, 0);
    driver.start_at(600);
    driver.header(HEADER, 0, 8);
    driver.migrate();
    let mut queue = driver.queue(&disk());
    driver.chain(0, &READ);
    driver.make_available(0);
    let request = pop(&mut queue);
    request.segments.copy_from(0, &[7; 4096]);
    assert!(driver.marked().is_empty());
    queue.complete(request, BlkStatus::Ok);
    assert_eq!(driver.marked(), [page(USED) + 1, page(DATA), page(STATUS)]);
    queue.publish();
    assert_eq!(driver.marked(), [page(USED), page(USED) + 1, page(DATA), page(STATUS)]);
}

/// Each used descriptor is in a page of its own. The flags that show them are written last.
#[test]
fn used_descriptors_are_marked_when_they_are_published() {
    let mut driver = TestDriver::new(1024, PACKED);
    driver.start_at(255);
    driver.header(HEADER, 0, 8);
    driver.migrate();
    let mut queue = driver.queue(&disk());
    for id in 0..2 {
        driver.chain(id, &READ);
        driver.make_available(id);
    }
    for _ in 0..2 {
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::Ok);
    }
    assert_eq!(driver.marked(), pages([DATA, STATUS]));
    queue.publish();
    assert_eq!(driver.marked(), pages([DESCRIPTORS, DESCRIPTORS + PAGE_BYTES, DATA, STATUS]));
}

/// Part of the data may have arrived before a read failed.
#[test]
fn a_failed_read_is_marked_like_a_successful_one() {
    for format in FORMATS {
        let mut driver = migrating(format);
        let across = MEMORY_BYTES / 2 - 2048;
        driver.chain(0, &[(HEADER, 16, 0), (across, 4096, WRITE), (STATUS, 1, WRITE)]);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::IoErr);
        queue.publish();
        assert_eq!(driver.marked(), pages([given_back(format), STATUS, across, across + PAGE_BYTES]));
    }
}

#[test]
fn a_malformed_chain_has_its_status_marked() {
    for format in FORMATS {
        let mut driver = migrating(format);
        driver.chain(0, &[(HEADER, 16, 0), (MEMORY_BYTES, 4096, WRITE), (STATUS, 1, WRITE)]);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        assert!(queue.pop().unwrap().is_none());
        queue.publish();
        assert_eq!(driver.read(STATUS, 1), [1]);
        assert_eq!(driver.marked(), pages([given_back(format), STATUS]));
    }
}

#[test]
fn writes_to_the_used_ring_are_marked() {
    let split = [(0, USED), (EVENT_IDX, USED + 4 + 8 * u64::from(SIZE))];
    for (features, wish) in split.into_iter().chain([(PACKED, USED), (PACKED | EVENT_IDX, USED)]) {
        let driver = migrating(features);
        let before = driver.snapshot();
        let mut queue = driver.queue(&disk());
        queue.disable_notifications();
        let by_flag = features & EVENT_IDX == 0;
        assert_eq!(driver.take_marks(), if by_flag { vec![page(wish)] } else { vec![] });
        assert!(!queue.enable_notifications());
        assert_eq!(driver.marked(), [page(wish)]);
        assert!(driver.changed_since(&before).iter().all(|changed| *changed == page(wish)));
    }
}

/// Address, bytes, flags.
type Buffer = (u64, u32, u16);

/// A front-end that copies each page as soon as it is marked, and a guest with all requests available.
struct Migration {
    driver: RefCell<TestDriver>,
    shape: InflightShape,
    inflight: File,
    copy: RefCell<Vec<u8>>,
}

impl Migration {
    const REQUESTS: usize = 5;

    fn begin(features: u64) -> Rc<Self> {
        // Entries are in another page of the ring than the index. Used descriptors are in two pages.
        let (size, start) = if features & PACKED == 0 { (1024, 600) } else { (264, 253) };
        let mut driver = TestDriver::new(size, features);
        driver.start_at(start);
        let (get_id, unmapped) = (8, MEMORY_BYTES);
        // Each write is in a page of its own, except the status of the fourth request, whose data are in two pages.
        let requests: [(u32, &[Buffer]); Self::REQUESTS] = [
            (0, &[(0x1000, 512, WRITE), (0x2000, 512, WRITE), (0x3000, 1, WRITE)]),
            (get_id, &[(0x1000, 20, WRITE), (0x2000, 1, WRITE)]),
            (1, &[(0x1000, 512, 0), (0x2000, 1, WRITE)]),
            (0, &[(0x1e00, 1024, WRITE), (0x1800, 1, WRITE)]),
            (0, &[(unmapped, 512, WRITE), (0x1000, 1, WRITE)]),
        ];
        for (request, (kind, buffers)) in (0_u16..).zip(requests) {
            let header = BUFFERS + 0x4000 * u64::from(request);
            let head = 8 * request;
            let place =
                |&(offset, bytes, flags)| (if offset == unmapped { offset } else { header + offset }, bytes, flags);
            let chain: Vec<_> = std::iter::once((header, 16, 0)).chain(buffers.iter().map(place)).collect();
            for &(address, bytes, flags) in &chain {
                if flags == WRITE && address < MEMORY_BYTES {
                    driver.write(address, &vec![UNTOUCHED; bytes as usize]);
                }
            }
            driver.header(header, kind, 8);
            driver.chain(head, &chain);
            driver.make_available(head);
        }
        driver.migrate();
        let shape = InflightShape { packed: driver.is_packed(), num_queues: 1, queue_size: driver.ring.layout.size };
        let copy = RefCell::new(driver.snapshot());
        let inflight = shape.create().unwrap();
        Rc::new(Self { driver: RefCell::new(driver), shape, inflight, copy })
    }

    fn queue(&self) -> Queue {
        let inflight = self.inflight.try_clone().unwrap();
        let InflightShape { queue_size, .. } = self.shape;
        let inflight = InflightMemory::map(self.shape, queue_size, inflight, 0, self.shape.bytes()).unwrap();
        self.driver.borrow().queue_with(&disk(), Some(inflight.area(0).unwrap())).unwrap()
    }

    fn copy_marked(&self) {
        let (driver, mut copy) = (self.driver.borrow(), self.copy.borrow_mut());
        for page in driver.take_marks() {
            let memory = driver.read(page * PAGE_BYTES, PAGE_BYTES as usize);
            copy[(page * PAGE_BYTES) as usize..][..memory.len()].copy_from_slice(&memory);
        }
    }

    /// One life of the device, with two publications.
    fn live(&self, mut queue: Queue) {
        queue.disable_notifications();
        let requests: Vec<_> = std::iter::from_fn(|| queue.pop().unwrap()).collect();
        for (i, request) in requests.into_iter().enumerate() {
            self.copy_marked();
            if request.op == Op::Read {
                request.segments.copy_from(0, &vec![7; request.bytes as usize]);
            }
            queue.complete(request, BlkStatus::Ok);
            if i == 0 {
                queue.publish();
            }
        }
        queue.publish();
        assert!(!queue.enable_notifications());
    }
}

/// This holds for a device that lives, and for a device that is killed after any store, with its successor.
#[test]
fn a_front_end_that_copies_at_any_moment_misses_nothing() {
    for features in FORMATS.into_iter().flat_map(|format| [format, format | EVENT_IDX]) {
        for stores in 0.. {
            let migration = Migration::begin(features);
            let (front_end, queue) = (Rc::clone(&migration), migration.queue());
            let survived = watched(
                move || front_end.copy_marked(),
                || {
                    let survived = killed_after(stores, || migration.live(queue)).is_some();
                    if !survived {
                        migration.live(migration.queue());
                    }
                    survived
                },
            );
            migration.copy_marked();
            let mut driver = migration.driver.borrow_mut();
            assert_eq!(driver.changed_since(&migration.copy.borrow()), [0_u64; 0], "{features:#x}, {stores} stores");
            assert_eq!(driver.used().len(), Migration::REQUESTS);
            if survived {
                assert!(stores > 5 * Migration::REQUESTS, "{stores} stores are not all there are");
                break;
            }
        }
    }
}
