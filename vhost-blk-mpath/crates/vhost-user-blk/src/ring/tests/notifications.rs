//! Notifications in both directions.

use super::*;

/// Completes `count` requests in one turn. Returns the number of signals.
fn complete(driver: &mut TestDriver, queue: &mut Queue, count: u16) -> usize {
    for _ in 0..count {
        driver.make_available(0);
        let request = pop(queue);
        queue.complete(request, BlkStatus::Ok);
    }
    queue.publish();
    driver.signals()
}

#[test]
fn the_driver_is_signalled_when_its_event_passes() {
    for format in FORMATS {
        let mut driver = driver(format | EVENT_IDX);
        driver.chain(0, &READ);
        let mut queue = driver.queue(&disk());
        driver.set_used_event(driver.ring.places(9000, 3));
        assert_eq!(complete(&mut driver, &mut queue, 1), 1, "the first time, whatever the event says");
        assert_eq!(complete(&mut driver, &mut queue, 2), 0);
        driver.set_used_event(driver.ring.places(3, 3));
        assert_eq!(complete(&mut driver, &mut queue, 1), 1);
        driver.set_used_event(driver.ring.places(6, 3));
        assert_eq!(complete(&mut driver, &mut queue, 2), 0);
        assert_eq!(complete(&mut driver, &mut queue, 5), 1);
        queue.publish();
        assert_eq!(driver.signals(), 0, "nothing new");
    }
}

#[test]
fn the_driver_is_not_signalled_when_it_asks_for_none() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &READ);
        let mut queue = driver.queue(&disk());
        assert_eq!(complete(&mut driver, &mut queue, 3), 1);
        driver.set_signals(false);
        assert_eq!(complete(&mut driver, &mut queue, 3), 0);
        driver.set_signals(true);
        assert_eq!(complete(&mut driver, &mut queue, 3), 1);
    }
}

#[test]
fn kicks_are_asked_for_by_event() {
    for format in FORMATS {
        let mut driver = driver(format | EVENT_IDX);
        driver.start_at(500);
        driver.chain(0, &READ);
        let mut queue = driver.queue(&disk());
        assert!(!queue.enable_notifications());
        assert_eq!(driver.avail_event(), driver.ring.bits(500));
        driver.make_available(0);
        driver.make_available(0);
        assert!(queue.enable_notifications(), "came before the event was set");
        let _first = pop(&mut queue);
        assert!(queue.enable_notifications());
        let _second = pop(&mut queue);
        queue.disable_notifications();
        assert_eq!(driver.avail_event(), driver.ring.bits(500 + driver.ring.places(1, 3)));
        assert!(!queue.enable_notifications());
        assert_eq!(driver.avail_event(), driver.ring.bits(500 + driver.ring.places(2, 3)));
    }
}

#[test]
fn kicks_are_asked_for_by_flag() {
    for format in FORMATS {
        let mut driver = driver(format);
        driver.chain(0, &READ);
        let mut queue = driver.queue(&disk());
        queue.disable_notifications();
        assert!(!driver.kicks_wanted());
        assert!(!queue.enable_notifications());
        assert!(driver.kicks_wanted());
        driver.make_available(0);
        assert!(queue.enable_notifications());
    }
}
