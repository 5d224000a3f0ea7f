//! Single behaviours of a ring, in both formats where they share them.

mod broken;
mod crashes;
mod driver;
mod faults;
mod layout;
mod malformed;
mod migration;
mod notifications;
mod packed;
mod properties;
mod requests;
mod wakeups;

use std::sync::Arc;

use virtio_guest::features::{EVENT_IDX, FORMATS, INDIRECT_DESC, PACKED};
use virtio_guest::{INDIRECT, NEXT, Virtqueue, WRITE};

use self::driver::{BUFFERS, MEMORY_BYTES, TestDriver};
use super::{Queue, QueueError, RefusedRequests, Request};
use crate::disk::{DiskGeometry, VirtioDisk};
use crate::request::{BlkStatus, Op};

const SIZE: u16 = 16;
const HEADER: u64 = BUFFERS;
const DATA: u64 = BUFFERS + 0x1000;
const STATUS: u64 = BUFFERS + 0x8000;
const TABLE: u64 = BUFFERS + 0x9000;
/// A status that the device never writes.
const UNTOUCHED: u8 = 0xee;

fn disk() -> Arc<VirtioDisk> {
    Arc::new(VirtioDisk::new(DiskGeometry::new(1024, 512)).unwrap())
}

fn driver(features: u64) -> TestDriver {
    let driver = TestDriver::new(SIZE, features);
    driver.write(STATUS, &[UNTOUCHED]);
    driver.header(HEADER, 0, 8);
    driver
}

/// A 4 KiB read of sector 8 in descriptors 0 to 2.
const READ: [(u64, u32, u16); 3] = [(HEADER, 16, 0), (DATA, 4096, WRITE), (STATUS, 1, WRITE)];

fn pop(queue: &mut Queue) -> Request {
    queue.pop().unwrap().expect("a request")
}

fn assert_is_read(request: &Request) {
    assert_eq!((request.op, request.sector, request.bytes), (Op::Read, 8, 4096));
}

/// Takes the answer to the only chain: its status and its used length.
fn answered(driver: &mut TestDriver) -> (u8, u32) {
    let mut queue = driver.queue(&disk());
    driver.make_available(0);
    assert!(queue.pop().unwrap().is_none());
    queue.publish();
    let used = driver.used();
    assert_eq!(used.len(), 1, "exactly one completion");
    assert_eq!((used[0].0, queue.outstanding()), (0, 0));
    (driver.read(STATUS, 1)[0], used[0].1)
}

#[test]
fn a_read_is_popped_filled_and_completed() {
    for format in FORMATS {
        let mut driver = driver(format);
        let mut queue = driver.queue(&disk());
        assert!(queue.pop().unwrap().is_none());
        driver.chain(0, &READ);
        driver.make_available(0);
        let request = pop(&mut queue);
        assert_is_read(&request);
        assert_eq!((queue.outstanding(), driver.used()), (1, vec![]));
        request.segments.copy_from(0, &[7; 4096]);
        queue.complete(request, BlkStatus::Ok);
        assert_eq!(driver.used(), [], "not before publish");
        queue.publish();
        assert_eq!(driver.used(), [(0, 4097)]);
        assert_eq!(driver.read(DATA, 4096), [7; 4096]);
        assert_eq!(driver.read(STATUS, 1), [0]);
        assert_eq!(queue.outstanding(), 0);
        assert!(queue.pop().unwrap().is_none());
    }
}

#[test]
fn a_failed_read_promises_no_data() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &READ);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::IoErr);
        queue.publish();
        assert_eq!((driver.used(), driver.read(STATUS, 1)), (vec![(0, 0)], vec![1]));
    }
}

#[test]
fn indices_wrap() {
    for format in FORMATS {
        let mut driver = driver(format | EVENT_IDX);
        driver.start_at(u16::MAX - 2);
        driver.chain(3, &READ);
        let mut queue = driver.queue(&disk());
        for _ in 0..40 {
            driver.make_available(3);
            let request = pop(&mut queue);
            queue.complete(request, BlkStatus::Ok);
            queue.publish();
            assert_eq!(driver.used(), [(3, 4097)]);
        }
        assert_eq!(queue.position(), driver.position());
    }
}

#[test]
fn completions_keep_their_own_order() {
    for format in FORMATS {
        let mut driver = driver(format);
        let mut queue = driver.queue(&disk());
        for head in [0, 4, 8] {
            driver.chain(head, &READ);
            driver.make_available(head);
        }
        let requests: Vec<_> = (0..3).map(|_| pop(&mut queue)).collect();
        for request in requests.into_iter().rev() {
            queue.complete(request, BlkStatus::Ok);
        }
        queue.publish();
        assert_eq!(driver.used().iter().map(|used| used.0).collect::<Vec<_>>(), [8, 4, 0]);
        assert_eq!(driver.signals(), 1, "one signal a turn");
    }
}

#[test]
fn a_token_belongs_to_its_queue() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &READ);
        driver.make_available(0);
        let (mut first, mut second) = (driver.queue(&disk()), driver.queue(&disk()));
        let request = pop(&mut first);
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| second.complete(request, BlkStatus::Ok)));
        assert!(outcome.is_err());
    }
}
