//! Single behaviours of a ring, in both formats where they share them.

mod crashes;
mod driver;
mod faults;
mod migration;
mod packed;
mod properties;
mod requests;
mod wakeups;

use std::sync::Arc;

use self::driver::{
    BUFFERS, EVENT_IDX, FORMATS, INDIRECT, INDIRECT_DESC, MEMORY_BYTES, NEXT, PACKED, TestDriver, WRITE,
};
use super::{Queue, QueueError, Request};
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
        queue.complete(request.token, BlkStatus::Ok);
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
        queue.complete(request.token, BlkStatus::IoErr);
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
            queue.complete(request.token, BlkStatus::Ok);
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
            queue.complete(request.token, BlkStatus::Ok);
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
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| second.complete(request.token, BlkStatus::Ok)));
        assert!(outcome.is_err());
    }
}

mod layout {
    use super::*;

    fn assert_popped_as_read(driver: &mut TestDriver) {
        driver.make_available(0);
        let mut queue = driver.queue(&disk());
        assert_is_read(&pop(&mut queue));
    }

    #[test]
    fn the_header_may_be_split() {
        for format in FORMATS {
            let mut driver = driver(format);
            let split =
                [(HEADER, 3, 0), (HEADER + 3, 1, 0), (HEADER + 4, 12, 0), (DATA, 4096, WRITE), (STATUS, 1, WRITE)];
            driver.chain(0, &split);
            assert_popped_as_read(&mut driver);
        }
    }

    #[test]
    fn data_and_status_may_share_a_buffer() {
        for format in FORMATS {
            let mut driver = driver(format);
            driver.chain(0, &[(HEADER, 16, 0), (DATA, 4097, WRITE)]);
            driver.make_available(0);
            let mut queue = driver.queue(&disk());
            let request = pop(&mut queue);
            assert_is_read(&request);
            queue.complete(request.token, BlkStatus::Unsupp);
            assert_eq!(driver.read(DATA + 4096, 1), [2]);
        }
    }

    #[test]
    fn empty_descriptors_do_not_matter() {
        for format in FORMATS {
            let mut driver = driver(format);
            let empty =
                [(HEADER, 16, 0), (0, 0, 0), (DATA, 4096, WRITE), (0, 0, WRITE), (STATUS, 1, WRITE), (9, 0, WRITE)];
            driver.chain(0, &empty);
            assert_popped_as_read(&mut driver);
        }
    }

    #[test]
    fn a_buffer_may_span_regions() {
        for format in FORMATS {
            let mut driver = driver(format);
            let across = MEMORY_BYTES / 2 - 100;
            driver.chain(0, &[(HEADER, 16, 0), (across, 4096, WRITE), (STATUS, 1, WRITE)]);
            assert_popped_as_read(&mut driver);
        }
    }

    #[test]
    fn an_indirect_table_may_be_anywhere_and_misaligned() {
        for format in FORMATS {
            let mut driver = driver(format | INDIRECT_DESC);
            driver.indirect_chain(0, TABLE + 3, &READ);
            assert_popped_as_read(&mut driver);
        }
    }

    #[test]
    fn an_indirect_table_may_follow_descriptors_and_its_write_flag_means_nothing() {
        let mut driver = driver(INDIRECT_DESC);
        driver.indirect_chain(5, TABLE, &READ[1..]);
        driver.descriptor(5, (TABLE, 32, INDIRECT | WRITE, 0));
        driver.descriptor(0, (HEADER, 16, NEXT, 5));
        assert_popped_as_read(&mut driver);
    }

    #[test]
    fn an_indirect_chain_may_be_as_long_as_advertised() {
        for format in FORMATS {
            let mut driver = driver(format | INDIRECT_DESC);
            // 126 segments, in a queue of 16.
            let mut buffers = vec![(HEADER, 16, 0)];
            buffers.extend((0..126).map(|i| (DATA + 512 * i, 512, WRITE)));
            buffers.push((STATUS + 0x1_0000, 1, WRITE));
            driver.indirect_chain(0, TABLE + 0x1_0000, &buffers);
            driver.make_available(0);
            let request = pop(&mut driver.queue(&disk()));
            assert_eq!(request.bytes, 126 * 512);
        }
    }
}

mod malformed {
    use super::*;

    const IOERR: u8 = BlkStatus::IoErr as u8;

    fn outcome(features: u64, lay_out: impl FnOnce(&mut TestDriver)) -> (u8, u32) {
        let mut driver = driver(features);
        lay_out(&mut driver);
        answered(&mut driver)
    }

    #[test]
    fn buffers_outside_of_memory() {
        for format in FORMATS {
            for address in [MEMORY_BYTES, MEMORY_BYTES - 1, u64::MAX, u64::MAX - 4000] {
                let chain = [(HEADER, 16, 0), (address, 4096, WRITE), (STATUS, 1, WRITE)];
                assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (IOERR, 0), "{address:#x}");
                let readable = [(address, 16, 0), (STATUS, 1, WRITE)];
                assert_eq!(outcome(format, |driver| driver.chain(0, &readable)), (IOERR, 0), "{address:#x}");
            }
        }
    }

    #[test]
    fn a_status_outside_of_memory() {
        for format in FORMATS {
            let chain = [(HEADER, 16, 0), (DATA, 4096, WRITE), (MEMORY_BYTES, 1, WRITE)];
            assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (UNTOUCHED, 0));
        }
    }

    #[test]
    fn a_readable_buffer_after_a_writable_one() {
        for format in FORMATS {
            let chain = [(HEADER, 16, 0), (STATUS, 1, WRITE), (DATA, 512, 0)];
            assert_eq!(outcome(format, |driver| driver.chain(0, &chain)), (IOERR, 0));
        }
    }

    #[test]
    fn a_short_header() {
        for format in FORMATS {
            assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 15, 0), (STATUS, 1, WRITE)])), (IOERR, 1));
            assert_eq!(outcome(format, |driver| driver.chain(0, &[(STATUS, 1, WRITE)])), (IOERR, 1));
        }
    }

    #[test]
    fn no_writable_byte() {
        for format in FORMATS {
            assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 16, 0), (DATA, 512, 0)])), (UNTOUCHED, 0));
            assert_eq!(outcome(format, |driver| driver.chain(0, &[(HEADER, 0, 0)])), (UNTOUCHED, 0));
        }
    }

    #[test]
    fn endless_chains() {
        let looped = outcome(0, |driver| {
            driver.descriptor(0, (HEADER, 16, NEXT, 1));
            driver.descriptor(1, (STATUS, 1, WRITE | NEXT, 0));
        });
        assert_eq!(looped, (UNTOUCHED, 0));
        let looped_in_table = outcome(INDIRECT_DESC, |driver| {
            driver.indirect_chain(0, TABLE, &READ);
            driver.descriptor_at(TABLE + 32, (STATUS, 1, WRITE | NEXT, 2));
        });
        assert_eq!(looped_in_table, (UNTOUCHED, 0));
    }

    #[test]
    fn links_out_of_the_table() {
        let direct = outcome(0, |driver| driver.descriptor(0, (STATUS, 1, WRITE | NEXT, SIZE)));
        assert_eq!(direct, (UNTOUCHED, 0));
        let indirect = outcome(INDIRECT_DESC, |driver| {
            driver.indirect_chain(0, TABLE, &READ);
            driver.descriptor_at(TABLE + 32, (STATUS, 1, WRITE | NEXT, 3));
        });
        assert_eq!(indirect, (UNTOUCHED, 0));
    }

    #[test]
    fn bad_indirect_tables() {
        let table = |features: u64, chain: &[(u64, u32, u16)]| {
            outcome(features, |driver| {
                driver.indirect_chain(0, TABLE, &READ);
                driver.chain(0, chain);
            })
        };
        let unanswered = (UNTOUCHED, 0);
        for format in FORMATS {
            let indirect = format | INDIRECT_DESC;
            assert_eq!(table(format, &[(TABLE, 48, INDIRECT)]), unanswered, "not negotiated");
            assert_eq!(table(indirect, &[(TABLE, 48, INDIRECT), (STATUS, 1, WRITE)]), unanswered, "not the last");
            assert_eq!(table(indirect, &[(TABLE, 47, INDIRECT)]), unanswered, "half a descriptor");
            assert_eq!(table(indirect, &[(TABLE, 0, INDIRECT)]), unanswered, "empty");
            assert_eq!(table(indirect, &[(MEMORY_BYTES - 16, 48, INDIRECT)]), unanswered, "not in memory");
            let long = outcome(indirect, |driver| driver.indirect_chain(0, TABLE, &[(STATUS, 1, WRITE); 129]));
            assert_eq!(long, unanswered, "longer than advertised");
        }
        let after_others = [(HEADER, 16, 0), (TABLE + 16, 32, INDIRECT)];
        assert_eq!(table(PACKED | INDIRECT_DESC, &after_others), unanswered, "not alone, in a packed ring");
        let nested = outcome(INDIRECT_DESC, |driver| {
            driver.indirect_chain(0, TABLE, &READ);
            driver.descriptor_at(TABLE + 16, (TABLE, 48, INDIRECT, 0));
        });
        assert_eq!(nested, unanswered);
    }
}

mod broken {
    use super::*;

    fn assert_broken(driver: &TestDriver, queue: &mut Queue, error: QueueError) {
        assert_eq!(queue.pop().err(), Some(error));
        assert_eq!(driver.errors(), 1);
        assert_eq!(queue.pop().err(), Some(error), "it stays broken");
        assert_eq!(driver.errors(), 0, "reported once");
        assert!(!queue.enable_notifications());
    }

    #[test]
    fn an_available_index_too_far_ahead() {
        let mut driver = driver(0);
        let mut queue = driver.queue(&disk());
        driver.set_available_idx(SIZE + 1);
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
            queue.complete(request.token, BlkStatus::Ok);
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
}

mod notifications {
    use super::*;

    /// Completes `count` requests in one turn. Returns the number of signals.
    fn complete(driver: &mut TestDriver, queue: &mut Queue, count: u16) -> usize {
        for _ in 0..count {
            driver.make_available(0);
            let request = pop(queue);
            queue.complete(request.token, BlkStatus::Ok);
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
            driver.set_used_event(driver.places(9000, 3));
            assert_eq!(complete(&mut driver, &mut queue, 1), 1, "the first time, whatever the event says");
            assert_eq!(complete(&mut driver, &mut queue, 2), 0);
            driver.set_used_event(driver.places(3, 3));
            assert_eq!(complete(&mut driver, &mut queue, 1), 1);
            driver.set_used_event(driver.places(6, 3));
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
            assert_eq!(driver.avail_event(), driver.bits(500));
            driver.make_available(0);
            driver.make_available(0);
            assert!(queue.enable_notifications(), "came before the event was set");
            let _first = pop(&mut queue);
            assert!(queue.enable_notifications());
            let _second = pop(&mut queue);
            queue.disable_notifications();
            assert_eq!(driver.avail_event(), driver.bits(500 + driver.places(1, 3)));
            assert!(!queue.enable_notifications());
            assert_eq!(driver.avail_event(), driver.bits(500 + driver.places(2, 3)));
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
}
