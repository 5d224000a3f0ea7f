//! Rings that are invalid, which break the queue.

use super::*;

fn assert_broken(driver: &TestDriver, queue: &mut Queue, error: QueueError) {
    assert_eq!(queue.pop().err(), Some(error));
    assert_eq!(driver.errors(), 1);
    assert_eq!(queue.pop().err(), Some(error), "it stays broken");
    assert_eq!(driver.errors(), 0, "reported once");
    assert!(!queue.enable_notifications());
    assert_eq!(queue.take_refused(), RefusedRequests { malformed: 1, unsupported: 0 });
}

#[test]
fn an_available_index_too_far_ahead() {
    let mut driver = driver(0);
    let mut queue = driver.queue(&disk());
    driver.set_available_idx(u64::from(SIZE) + 1);
    assert_broken(&driver, &mut queue, QueueError::AvailableIndex { available: SIZE + 1, next: 0, size: SIZE });
}

#[test]
fn a_head_outside_of_the_table() {
    let mut driver = driver(0);
    driver.make_available(SIZE);
    let mut queue = driver.queue(&disk());
    assert_broken(&driver, &mut queue, QueueError::Head { head: SIZE, size: SIZE });
}

#[test]
fn more_chains_than_a_driver_can_own() {
    let mut driver = driver(0);
    driver.chain(0, &READ);
    let mut queue = driver.queue(&disk());
    let mut taken = Vec::new();
    for _ in 0..SIZE {
        driver.make_available(0);
        taken.push(pop(&mut queue));
    }
    driver.make_available(0);
    assert_broken(&driver, &mut queue, QueueError::TooManyOutstanding { size: SIZE });
    for request in taken {
        queue.complete(request, BlkStatus::Ok);
    }
    queue.publish();
    assert_eq!(driver.used().len(), usize::from(SIZE), "what was taken is still completed");
}

#[test]
fn a_flood_of_bad_requests_ends() {
    let mut driver = driver(0);
    driver.chain(0, &[(HEADER, 15, 0), (STATUS, 1, WRITE)]);
    let mut queue = driver.queue(&disk());
    for _ in 0..SIZE {
        driver.make_available(0);
    }
    assert!(queue.pop().unwrap().is_none());
    driver.make_available(0);
    assert!(queue.pop().is_err(), "none was given back yet");
}
