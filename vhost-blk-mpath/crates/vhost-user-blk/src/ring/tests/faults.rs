//! The memory of a ring fails, and its in-flight log is elsewhere and intact. The log must tell the next queue what the
//! driver has seen, and no more.

use std::fs::File;
use std::os::unix::fs::FileExt;

use virtio_guest::features::{FORMATS, PACKED};
use virtio_guest::{Virtqueue, WRITE};

use super::driver::TestDriver;
use super::{BlkStatus, Queue, QueueError, SIZE, disk, pop};
use crate::inflight::{InflightArea, InflightMemory, InflightShape};
use crate::ring::{QueueParts, RingError};

const HEADER: u64 = TestDriver::ELSEWHERE;
const DATA: u64 = HEADER + 0x1000;
const STATUS: u64 = HEADER + 0x2000;

/// A guest whose ring can be cut off alone. Its buffers are elsewhere.
struct World {
    driver: TestDriver,
    log: File,
    shape: InflightShape,
}

impl World {
    fn new(features: u64, start: u16) -> Self {
        let mut driver = TestDriver::new(SIZE, features);
        driver.start_at(start);
        driver.header(HEADER, 0, 8);
        let shape = InflightShape { packed: features & PACKED != 0, num_queues: 1, queue_size: SIZE };
        Self { driver, log: shape.create().unwrap(), shape }
    }

    fn area(&self) -> InflightArea {
        let file = self.log.try_clone().unwrap();
        InflightMemory::map(self.shape, SIZE, file, 0, self.shape.bytes()).unwrap().area(0).unwrap()
    }

    fn queue(&self) -> Result<Queue, RingError> {
        self.driver.queue_with(&disk(), Some(self.area()))
    }

    fn submit(&mut self, head: u16) {
        self.driver.chain(head, &[(HEADER, 16, 0), (DATA, 512, WRITE), (STATUS, 1, WRITE)]);
        self.driver.make_available(head);
    }

    fn is_in_flight(&self) -> bool {
        self.area().other_area_has_requests(0)
    }

    fn logged(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.shape.bytes() as usize];
        self.log.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}

#[test]
fn chains_that_the_driver_was_not_shown_stay_in_flight() {
    for format in FORMATS {
        for cut_off in [None, Some("before the completion"), Some("before it is published")] {
            let mut world = World::new(format, 0);
            let mut queue = world.queue().unwrap();
            world.submit(0);
            let request = pop(&mut queue);
            let cut_off_now = |now| {
                if cut_off == Some(now) {
                    world.driver.cut_off_rings();
                }
            };
            cut_off_now("before the completion");
            queue.complete(request, BlkStatus::Ok);
            cut_off_now("before it is published");
            queue.publish();
            assert_eq!(
                (world.is_in_flight(), queue.has_faulted()),
                (cut_off.is_some(), cut_off.is_some()),
                "{cut_off:?}"
            );
        }
    }
}

/// The available index reads as zero, and the head beside it too.
#[test]
fn a_chain_that_was_not_made_available_is_not_in_flight() {
    let world = World::new(0, 65530);
    let mut queue = world.queue().unwrap();
    world.driver.cut_off_rings();
    assert_eq!(queue.pop().err(), Some(QueueError::Memory));
    assert!(!world.is_in_flight());
    assert_eq!(queue.pop().err(), Some(QueueError::Memory), "for good");
}

/// A used index of zero would mean that both chains of the batch were used.
#[test]
fn a_log_does_not_follow_a_lost_ring() {
    for format in FORMATS {
        let mut world = World::new(format, if format == 0 { 65533 } else { 0 });
        let mut queue = world.queue().unwrap();
        world.submit(0);
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        world.submit(3);
        let _in_flight = pop(&mut queue);
        drop(queue);
        let before = world.logged();
        let (memory, parts) = (world.driver.memory(), world.driver.queue_parts(&disk()));
        world.driver.cut_off_rings();
        let refused = Queue::new(&memory, QueueParts { inflight: Some(world.area()), ..parts });
        assert_eq!(refused.err(), Some(RingError::Memory));
        assert!(world.logged() == before && world.is_in_flight());
    }
}

#[test]
fn nothing_succeeds_when_any_memory_was_lost() {
    for format in FORMATS {
        let mut world = World::new(format, 0);
        let mut queue = world.queue().unwrap();
        for head in [0, 3] {
            world.submit(head);
        }
        let requests = [(); 2].map(|()| pop(&mut queue));
        let place = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
        assert!(!requests[0].segments.replace_inaccessible(&[place]), "nobody's");
        let ranges: Vec<_> = requests[0].segments.iovecs(0, 512).collect();
        assert!(requests[1].segments.replace_inaccessible(&ranges));
        for request in requests {
            queue.complete(request, BlkStatus::Ok);
        }
        queue.publish();
        assert_eq!(world.driver.read(STATUS, 1), [BlkStatus::IoErr as u8]);
        assert_eq!(world.driver.used().len(), 2);
        assert!(queue.has_faulted() && !world.is_in_flight());
    }
}

/// A header of zeroes would be a read without data, which succeeds.
#[test]
fn a_request_whose_header_is_lost_stays_in_flight() {
    for format in FORMATS {
        let mut world = World::new(format, 0);
        let mut queue = world.queue().unwrap();
        let header = STATUS + 0x1000;
        world.driver.chain(0, &[(header, 16, 0), (STATUS, 1, WRITE)]);
        world.driver.make_available(0);
        world.driver.cut_off_elsewhere(header - TestDriver::ELSEWHERE);
        assert_eq!(queue.pop().err(), Some(QueueError::Memory));
        queue.publish();
        assert!(world.driver.used().is_empty() && world.is_in_flight());
    }
}

/// When the memory comes back, its contents may look like success.
#[test]
fn a_request_whose_status_is_lost_stays_in_flight() {
    for format in FORMATS {
        let mut world = World::new(format, 0);
        let mut queue = world.queue().unwrap();
        world.submit(0);
        let request = pop(&mut queue);
        world.driver.cut_off_elsewhere(STATUS - TestDriver::ELSEWHERE);
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        assert!(world.driver.used().is_empty() && world.is_in_flight() && queue.has_faulted());
    }
}
