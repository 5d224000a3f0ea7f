//! Packed rings only: wrap counters at any size, and finding the end of a chain to skip it.

use virtio_guest::features::{EVENT_IDX, INDIRECT_DESC, PACKED};
use virtio_guest::{NEXT, Virtqueue, WRITE};

use super::driver::{DESCRIPTORS, TestDriver};
use super::{BlkStatus, DATA, HEADER, READ, SIZE, STATUS, TABLE, disk, driver, pop};
use crate::ring::packed::START;
use crate::ring::queue::QueueParts;
use crate::ring::{Queue, QueueError, RingError, RingLayout};

/// A read with `descriptors` descriptors, at least 3. It reads `descriptors` - 2 sectors.
fn read_of(descriptors: u16) -> Vec<(u64, u32, u16)> {
    let mut chain = vec![(HEADER, 16, 0)];
    chain.extend((2..descriptors).map(|i| (DATA + 512 * u64::from(i - 2), 512, WRITE)));
    chain.push((STATUS, 1, WRITE));
    chain
}

#[test]
fn a_ring_may_have_any_size() {
    for size in 3..20 {
        let mut driver = TestDriver::new(size, PACKED | EVENT_IDX);
        driver.header(HEADER, 0, 8);
        let mut queue = driver.queue(&disk());
        for round in 0..100 {
            let descriptors = 3 + round % (size - 2);
            driver.chain(round, &read_of(descriptors));
            driver.make_available(round);
            let request = pop(&mut queue);
            let bytes = u32::from(descriptors - 2) * 512;
            assert_eq!(request.bytes, bytes);
            queue.complete(request, BlkStatus::Ok);
            queue.publish();
            assert_eq!(driver.used(), [(round.into(), bytes + 1)], "size {size}");
        }
        assert_eq!(queue.position(), driver.position());
    }
}

#[test]
fn a_full_ring_is_taken_and_returned() {
    let mut driver = driver(PACKED);
    let mut queue = driver.queue(&disk());
    for _ in 0..5 {
        let lengths = [3, 4, 3, 6];
        for (id, descriptors) in (0..).zip(lengths) {
            driver.chain(id, &read_of(descriptors));
            driver.make_available(id);
        }
        let mut requests: Vec<_> = lengths.iter().map(|_| pop(&mut queue)).collect();
        assert!(queue.pop().unwrap().is_none(), "all {SIZE} descriptors are ours");
        requests.swap(0, 3);
        for request in requests {
            queue.complete(request, BlkStatus::Ok);
        }
        assert!(queue.pop().unwrap().is_none(), "nothing is available yet");
        queue.publish();
        assert_eq!(driver.used().iter().map(|used| used.0).collect::<Vec<_>>(), [3, 1, 2, 0]);
        assert!(driver.is_idle());
    }
}

#[test]
fn a_batch_appears_at_once() {
    let mut driver = driver(PACKED);
    let mut queue = driver.queue(&disk());
    driver.chain(7, &READ);
    driver.chain(8, &READ);
    driver.make_available(7);
    driver.make_available(8);
    let available = driver.u16_at(DESCRIPTORS + 14);
    for _ in 0..2 {
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::Ok);
    }
    let used = 1 << 15 | 1 << 7 | WRITE;
    let first_and_second = |driver: &TestDriver| [14, 3 * 16 + 14].map(|at| driver.u16_at(DESCRIPTORS + at));
    assert_eq!(first_and_second(&driver), [available, available]);
    assert_eq!((driver.u16_at(DESCRIPTORS + 12), driver.used()), (7, vec![]));
    queue.publish();
    assert_eq!(first_and_second(&driver), [used, used]);
    assert_eq!(driver.used(), [(7, 4097), (8, 4097)]);
}

/// The flag says that the device wrote something. It writes each status.
#[test]
fn refused_chains_have_the_write_flag() {
    let flags = |chain: &[(u64, u32, u16)]| {
        let mut driver = driver(PACKED);
        driver.chain(0, chain);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        assert!(queue.pop().unwrap().is_none());
        queue.publish();
        (driver.u16_at(DESCRIPTORS + 14) & WRITE, driver.read(STATUS, 1)[0])
    };
    assert_eq!(flags(&[(HEADER, 15, 0), (STATUS, 1, WRITE)]), (WRITE, BlkStatus::IoErr as u8));
    assert_eq!(flags(&[(HEADER, 16, 0), (STATUS, 1, WRITE), (DATA, 512, 0)]), (WRITE, BlkStatus::IoErr as u8));
}

/// A malformed chain takes up its own descriptors only, so the next chain is found.
#[test]
fn malformed_chains_are_skipped() {
    let mut driver = driver(PACKED | INDIRECT_DESC);
    let mut queue = driver.queue(&disk());
    for round in 0..20 {
        driver.indirect_chain(1, TABLE, &[(STATUS, 1, WRITE), (HEADER, 16, 0)]);
        driver.chain(2, &[(HEADER, 16, 0), (u64::MAX, 9, WRITE), (DATA, 16, 0), (STATUS, 1, WRITE)]);
        driver.chain(3, &READ);
        for id in 1..4 {
            driver.make_available(id);
        }
        let request = pop(&mut queue);
        assert!(queue.pop().unwrap().is_none());
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        assert_eq!(driver.used(), [(1, 0), (2, 0), (3, 4097)], "round {round}");
    }
}

fn assert_overrun(driver: &mut TestDriver, queue: &mut Queue, head: u16) {
    let error = QueueError::ChainOverrun { head, size: SIZE };
    assert_eq!(queue.pop().err(), Some(error));
    assert_eq!(driver.errors(), 1);
    assert_eq!(queue.pop().err(), Some(error), "it stays broken");
    assert!(!queue.enable_notifications());
}

#[test]
fn a_chain_without_an_end_breaks_the_queue() {
    let mut driver = driver(PACKED);
    let mut queue = driver.queue(&disk());
    driver.make_packed_available(0, &[(DATA, 16, NEXT); SIZE as usize]);
    assert_overrun(&mut driver, &mut queue, 0);
    assert_eq!((queue.outstanding(), driver.used()), (0, vec![]));
}

#[test]
fn a_chain_into_descriptors_of_the_device_breaks_the_queue() {
    let mut driver = driver(PACKED);
    let mut queue = driver.queue(&disk());
    for id in 0..3 {
        driver.chain(id, &READ);
        driver.make_available(id);
    }
    let requests: Vec<_> = (0..3).map(|_| pop(&mut queue)).collect();
    driver.chain(3, &read_of(8));
    driver.make_available(3);
    assert_overrun(&mut driver, &mut queue, 9);
    for request in requests {
        queue.complete(request, BlkStatus::Ok);
    }
    queue.publish();
    assert_eq!(queue.outstanding(), 0);
}

#[test]
fn a_flood_of_bad_requests_ends() {
    let mut driver = driver(PACKED);
    let mut queue = driver.queue(&disk());
    driver.chain(0, &[(HEADER, 15, 0), (STATUS, 1, WRITE)]);
    for _ in 0..SIZE / 2 {
        driver.make_available(0);
    }
    assert!(queue.pop().unwrap().is_none());
    driver.make_available(0);
    assert_overrun(&mut driver, &mut queue, 0);
}

#[test]
fn a_queue_continues_where_the_last_one_stopped() {
    let mut driver = TestDriver::new(11, PACKED);
    driver.header(HEADER, 0, 8);
    for round in 0..30 {
        driver.start_at(round * 3);
        let mut queue = driver.queue(&disk());
        assert!(queue.pop().unwrap().is_none());
        driver.chain(round, &READ);
        driver.make_available(round);
        let request = pop(&mut queue);
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        assert_eq!((driver.used(), queue.position()), (vec![(round.into(), 4097)], driver.position()));
    }
}

#[test]
fn impossible_positions_are_refused() {
    let mut driver = TestDriver::new(10, PACKED);
    let start = |driver: &TestDriver, position: u32| {
        let layout = RingLayout { position, ..driver.layout() };
        let parts = QueueParts { layout, ..driver.queue_parts(&disk()) };
        Queue::new(&driver.memory(), parts).map(|queue| queue.position())
    };
    for position in [START, 0x0009_0009, 0x8005_8005] {
        assert_eq!(start(&driver, position), Ok(position), "{position:#x}");
    }
    assert_eq!(start(&driver, 0), Ok(START), "a new ring of a front-end that knows of no wrap counters");
    // Used in the round before, left over from a longer chain of that round, and available.
    for flags in [1 << 7 | 1 << 15, 1 << 7, 1 << 15] {
        driver.descriptor(0, (0, 0, 0, flags));
        assert_eq!(start(&driver, 0), Ok(0), "{flags:#x}");
    }
    // Outside the ring, or with chains between used and available.
    for position in [0x000a_000a, 0x7fff_7fff, 0xffff_ffff, 0x8005_0005, 0x8000_8001, 0x0001_0000] {
        assert_eq!(start(&driver, position).err(), Some(RingError::Position { position, size: 10 }), "{position:#x}");
    }
    let split = TestDriver::new(8, 0);
    let parts = |layout| QueueParts { layout, ..split.queue_parts(&disk()) };
    let beyond = RingLayout { position: 0x1_0000, ..split.layout() };
    let outcome = Queue::new(&split.memory(), parts(beyond)).err();
    assert_eq!(outcome, Some(RingError::Position { position: 0x1_0000, size: 8 }));
    let odd = RingLayout { size: 7, ..split.layout() };
    assert_eq!(Queue::new(&split.memory(), parts(odd)).err(), Some(RingError::Size { size: 7 }));
}
