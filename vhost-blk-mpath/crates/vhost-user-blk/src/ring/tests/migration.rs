//! What a queue marks in the dirty log, and when.

use super::driver::{DESCRIPTORS, EVENT_IDX, FORMATS, MEMORY_BYTES, PACKED, PAGE_BYTES, TestDriver, USED, WRITE};
use super::{BlkStatus, DATA, HEADER, READ, SIZE, STATUS, disk, driver, pop};

fn migrating(features: u64) -> TestDriver {
    let mut driver = driver(features);
    driver.migrate();
    driver
}

fn page(address: u64) -> u64 {
    address / PAGE_BYTES
}

/// Where the first chain is given back.
fn given_back(format: u64) -> u64 {
    if format == PACKED { DESCRIPTORS } else { USED }
}

/// The pages of these addresses, in order.
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
        queue.complete(request.token, BlkStatus::Ok);
        queue.publish();
        let _ = queue.enable_notifications();
        assert!(driver.marked().is_empty());
    }
}

/// The front-end may take a bit and copy the page at any moment: before the data are there it would copy the old ones.
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
    queue.complete(request.token, BlkStatus::Ok);
    assert_eq!(driver.marked(), [page(USED) + 1, page(DATA), page(STATUS)]);
    queue.publish();
    assert_eq!(driver.marked(), [page(USED), page(USED) + 1, page(DATA), page(STATUS)]);
}

/// Each used descriptor is in a page of its own, and the flags, by which the driver sees them, are written last.
#[test]
fn used_descriptors_are_marked_when_they_are_shown() {
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
        queue.complete(request.token, BlkStatus::Ok);
    }
    assert_eq!(driver.marked(), pages([DATA, STATUS]));
    queue.publish();
    assert_eq!(driver.marked(), pages([DESCRIPTORS, DESCRIPTORS + PAGE_BYTES, DATA, STATUS]));
}

/// A part of the data of a read that failed may have arrived.
#[test]
fn a_read_that_failed_is_marked_like_one_that_did_not() {
    for format in FORMATS {
        let mut driver = migrating(format);
        let across = MEMORY_BYTES / 2 - 2048;
        driver.chain(0, &[(HEADER, 16, 0), (across, 4096, WRITE), (STATUS, 1, WRITE)]);
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        queue.complete(request.token, BlkStatus::IoErr);
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
fn what_is_written_of_the_used_ring_is_marked() {
    let split = [(0, USED), (EVENT_IDX, USED + 4 + 8 * u64::from(SIZE))];
    for (features, wish) in split.into_iter().chain([(PACKED, USED), (PACKED | EVENT_IDX, USED)]) {
        let driver = migrating(features);
        let before = driver.snapshot();
        let mut queue = driver.queue(&disk());
        queue.disable_notifications();
        assert!(!queue.enable_notifications());
        assert_eq!(driver.marked(), [page(wish)]);
        assert!(driver.changed_since(&before).iter().all(|changed| *changed == page(wish)));
    }
}
