use std::fs::File;
use std::os::unix::fs::FileExt;

use super::*;
use crate::inflight::{InflightMemory, InflightShape};

const SIZE: u16 = 5;
const SHAPE: InflightShape = InflightShape { packed: true, num_queues: 2, queue_size: SIZE };

/// Queue 1 of two, so that its area is not at the start.
struct Log(File);

impl Log {
    fn new() -> Self {
        Self(SHAPE.create().unwrap())
    }

    fn open(&self, used: Cursor) -> Result<(PackedLog, bool), InflightError> {
        let memory = InflightMemory::map(SHAPE, SIZE, self.0.try_clone().unwrap(), 0, SHAPE.bytes()).unwrap();
        PackedLog::open(&memory.area(1)?, SIZE, used)
    }

    fn bytes<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact_at(&mut bytes, SHAPE.bytes() / 2 + at).unwrap();
        bytes
    }

    fn set(&self, at: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, SHAPE.bytes() / 2 + at).unwrap();
    }

    /// The header behind the features: version, `desc_num`, `free_head`, `old_free_head`, `used_idx`,
    /// `old_used_idx`, both counters.
    fn header(&self) -> ([u16; 6], [u8; 2]) {
        let bytes: [u8; 14] = self.bytes(8);
        let words = std::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        (words, [bytes[12], bytes[13]])
    }

    /// Inflight, next, last, num, counter.
    fn entry(&self, entry: u64) -> (u8, [u16; 3], u64) {
        let bytes: [u8; 16] = self.bytes(32 + 32 * entry);
        assert_eq!(bytes[1], 0, "padding");
        let words = std::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i + 2], bytes[2 * i + 3]]));
        (bytes[0], words, u64::from_ne_bytes(bytes[8..].try_into().unwrap()))
    }
}

fn at(index: u16, wrap: bool) -> Cursor {
    Cursor { index, wrap }
}

fn chain(descriptors: u16, id: u16) -> impl Iterator<Item = RawPackedDescriptor> {
    (0..descriptors).map(move |i| RawPackedDescriptor {
        addr: 0x1122_3344_5566_7788,
        len: 0x99aa_bbcc,
        id: id + i,
        flags: 7,
    })
}

#[test]
fn the_log_has_the_documented_layout() {
    assert_eq!(SHAPE.bytes(), 2 * (32_u64 + 5 * 32).next_multiple_of(64));
    let file = Log::new();
    let (mut log, is_new) = file.open(at(3, false)).unwrap();
    assert!(is_new);
    assert_eq!(file.header(), ([1, SIZE, 0, 0, 3, 3], [0, 0]));
    assert_eq!(
        [log.record_taken(chain(2, 40)), log.record_taken(chain(1, 50)), log.record_taken(chain(1, 60))],
        [0, 2, 3]
    );
    assert_eq!(file.header(), ([1, SIZE, 4, 4, 3, 3], [0, 0]));
    assert_eq!(file.entry(0), (1, [1, 1, 2], 0));
    assert_eq!((file.entry(2), file.entry(3)), ((1, [3, 2, 1], 1), (1, [4, 3, 1], 2)));
    assert_eq!(file.bytes::<4>(32 + 32 + 16), [41, 0, 7, 0]);
    assert_eq!(u32::from_ne_bytes(file.bytes(32 + 32 + 20)), 0x99aa_bbcc);
    assert_eq!(u64::from_ne_bytes(file.bytes(32 + 32 + 24)), 0x1122_3344_5566_7788);
    log.begin_batch([2, 0].into_iter(), at(1, true));
    assert_eq!(file.header(), ([1, SIZE, 0, 4, 1, 3], [1, 0]));
    assert_eq!([file.entry(0).0, file.entry(2).0], [1, 1]);
    assert_eq!([file.entry(2).1[0], file.entry(1).1[0]], [4, 2], "the free list goes on");
    log.end_batch([2, 0].into_iter());
    assert_eq!(file.header(), ([1, SIZE, 0, 0, 1, 1], [1, 1]));
    assert_eq!([file.entry(0).0, file.entry(2).0, file.entry(3).0], [0, 0, 1]);
}

#[test]
fn a_batch_counts_if_it_was_published() {
    for published in [false, true] {
        let file = Log::new();
        let (mut log, _) = file.open(at(3, false)).unwrap();
        (0..3).for_each(|i| _ = log.record_taken(chain(1 + i % 2, 10 * i)));
        log.begin_batch([1, 0].into_iter(), at(1, true));
        let (mut log, is_new) = file.open(at(0, true)).unwrap();
        assert_eq!((is_new, log.batch()), (false, Some((at(3, false), at(1, true)))));
        let expected = if published { (at(1, true), 1) } else { (at(3, false), 4) };
        assert_eq!(log.resume(published), Ok(expected));
        let ids: Vec<_> = std::iter::from_fn(|| log.resubmit()).map(|chain| chain.id).collect();
        assert_eq!(ids, if published { vec![20] } else { vec![0, 11, 20] });
        // The next queue finds the batch finished.
        let (mut log, _) = file.open(at(0, true)).unwrap();
        assert_eq!((log.batch(), log.resume(true)), (None, Ok(expected)));
    }
}

/// A full ring is used at once: the index is the same, and only the wrap counter differs.
#[test]
fn a_batch_may_be_all_of_the_ring() {
    let file = Log::new();
    let (mut log, _) = file.open(at(2, true)).unwrap();
    let head = log.record_taken(chain(SIZE, 0));
    log.begin_batch(std::iter::once(head), at(2, false));
    assert_eq!(file.open(at(2, true)).unwrap().0.batch(), Some((at(2, true), at(2, false))));
}

#[test]
fn enlarged_memory_is_refused_by_a_daemon_that_does_not_know_it() {
    for ours in [SHAPE.enlarged_for(64), SHAPE] {
        let file = ours.create().unwrap();
        let size = ours.queue_size;
        let map = |bytes| InflightMemory::map(SHAPE, size, file.try_clone().unwrap(), 0, bytes).unwrap();
        for index in 0..2 {
            let area = map(ours.bytes()).area(index).unwrap();
            PackedLog::open(&area, size, at(0, true)).unwrap().0.record_taken(chain(size, 0));
            let (mut log, is_new) = PackedLog::open(&area, size, at(0, true)).unwrap();
            assert_eq!((is_new, log.resume(false)), (false, Ok((at(0, true), size))));
        }
        // The view of a daemon that relies on the queue size passed.
        let seen = PackedLog::open(&map(SHAPE.bytes()).area(0).unwrap(), SIZE, at(0, true)).map(|(_, is_new)| is_new);
        let refused = InflightError::Size { entries: size, size: SIZE };
        assert_eq!(seen, if ours == SHAPE { Ok(false) } else { Err(refused) });
        let mut features = [0xff; 8];
        file.read_exact_at(&mut features, 0).unwrap();
        assert_eq!(features, [0; 8], "as the document has them");
    }
}

#[test]
fn an_invalid_log_is_refused() {
    let refused = |place: u64, bytes: &[u8]| {
        let file = Log::new();
        let (mut log, _) = file.open(at(0, true)).unwrap();
        log.record_taken(chain(2, 0));
        file.set(place, bytes);
        file.open(at(0, true)).and_then(|(mut log, _)| log.resume(false)).unwrap_err()
    };
    let entries = SIZE;
    assert_eq!(refused(8, &[2]), InflightError::Version { version: 2, features: 0 });
    assert_eq!(
        refused(0, &[1]),
        InflightError::Version { version: 1, features: u64::from_ne_bytes([1, 0, 0, 0, 0, 0, 0, 0]) }
    );
    assert_eq!(refused(10, &4_u16.to_ne_bytes()), InflightError::Size { entries: 4, size: SIZE });
    assert_eq!(refused(10, &6_u16.to_ne_bytes()), InflightError::Size { entries: 6, size: SIZE });
    assert_eq!(refused(16, &5_u16.to_ne_bytes()), InflightError::Place { index: 5, size: SIZE });
    assert_eq!(refused(18, &9_u16.to_ne_bytes()), InflightError::Place { index: 9, size: SIZE });
    assert_eq!(refused(14, &1_u16.to_ne_bytes()), InflightError::Entry { entry: 1, entries }, "free and in a chain");
    assert_eq!(refused(14, &3_u16.to_ne_bytes()), InflightError::Entry { entry: 2, entries }, "in no list");
    let entry = |entry: u64, field: u64| 32 + 32 * entry + field;
    assert_eq!(refused(entry(4, 2), &2_u16.to_ne_bytes()), InflightError::Entry { entry: 2, entries }, "endless");
    assert_eq!(refused(entry(0, 2), &77_u16.to_ne_bytes()), InflightError::Entry { entry: 77, entries });
    assert_eq!(refused(entry(0, 4), &0_u16.to_ne_bytes()), InflightError::Entry { entry: 0, entries }, "another end");
    assert_eq!(refused(entry(0, 6), &0_u16.to_ne_bytes()), InflightError::Entry { entry: 0, entries }, "no length");
}
