//! Chains that are malformed: they have an error in their status byte, or break their queue.

use super::*;
use crate::inflight::{InflightArea, InflightMemory, InflightShape};
use crate::ring::ChainDefect;
use crate::testing::killed_after;

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

/// In-flight logs of a queue, all in the same memory.
fn log_of(driver: &TestDriver) -> impl Fn() -> InflightArea + use<> {
    let shape = InflightShape { packed: driver.is_packed(), num_queues: 1, queue_size: SIZE };
    let file = shape.create().unwrap();
    move || InflightMemory::map(shape, SIZE, file.try_clone().unwrap(), 0, shape.bytes()).unwrap().area(0).unwrap()
}

/// A queue has to return nothing without a status: a driver may preset the byte to success.
fn broken_by(features: u64, lay_out: impl FnOnce(&mut TestDriver)) -> ChainDefect {
    let mut driver = driver(features);
    lay_out(&mut driver);
    let area = log_of(&driver);
    let (start, is_empty) = (driver.position(), |driver: &TestDriver| driver.read(STATUS, 1) == [UNTOUCHED]);
    driver.make_available(0);
    let mut seen = None;
    // The second queue continues from the log of the first one, and the third has no log.
    for log in [Some(area()), Some(area()), None] {
        let mut queue = driver.queue_with(&disk(), log).unwrap();
        let Err(QueueError::NoStatus { id: 0, defect }) = queue.pop() else { panic!("the queue lives on") };
        assert_eq!((driver.errors(), queue.is_broken()), (1, true));
        assert!(queue.pop().is_err() && driver.errors() == 0, "reported once");
        queue.publish();
        assert!(driver.used().is_empty() && is_empty(&driver));
        assert_eq!((queue.outstanding(), queue.to_resubmit(), queue.position()), (0, 0, start), "it was not taken");
        assert_eq!(*seen.get_or_insert(defect), defect);
    }
    seen.unwrap()
}

#[test]
fn a_status_outside_of_memory() {
    for format in FORMATS {
        let chain = [(HEADER, 16, 0), (DATA, 4096, WRITE), (MEMORY_BYTES, 1, WRITE)];
        assert_eq!(broken_by(format, |driver| driver.chain(0, &chain)), ChainDefect::Unmapped);
    }
}

/// A buffer that begins outside of memory may end inside.
#[test]
fn a_status_at_the_end_of_a_bad_buffer() {
    for format in FORMATS {
        let beginning = u64::MAX - 10;
        let chain = [(HEADER, 16, 0), (beginning, 4096, WRITE)];
        assert_eq!(broken_by(format, |driver| driver.chain(0, &chain)), ChainDefect::Unmapped, "it wraps");
        let unmapped_before = [(HEADER, 16, 0), (MEMORY_BYTES, 512, WRITE), (DATA, 512, WRITE), (STATUS, 1, WRITE)];
        assert_eq!(outcome(format, |driver| driver.chain(0, &unmapped_before)), (IOERR, 0));
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
        for chain in [&[(HEADER, 16, 0), (DATA, 512, 0)][..], &[(HEADER, 0, 0)], &[(HEADER, 16, 0), (STATUS, 0, WRITE)]]
        {
            assert_eq!(broken_by(format, |driver| driver.chain(0, chain)), ChainDefect::NoWritableByte);
        }
    }
}

#[test]
fn endless_chains() {
    let looped = broken_by(0, |driver| {
        driver.descriptor(0, (HEADER, 16, NEXT, 1));
        driver.descriptor(1, (STATUS, 1, WRITE | NEXT, 0));
    });
    assert_eq!(looped, ChainDefect::Endless);
    let looped_in_table = broken_by(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.write_descriptor(TABLE + 32, (STATUS, 1, WRITE | NEXT, 2));
    });
    assert_eq!(looped_in_table, ChainDefect::Endless);
}

#[test]
fn links_out_of_the_table() {
    let direct = broken_by(0, |driver| driver.descriptor(0, (STATUS, 1, WRITE | NEXT, SIZE)));
    assert_eq!(direct, ChainDefect::LinkOutOfTable(SIZE));
    let indirect = broken_by(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.write_descriptor(TABLE + 32, (STATUS, 1, WRITE | NEXT, 3));
    });
    assert_eq!(indirect, ChainDefect::LinkOutOfTable(3));
}

#[test]
fn bad_indirect_tables() {
    let assert_bad = |features: u64, chain: &[(u64, u32, u16)], why: &str| {
        let defect = broken_by(features, |driver| {
            driver.indirect_chain(0, TABLE, &READ);
            driver.chain(0, chain);
        });
        assert_eq!(defect, ChainDefect::BadIndirect, "{why}");
    };
    for format in FORMATS {
        let indirect = format | INDIRECT_DESC;
        assert_bad(format, &[(TABLE, 48, INDIRECT)], "not negotiated");
        assert_bad(indirect, &[(TABLE, 48, INDIRECT), (STATUS, 1, WRITE)], "not the last");
        assert_bad(indirect, &[(TABLE, 47, INDIRECT)], "half a descriptor");
        assert_bad(indirect, &[(TABLE, 0, INDIRECT)], "empty");
        assert_bad(indirect, &[(MEMORY_BYTES, 48, INDIRECT)], "not in memory");
        assert_bad(indirect, &[(u64::MAX - 16, 48, INDIRECT)], "it wraps");
    }
    let after_others = [(HEADER, 16, 0), (TABLE + 16, 32, INDIRECT)];
    assert_bad(PACKED | INDIRECT_DESC, &after_others, "not alone, in a packed ring");
    let nested = broken_by(INDIRECT_DESC, |driver| {
        driver.indirect_chain(0, TABLE, &READ);
        driver.write_descriptor(TABLE + 16, (TABLE, 48, INDIRECT, 0));
    });
    assert_eq!(nested, ChainDefect::BadIndirect);
}

/// A table that ends outside of memory.
#[test]
fn half_of_a_table() {
    let lay_out = |driver: &mut TestDriver| {
        driver.indirect_chain(0, MEMORY_BYTES - 32, &READ);
    };
    for format in FORMATS {
        assert_eq!(broken_by(format | INDIRECT_DESC, lay_out), ChainDefect::BadIndirect);
    }
}

/// A read in `segments` pieces of 512 bytes.
fn read_in(segments: u16) -> Vec<(u64, u32, u16)> {
    let data = std::iter::repeat_n((DATA, 512, WRITE), segments.into());
    std::iter::once((HEADER, 16, 0)).chain(data).chain([(STATUS, 1, WRITE)]).collect()
}

/// Windows sends up to 515 segments, whatever the limits of disk and queue.
#[test]
fn longer_tables_than_advertised_are_served() {
    for format in FORMATS {
        for segments in [126, 127, 129, 515, 1022] {
            let mut driver = driver(format | INDIRECT_DESC);
            driver.header(HEADER, 0, 0);
            driver.indirect_chain(0, TABLE, &read_in(segments));
            driver.make_available(0);
            let mut queue = driver.queue(&disk());
            let request = pop(&mut queue);
            assert_eq!(request.bytes, u32::from(segments) * 512);
            assert_eq!(request.segments.iovecs(0, request.bytes).count(), usize::from(segments));
            queue.complete(request, BlkStatus::Ok);
            queue.publish();
            assert_eq!(driver.used(), [(0, u32::from(segments) * 512 + 1)]);
        }
    }
}

/// The region of the memory ends in the table, between two descriptors.
#[test]
fn a_table_in_two_regions_is_served() {
    for format in FORMATS {
        let mut driver = driver(format | INDIRECT_DESC);
        driver.indirect_chain(0, MEMORY_BYTES / 2 - 32, &READ);
        driver.make_available(0);
        assert_is_read(&pop(&mut driver.queue(&disk())));
    }
}

#[test]
fn a_chain_that_is_too_long_has_an_error_in_its_status() {
    for format in FORMATS {
        let long =
            |segments| outcome(format | INDIRECT_DESC, |driver| driver.indirect_chain(0, TABLE, &read_in(segments)));
        for segments in [1023, 1024, 4094] {
            assert_eq!(long(segments), (IOERR, 0), "{segments}");
        }
    }
    let too_long = |driver: &mut TestDriver| driver.indirect_chain(0, TABLE, &read_in(4095));
    assert_eq!(broken_by(INDIRECT_DESC, too_long), ChainDefect::Endless);
    assert_eq!(outcome(PACKED | INDIRECT_DESC, too_long), (IOERR, 0), "the end of the table is known");
}

/// Chains taken before are answered, and those behind are not taken.
#[test]
fn what_a_broken_queue_has_taken_is_answered() {
    for format in FORMATS {
        let mut driver = driver(format);
        for head in [0, 6, 9] {
            driver.chain(head, &READ);
        }
        driver.chain(3, &[(HEADER, 16, 0)]);
        for head in [0, 3, 6] {
            driver.make_available(head);
        }
        let mut queue = driver.queue(&disk());
        let request = pop(&mut queue);
        assert!(matches!(queue.pop(), Err(QueueError::NoStatus { id: 3, defect: ChainDefect::NoWritableByte })));
        queue.complete(request, BlkStatus::Ok);
        queue.publish();
        assert_eq!((driver.used(), queue.outstanding()), (vec![(0, 4097)], 0));
        assert!(!queue.has_available() && !queue.enable_notifications());
    }
}

/// The chain is available again, or in flight, whatever store the device is killed after.
#[test]
fn a_device_that_is_killed_while_its_queue_breaks_loses_nothing() {
    for format in FORMATS {
        for stores in 0.. {
            let mut driver = driver(format);
            driver.chain(0, &READ);
            driver.chain(3, &[(HEADER, 16, 0)]);
            for head in [0, 3] {
                driver.make_available(head);
            }
            let area = log_of(&driver);
            let live = || {
                let mut queue = driver.queue_with(&disk(), Some(area())).unwrap();
                let requests: Vec<_> = std::iter::from_fn(|| queue.pop().ok().flatten()).collect();
                for request in requests {
                    queue.complete(request, BlkStatus::Ok);
                }
                queue.publish();
                let why = queue.pop().err();
                assert!(matches!(why, Some(QueueError::NoStatus { id: 3, .. })), "{why:?} after {stores} stores");
            };
            let survived = killed_after(stores, live).is_some();
            live();
            assert_eq!(driver.used(), [(0, 4097)]);
            if survived {
                break;
            }
        }
    }
}

/// The owner serves other guests too.
#[test]
fn long_chains_use_up_a_turn() {
    for format in FORMATS {
        let mut driver = driver(format | INDIRECT_DESC);
        let mut queue = driver.queue(&disk());
        for head in 0..SIZE {
            driver.indirect_chain(head, TABLE, &read_in(4000));
            driver.make_available(head);
        }
        let mut turns = 0;
        while queue.has_available() {
            assert!(queue.pop().unwrap().is_none());
            assert!(queue.has_used_up_turn() || !queue.has_available());
            queue.publish();
            turns += 1;
        }
        assert_eq!((turns, driver.used().len()), (4, SIZE.into()));
    }
}
