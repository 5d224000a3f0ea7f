//! In-flight memory and the log of a split ring, byte by byte.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{fcntl_get_seals, ftruncate};

use super::*;

const SIZE: u16 = 8;
const SHAPE: InflightShape = InflightShape { packed: false, num_queues: 2, queue_size: SIZE };

/// Queue 1 of two, so that its area is not at the start.
struct Log {
    file: File,
    at: u64,
}

impl Log {
    fn new() -> Self {
        Self { file: SHAPE.create().unwrap(), at: SHAPE.area_bytes() }
    }

    fn open(&self, used: u16) -> Result<(SplitLog, Option<u16>), InflightError> {
        let memory = InflightMemory::map(SHAPE, SIZE, self.file.try_clone().unwrap(), 0, SHAPE.bytes()).unwrap();
        SplitLog::open(&memory.area(1)?, SIZE, used)
    }

    fn error(&self, used: u16) -> InflightError {
        self.open(used).map(|(_, next)| next).unwrap_err()
    }

    fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.file.read_exact_at(&mut bytes, self.at + at).unwrap();
        bytes
    }

    fn set(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, self.at + at).unwrap();
    }

    /// The header behind the features: version, `desc_num`, `last_batch_head`, `used_idx`.
    fn header(&self) -> [u16; 4] {
        let bytes = self.bytes(8, 8);
        std::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]]))
    }

    fn set_header(&self, header: [u16; 4]) {
        self.set(8, &header.map(u16::to_ne_bytes).concat());
    }

    /// Inflight, next, counter.
    fn entry(&self, head: u64) -> (u8, u16, u64) {
        let bytes = self.bytes(16 + 16 * head, 16);
        assert_eq!(bytes[1..6], [0; 5], "padding");
        (bytes[0], u16::from_ne_bytes([bytes[6], bytes[7]]), u64::from_ne_bytes(bytes[8..].try_into().unwrap()))
    }

    fn set_entry(&self, head: u64, (inflight, next, counter): (u8, u16, u64)) {
        self.set(16 + 16 * head, &[inflight, 0, 0, 0, 0, 0]);
        self.set(16 + 16 * head + 6, &next.to_ne_bytes());
        self.set(16 + 16 * head + 8, &counter.to_ne_bytes());
    }
}

fn resubmitted(mut log: SplitLog) -> Vec<u16> {
    let count = log.to_resubmit();
    let heads: Vec<_> = std::iter::from_fn(|| log.resubmit()).collect();
    assert_eq!((heads.len(), log.to_resubmit()), (count.into(), 0));
    heads
}

#[test]
fn a_new_log_starts_at_the_used_index() {
    let log = Log::new();
    let (_, next) = log.open(700).unwrap();
    assert_eq!((next, log.header()), (None, [1, SIZE, 0, 700]));
}

#[test]
fn memory_without_a_version_is_a_new_log() {
    let log = Log::new();
    log.set_header([0, 3, 5, 9]);
    log.set(0, &[0xff; 8]);
    log.set_entry(2, (1, 0, 0));
    assert!(resubmitted(log.open(700).unwrap().0).is_empty());
    assert_eq!((log.header(), log.bytes(0, 8)), ([1, SIZE, 0, 700], vec![0; 8]));
    assert_eq!(log.open(700).unwrap().1, Some(700));
}

#[test]
fn the_log_has_the_documented_layout() {
    let log = Log::new();
    let (mut split, _) = log.open(65_535).unwrap();
    for head in [4, 2, 6] {
        split.record_taken(head);
    }
    assert_eq!([log.entry(4), log.entry(2), log.entry(6)], [(1, 0, 0), (1, 0, 1), (1, 0, 2)]);
    split.record_completed(6);
    split.record_completed(4);
    assert_eq!([log.entry(4), log.entry(2), log.entry(6)], [(1, 6, 0), (1, 0, 1), (1, 0, 2)]);
    assert_eq!(log.header(), [1, SIZE, 4, 65_535]);
    split.end_batch(1);
    assert_eq!([log.entry(4), log.entry(2), log.entry(6)], [(0, 6, 0), (1, 0, 1), (0, 0, 2)]);
    assert_eq!(log.header(), [1, SIZE, 4, 1]);
}

#[test]
fn requests_in_flight_are_resubmitted_in_the_order_of_their_counters() {
    let log = Log::new();
    log.set_header([1, SIZE, 0, 90]);
    for (head, counter) in [(0, 11), (3, 9), (7, 1 << 40), (5, 10)] {
        log.set_entry(head, (1, 0, counter));
    }
    let (mut split, next) = log.open(90).unwrap();
    assert_eq!(next, Some(94));
    split.record_taken(1);
    assert_eq!(log.entry(1), (1, 0, (1 << 40) + 1), "newer than all of them");
    assert_eq!(resubmitted(split), [3, 5, 0, 7]);
    assert_eq!(log.entry(3), (1, 0, 9), "still in flight, and as old as before");
}

#[test]
fn a_batch_that_was_published_is_finished() {
    let log = Log::new();
    // Of five chains in flight the last three links were published: 2, 6 and 1. The first is cleared already.
    log.set_header([1, SIZE, 2, 65_534]);
    for (head, entry) in [(0, (1, 0, 0)), (1, (1, 0, 1)), (6, (1, 1, 2)), (2, (0, 6, 3)), (4, (1, 2, 4))] {
        log.set_entry(head, entry);
    }
    let (split, next) = log.open(1).unwrap();
    assert_eq!((next, resubmitted(split)), (Some(3), vec![0, 4]));
    assert_eq!((log.header(), log.entry(1), log.entry(6)), ([1, SIZE, 2, 1], (0, 0, 1), (0, 1, 2)));
}

#[test]
fn links_of_a_batch_that_was_not_published_do_not_count() {
    let log = Log::new();
    log.set_header([1, SIZE, 3, 5]);
    log.set_entry(3, (1, 0, 7));
    let (split, next) = log.open(5).unwrap();
    assert_eq!((next, resubmitted(split)), (Some(6), vec![3]));
}

#[test]
fn an_invalid_log_is_refused() {
    let log = Log::new();
    log.set_header([2, SIZE, 0, 0]);
    assert_eq!(log.error(0), InflightError::Version { version: 2, features: 0 });
    log.set_header([1, SIZE, 0, 0]);
    log.set(0, &1_u64.to_ne_bytes());
    assert_eq!(log.error(0), InflightError::Version { version: 1, features: 1 });
    log.set(0, &[0; 8]);
    assert_eq!(log.error(SIZE + 1), InflightError::UsedIndex { logged: 0, used: SIZE + 1, size: SIZE });
    assert_eq!(log.error(u16::MAX), InflightError::UsedIndex { logged: 0, used: u16::MAX, size: SIZE });
    log.set_header([1, SIZE, SIZE, 0]);
    assert_eq!(log.error(1), InflightError::Head { head: SIZE, size: SIZE });
    log.set_header([1, SIZE, 0, 0]);
    log.set_entry(0, (1, u16::MAX, 0));
    assert_eq!(log.error(2), InflightError::Head { head: u16::MAX, size: SIZE });
    log.set_header([1, SIZE - 1, 0, 0]);
    assert_eq!(log.error(0), InflightError::Size { entries: SIZE - 1, size: SIZE });
}

#[test]
fn an_area_must_fit_its_queue() {
    let memory = |shape: InflightShape, offset| {
        let file = InflightShape { packed: false, num_queues: 9, queue_size: 64 }.create().unwrap();
        InflightMemory::map(shape, shape.queue_size, file, offset, shape.bytes()).unwrap()
    };
    let area = memory(SHAPE, 0).area(0).unwrap();
    let refused = SplitLog::open(&area, 16, 0).map(|(_, next)| next);
    assert_eq!(refused, Err(InflightError::Size { entries: SIZE, size: 16 }));
    assert_eq!(memory(SHAPE, 0).area(2).unwrap_err(), InflightError::NoArea { num_queues: 2 });
    for offset in [1, 2, 4] {
        let refused = SplitLog::open(&memory(SHAPE, offset).area(1).unwrap(), SIZE, 0).map(|(_, next)| next);
        assert_eq!(refused, Err(InflightError::Misaligned), "{offset}");
    }
    assert!(SplitLog::open(&memory(SHAPE, 8).area(1).unwrap(), SIZE, 0).is_ok());
}

#[test]
fn memory_is_as_large_as_its_queues_need() {
    // 16 bytes, and 16 for each entry, in whole cache lines.
    assert_eq!(InflightShape { packed: false, num_queues: 1, queue_size: 1 }.bytes(), 64);
    assert_eq!(InflightShape { packed: false, num_queues: 3, queue_size: 128 }.bytes(), 3 * 2112);
    assert_eq!(
        InflightShape { packed: false, num_queues: u16::MAX, queue_size: u16::MAX }.bytes(),
        65_535 * (65_536 * 16)
    );
    // The figure in docs/operating/qemu-options.md.
    let largest = |packed| InflightShape { packed, num_queues: 64, queue_size: 1024 }.bytes();
    assert_eq!([largest(false), largest(true)], [1_052_672, 2_101_248]);
    let file = SHAPE.create().unwrap();
    assert_eq!(file.metadata().unwrap().len(), SHAPE.bytes());
    assert!(ftruncate(&file, 0).is_err() && fcntl_get_seals(&file).unwrap().contains(SealFlags::SHRINK));
}

/// For every size that may be passed: memory that a daemon created as asked, and enlarged memory for every largest
/// size. No size above the disk's maximum is found.
#[test]
fn the_shape_of_memory_follows_from_its_length() {
    for (packed, num_queues) in [(false, 1), (false, 3), (false, 256), (true, 1), (true, 3), (true, 256)] {
        for queue_size in 0..=1 << 15 {
            let told = InflightShape { packed, num_queues, queue_size };
            assert_eq!(told.matching_bytes(told.bytes(), 1 << 15), told);
            assert_eq!(
                told.matching_bytes(told.bytes() + 1, 1 << 15),
                told,
                "a front-end that maps more than it needs"
            );
            assert_eq!(told.matching_bytes(told.bytes() - 1, 1 << 15), told, "is refused then");
            for max in (2..16).map(|exp| 1 << exp).filter(|&max| max >= queue_size) {
                let ours = told.enlarged_for(max);
                for accepted in [max, 1 << 15] {
                    assert_eq!(told.matching_bytes(ours.bytes(), accepted), ours, "{told:?}");
                }
                // A smaller size that needs as many bytes may be found.
                let bounded = told.matching_bytes(ours.bytes(), max / 2).queue_size;
                assert!(bounded <= queue_size.max(max / 2), "{told:?}, of {max}: {bounded}");
            }
        }
    }
}

#[test]
fn enlarged_memory_is_refused_by_a_daemon_that_does_not_know_it() {
    let told = InflightShape { packed: false, num_queues: 2, queue_size: SIZE };
    for ours in [told.enlarged_for(64), told] {
        let file = ours.create().unwrap();
        let map = |bytes| InflightMemory::map(told, ours.queue_size, file.try_clone().unwrap(), 0, bytes).unwrap();
        for index in 0..2 {
            let area = map(ours.bytes()).area(index).unwrap();
            let (mut log, _) = SplitLog::open(&area, ours.queue_size, 0).unwrap();
            log.record_taken(ours.queue_size - 1);
            let (log, next) = SplitLog::open(&area, ours.queue_size, 0).unwrap();
            assert_eq!((next, resubmitted(log)), (Some(1), vec![ours.queue_size - 1]));
        }
        // The view of a daemon that relies on the queue size passed.
        let seen = SplitLog::open(&map(told.bytes()).area(0).unwrap(), SIZE, 0).map(|(_, next)| next);
        let refused = InflightError::Version { version: 1, features: 1 << 63 };
        assert_eq!(seen, if ours == told { Ok(Some(1)) } else { Err(refused) });
    }
}

#[test]
fn requests_of_other_queues_are_seen_from_any_area() {
    for (packed, header, entry) in [(false, 16, 16), (true, 32, 32)] {
        let shape = InflightShape { packed, ..SHAPE };
        let file = shape.create().unwrap();
        let set = |at: u64, bytes: &[u8]| file.write_all_at(bytes, shape.area_bytes() + at).unwrap();
        let memory = InflightMemory::map(shape, SIZE, file.try_clone().unwrap(), 0, shape.bytes()).unwrap();
        let first = memory.area(0).unwrap();
        let seen = || [0, 1, 2].map(|index| first.other_area_has_requests(index));
        assert_eq!(seen(), [false; 3]);
        set(header + entry * 7, &[1]);
        assert_eq!(seen(), [false; 3], "without a version it does not count");
        set(8, &1_u16.to_ne_bytes());
        assert_eq!(seen(), [false, true, false], "the last entry of the last queue");
        set(header + entry * 7, &[0]);
        assert_eq!(seen(), [false; 3]);
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let one_more = |num_queues, queue_size| InflightShape { packed: false, num_queues, queue_size }.check(SHAPE);
    assert!(one_more(2, SIZE).is_ok() && one_more(1, 1).is_ok());
    assert!(matches!(one_more(3, SIZE), Err(InflightMemoryError::Shape { num_queues: 3, num_queues_max: 2, .. })));
    assert!(matches!(one_more(2, 9), Err(InflightMemoryError::Shape { queue_size: 9, queue_size_max: SIZE, .. })));
    let map = |offset, bytes| InflightMemory::map(SHAPE, SIZE, SHAPE.create().unwrap(), offset, bytes);
    let needed = SHAPE.bytes();
    assert!(matches!(map(0, needed - 1), Err(InflightMemoryError::TooSmall { .. })));
    assert!(matches!(map(8, needed), Err(InflightMemoryError::Map(MemoryError::BeyondFile { .. }))));
    assert!(matches!(map(u64::MAX, needed), Err(InflightMemoryError::Map(MemoryError::BadRange { .. }))));
    // If a front-end names a longer file, only the needed bytes are mapped.
    assert!(map(0, u64::MAX).is_ok());
}
