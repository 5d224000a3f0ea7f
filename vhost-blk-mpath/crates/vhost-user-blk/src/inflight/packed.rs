//! The in-flight log of a packed ring.
//!
//! ```text
//!  0 features (u64)   8 version   10 desc_num   12 free_head   14 old_free_head (u16 each)
//!  16 used_idx   18 old_used_idx (u16 each)   20 used_wrap_counter   21 old_used_wrap_counter (u8 each)
//!  32 + 32 × entry:  0 inflight (u8)   2 next   4 last   6 num (u16 each)   8 counter (u64)
//!                    16 id   18 flags (u16 each)   20 len (u32)   24 addr (u64)
//! ```
//!
//! What is used overwrites what was available in a packed ring, so the log has a copy of each descriptor in flight. A chain is a list
//! of `num` entries, from its head over `next` to `last`; all others are in the free list, which begins at `free_head` and ends with
//! a `next` that is no entry. Free list and used place are there twice: as they will be once a batch is shown, and as they were.
//!
//! Each line below is one store, and the process may be gone after any of them. What a chain then is, for the queue that follows,
//! stands to the right. All fields of a line are in one word of 64 bits, lest a wrap counter is of another time than its index.
//!
//! ```text
//!  taken:      entry.id, flags, len; addr     available: these entries are free; the chain is taken again, from the ring
//!              head.counter = next            the same
//!              head.inflight, last, num       the same: in the free list, `inflight` means nothing
//!              free_head, old_free_head       in flight: it is resubmitted, from the log
//!  completed:  (id and length in the ring)    in flight
//!  published:  last.next = free_head          in flight, for each of the batch: nobody goes on from the last entry of a chain
//!              free_head                      in flight: old_free_head counts
//!              used_idx, used_wrap_counter    in flight, as the driver was not shown the first of the batch. The ring's flags of
//!              (the ring's other flags)         all the others are then taken back, and free_head and used_idx with them
//!              (the ring's first flags)       used, all of the batch at once: the old values follow the new ones
//!              head.inflight = 0              the same, for each of the batch
//!              old_free_head                  the same
//!              old_used_idx, …_wrap_counter   used, and done with
//! ```
//!
//! The first of a batch was shown if its descriptor in the ring, at the old used place, is no longer available. A driver that has seen
//! it can make it available once more, with the other wrap counter, and not twice without another batch.
//!
//! A queue that follows has its place in the ring from here, too: all that is taken is in flight or used, so the next chain is as
//! many descriptors after the used place as are in flight. What it stores itself may be stored again by the next, up to any line.
//!
//! `desc_num` is what the area has room for, which may be more than the ring has and a front-end tells. The features are 0.

use super::{InflightArea, InflightError, InflightMemory};
use crate::area::{Area, AreaError};
use crate::descriptor::{Cursor, RawPackedDescriptor, Taken};

const HEADER_BYTES: u64 = 32;
const ENTRY_BYTES: u64 = 32;
const VERSION_1: u16 = 1;

/// Words of the log.
const FEATURES: usize = 0;
const FREE_LIST: usize = 1;
const USED: usize = 2;
const ENTRIES: usize = 4;
const ENTRY_WORDS: usize = 4;

/// Words of an entry.
const STATE: usize = 0;
const COUNTER: usize = 1;
const DESCRIPTOR: usize = 2;
const ADDRESS: usize = 3;

fn word(entry: u16, word: usize) -> usize {
    ENTRIES + ENTRY_WORDS * usize::from(entry) + word
}

/// What the log of a queue of so many descriptors takes.
pub(super) fn bytes(queue_size: u16) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * u64::from(queue_size)
}

/// Whether a log says that chains are in flight. An entry in the free list may say so too.
pub(super) fn has_requests(area: &InflightArea) -> Result<bool, AreaError> {
    let InflightArea { whole: InflightMemory { memory, shape, .. }, address } = area;
    let words = Area::<u64>::new(memory, *address, bytes(shape.queue_size) as usize / size_of::<u64>())?;
    let [version, ..] = fields(words.get(FREE_LIST));
    let in_flight = |entry| State::from_word(words.get(word(entry, STATE))).in_flight;
    Ok(version != 0 && (0..shape.queue_size).any(in_flight))
}

/// The first word of an entry.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    in_flight: bool,
    next: u16,
    last: u16,
    num: u16,
}

impl State {
    fn to_word(self) -> u64 {
        four([u16::from_ne_bytes([self.in_flight.into(), 0]), self.next, self.last, self.num])
    }

    fn from_word(word: u64) -> Self {
        let [in_flight, next, last, num] = fields(word);
        Self { in_flight: in_flight.to_ne_bytes()[0] != 0, next, last, num }
    }
}

/// A word of four fields, in the order of their addresses.
fn four(fields: [u16; 4]) -> u64 {
    let mut bytes = [0; 8];
    for (at, field) in bytes.chunks_exact_mut(2).zip(fields) {
        at.copy_from_slice(&field.to_ne_bytes());
    }
    u64::from_ne_bytes(bytes)
}

fn fields(word: u64) -> [u16; 4] {
    let bytes = word.to_ne_bytes();
    std::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]]))
}

/// The log of one queue.
#[derive(Debug)]
pub(crate) struct PackedLog {
    words: Area<u64>,
    ring_size: u16,
    /// The first word of each entry, as we know it: a front-end can change the other copy.
    entries: Vec<State>,
    free_head: u16,
    /// Before the batch that is being shown.
    old_free_head: u16,
    old_used: Cursor,
    used: Cursor,
    next_counter: u64,
    /// Chains that a queue before this one had in flight, the oldest last.
    resubmit: Vec<Taken>,
}

impl PackedLog {
    /// The log of a queue of `size` descriptors; a new one starts at `used`. Tells whether it is new; if not, it is to be gone on with
    /// by way of [`batch`](Self::batch) and [`resume`](Self::resume).
    pub(crate) fn open(area: &InflightArea, size: u16, used: Cursor) -> Result<(Self, bool), InflightError> {
        area.check(true, size)?;
        let InflightArea { whole: InflightMemory { memory, shape, .. }, address } = area;
        let words = bytes(shape.queue_size) as usize / size_of::<u64>();
        // In bounds, as the memory was mapped for that.
        let words = Area::new(memory, *address, words).map_err(|_: AreaError| InflightError::Misaligned)?;
        let mut log = Self {
            words,
            ring_size: size,
            entries: Vec::new(),
            free_head: 0,
            old_free_head: 0,
            old_used: used,
            used,
            next_counter: 0,
            resubmit: Vec::new(),
        };
        let [version, entries, free_head, old_free_head] = fields(log.words.get(FREE_LIST));
        let features = log.words.get(FEATURES);
        match version {
            0 => {
                log.begin(shape.queue_size);
                Ok((log, true))
            }
            VERSION_1 if features == 0 => {
                if !(size..=shape.queue_size).contains(&entries) {
                    return Err(InflightError::Size { entries, size });
                }
                log.entries = (0..entries).map(|entry| State::from_word(log.words.get(word(entry, STATE)))).collect();
                (log.free_head, log.old_free_head) = (free_head, old_free_head);
                log.read_used()?;
                Ok((log, false))
            }
            _ => Err(InflightError::Version { version, features }),
        }
    }

    /// Makes a log of an area without one, which need not be zeros: another one's attempt may have ended in the middle.
    fn begin(&mut self, queue_size: u16) {
        self.entries = (1..=queue_size).map(|next| State { next, ..State::default() }).collect();
        (0..queue_size).for_each(|entry| self.store_state(entry));
        self.words.set(FEATURES, 0);
        self.store_used();
        // With it comes the version.
        self.store_free_list();
    }

    fn read_used(&mut self) -> Result<(), InflightError> {
        let [used, old, wraps, _] = fields(self.words.get(USED));
        let size = self.ring_size;
        let cursor = |index, wrap: u8| {
            let cursor = Cursor { index, wrap: wrap != 0 };
            if index < size { Ok(cursor) } else { Err(InflightError::Place { index, size }) }
        };
        let [wrap, old_wrap] = wraps.to_ne_bytes();
        (self.used, self.old_used) = (cursor(used, wrap)?, cursor(old, old_wrap)?);
        // More than the ring holds cannot be shown.
        if self.old_used.distance(self.used, size) > u32::from(size) {
            return Err(InflightError::Place { index: used, size });
        }
        Ok(())
    }

    /// The used places before and after a batch that a queue before this one may or may not have shown.
    pub(crate) fn batch(&self) -> Option<(Cursor, Cursor)> {
        (self.old_used != self.used).then_some((self.old_used, self.used))
    }

    /// Goes on after that batch, or from before it if it was not `shown`. Tells the used place, and how many descriptors are in flight
    /// after it.
    pub(crate) fn resume(&mut self, shown: bool) -> Result<(Cursor, u16), InflightError> {
        if shown {
            (self.old_free_head, self.old_used) = (self.free_head, self.used);
        } else {
            (self.free_head, self.used) = (self.old_free_head, self.old_used);
        }
        let in_flight = self.sort_entries()?;
        self.store_free_list();
        self.store_used();
        Ok((self.used, in_flight))
    }

    /// Finds the chains in flight; how many descriptors they have. Each entry must be in one of them or free.
    fn sort_entries(&mut self) -> Result<u16, InflightError> {
        let entries = self.entries.len() as u16;
        let mut seen = vec![false; entries.into()];
        let mut see = |entry: u16| {
            let seen = seen.get_mut(usize::from(entry)).filter(|seen| !**seen);
            seen.map(|seen| *seen = true).ok_or(InflightError::Entry { entry, entries })
        };
        let mut free = self.free_head;
        // Ends: an entry that comes again is an error.
        while free < entries {
            see(free)?;
            if std::mem::take(&mut self.entries[usize::from(free)].in_flight) {
                self.store_state(free);
            }
            free = self.entries[usize::from(free)].next;
        }
        let mut chains = Vec::new();
        let mut in_flight: u32 = 0;
        for head in 0..entries {
            let State { in_flight: true, last, num, .. } = self.entries[usize::from(head)] else { continue };
            let mut at = head;
            see(at)?;
            for _ in 1..num {
                at = self.entries[usize::from(at)].next;
                see(at)?;
            }
            if num == 0 || at != last {
                return Err(InflightError::Entry { entry: head, entries });
            }
            let id = u16::from_le(self.descriptor(last).0.id);
            chains.push((self.words.get(word(head, COUNTER)), Taken { head, descriptors: num, id }));
            in_flight += u32::from(num);
        }
        if let Some(lost) = seen.iter().position(|seen| !seen) {
            return Err(InflightError::Entry { entry: lost as u16, entries });
        }
        let size = self.ring_size;
        let in_flight = u16::try_from(in_flight).ok().filter(|in_flight| *in_flight <= size);
        let in_flight = in_flight.ok_or(InflightError::TooMany { size })?;
        chains.sort_unstable_by_key(|(counter, chain)| (*counter, chain.head));
        self.next_counter = chains.last().map_or(0, |(newest, _)| newest.wrapping_add(1));
        self.resubmit = chains.into_iter().rev().map(|(_, chain)| chain).collect();
        Ok(in_flight)
    }

    /// Chains that a queue before this one had in flight and that were not taken again yet.
    pub(crate) fn to_resubmit(&self) -> u16 {
        // At most one an entry.
        self.resubmit.len() as u16
    }

    /// Whether any of it may have been lost with a page that could not be accessed.
    pub(crate) fn has_lost(&self) -> bool {
        self.words.has_lost()
    }

    /// Takes the oldest of these. They stay in flight in the log, by the counter they have.
    pub(crate) fn resubmit(&mut self) -> Option<Taken> {
        self.resubmit.pop()
    }

    /// A chain was taken from the ring; nothing was done for it yet. Tells the entry of its head. There are free entries for all that a
    /// ring holds.
    pub(crate) fn taken(&mut self, chain: impl Iterator<Item = RawPackedDescriptor>) -> u16 {
        let head = self.free_head;
        let (mut last, mut num) = (head, 0);
        for RawPackedDescriptor { addr, len, id, flags } in chain {
            last = self.free_head;
            // The length is in the last two of four fields, as bytes in the order of the host.
            let [.., first, second] = fields(u64::from(len) | u64::from(len) << 32);
            self.words.set(word(last, DESCRIPTOR), four([id, flags, first, second]));
            self.words.set(word(last, ADDRESS), addr);
            self.free_head = self.entries[usize::from(last)].next;
            num += 1;
        }
        self.words.set(word(head, COUNTER), self.next_counter);
        self.next_counter = self.next_counter.wrapping_add(1);
        let state = &mut self.entries[usize::from(head)];
        *state = State { in_flight: true, last, num, ..*state };
        self.store_state(head);
        self.old_free_head = self.free_head;
        self.store_free_list();
        head
    }

    /// Copies the descriptor in `entry`, in the byte order of the ring, and tells the entry after it.
    pub(crate) fn descriptor(&self, entry: u16) -> (RawPackedDescriptor, u16) {
        let [id, flags, first, second] = fields(self.words.get(word(entry, DESCRIPTOR)));
        let len = four([first, second, first, second]) as u32;
        let addr = self.words.get(word(entry, ADDRESS));
        (RawPackedDescriptor { addr, len, id, flags }, self.entries[usize::from(entry)].next)
    }

    /// The chains with these heads are about to be shown as used, up to the place `used`.
    pub(crate) fn publishing(&mut self, heads: impl Iterator<Item = u16>, used: Cursor) {
        for head in heads {
            let last = self.entries[usize::from(head)].last;
            self.entries[usize::from(last)].next = self.free_head;
            self.store_state(last);
            self.free_head = head;
        }
        self.used = used;
        self.store_free_list();
        self.store_used();
    }

    /// They have been.
    pub(crate) fn published(&mut self, heads: impl Iterator<Item = u16>) {
        for head in heads {
            self.entries[usize::from(head)].in_flight = false;
            self.store_state(head);
        }
        (self.old_free_head, self.old_used) = (self.free_head, self.used);
        self.store_free_list();
        self.store_used();
    }

    fn store_state(&self, entry: u16) {
        self.words.set(word(entry, STATE), self.entries[usize::from(entry)].to_word());
    }

    fn store_free_list(&self) {
        let entries = self.entries.len() as u16;
        self.words.set(FREE_LIST, four([VERSION_1, entries, self.free_head, self.old_free_head]));
    }

    fn store_used(&self) {
        let wraps = u16::from_ne_bytes([self.used.wrap.into(), self.old_used.wrap.into()]);
        self.words.set(USED, four([self.used.index, self.old_used.index, wraps, 0]));
    }
}

#[cfg(test)]
mod tests {
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

        /// The header after the features: version, `desc_num`, `free_head`, `old_free_head`, `used_idx`, `old_used_idx`, both counters.
        fn header(&self) -> ([u16; 6], [u8; 2]) {
            let bytes: [u8; 14] = self.bytes(8);
            let words = std::array::from_fn(|i| u16::from_ne_bytes([bytes[2 * i], bytes[2 * i + 1]]));
            (words, [bytes[12], bytes[13]])
        }

        /// inflight, next, last, num, counter.
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
    fn the_log_is_laid_out_as_documented() {
        assert_eq!(SHAPE.bytes(), 2 * (32_u64 + 5 * 32).next_multiple_of(64));
        let file = Log::new();
        let (mut log, is_new) = file.open(at(3, false)).unwrap();
        assert!(is_new);
        assert_eq!(file.header(), ([1, SIZE, 0, 0, 3, 3], [0, 0]));
        assert_eq!([log.taken(chain(2, 40)), log.taken(chain(1, 50)), log.taken(chain(1, 60))], [0, 2, 3]);
        assert_eq!(file.header(), ([1, SIZE, 4, 4, 3, 3], [0, 0]));
        assert_eq!(file.entry(0), (1, [1, 1, 2], 0));
        assert_eq!((file.entry(2), file.entry(3)), ((1, [3, 2, 1], 1), (1, [4, 3, 1], 2)));
        assert_eq!(file.bytes::<4>(32 + 32 + 16), [41, 0, 7, 0]);
        assert_eq!(u32::from_ne_bytes(file.bytes(32 + 32 + 20)), 0x99aa_bbcc);
        assert_eq!(u64::from_ne_bytes(file.bytes(32 + 32 + 24)), 0x1122_3344_5566_7788);
        log.publishing([2, 0].into_iter(), at(1, true));
        assert_eq!(file.header(), ([1, SIZE, 0, 4, 1, 3], [1, 0]));
        assert_eq!([file.entry(0).0, file.entry(2).0], [1, 1]);
        assert_eq!([file.entry(2).1[0], file.entry(1).1[0]], [4, 2], "the free list goes on");
        log.published([2, 0].into_iter());
        assert_eq!(file.header(), ([1, SIZE, 0, 0, 1, 1], [1, 1]));
        assert_eq!([file.entry(0).0, file.entry(2).0, file.entry(3).0], [0, 0, 1]);
    }

    #[test]
    fn a_batch_counts_if_it_was_shown() {
        for shown in [false, true] {
            let file = Log::new();
            let (mut log, _) = file.open(at(3, false)).unwrap();
            (0..3).for_each(|i| _ = log.taken(chain(1 + i % 2, 10 * i)));
            log.publishing([1, 0].into_iter(), at(1, true));
            let (mut log, is_new) = file.open(at(0, true)).unwrap();
            assert_eq!((is_new, log.batch()), (false, Some((at(3, false), at(1, true)))));
            let expected = if shown { (at(1, true), 1) } else { (at(3, false), 4) };
            assert_eq!(log.resume(shown), Ok(expected));
            let ids: Vec<_> = std::iter::from_fn(|| log.resubmit()).map(|chain| chain.id).collect();
            assert_eq!(ids, if shown { vec![20] } else { vec![0, 11, 20] });
            // The next one finds it settled.
            let (mut log, _) = file.open(at(0, true)).unwrap();
            assert_eq!((log.batch(), log.resume(true)), (None, Ok(expected)));
        }
    }

    /// A full ring is used at once: the index is where it was, and only the wrap counter tells.
    #[test]
    fn a_batch_may_be_all_of_the_ring() {
        let file = Log::new();
        let (mut log, _) = file.open(at(2, true)).unwrap();
        let head = log.taken(chain(SIZE, 0));
        log.publishing(std::iter::once(head), at(2, false));
        assert_eq!(file.open(at(2, true)).unwrap().0.batch(), Some((at(2, true), at(2, false))));
    }

    #[test]
    fn memory_for_larger_queues_than_told_is_refused_by_who_does_not_know_such() {
        for ours in [SHAPE.for_queues_of(64), SHAPE] {
            let file = ours.create().unwrap();
            let size = ours.queue_size;
            let map = |bytes| InflightMemory::map(SHAPE, size, file.try_clone().unwrap(), 0, bytes).unwrap();
            for index in 0..2 {
                let area = map(ours.bytes()).area(index).unwrap();
                PackedLog::open(&area, size, at(0, true)).unwrap().0.taken(chain(size, 0));
                let (mut log, is_new) = PackedLog::open(&area, size, at(0, true)).unwrap();
                assert_eq!((is_new, log.resume(false)), (false, Ok((at(0, true), size))));
            }
            // As a daemon sees it that goes by the queue size alone.
            let seen =
                PackedLog::open(&map(SHAPE.bytes()).area(0).unwrap(), SIZE, at(0, true)).map(|(_, is_new)| is_new);
            let refused = InflightError::Size { entries: size, size: SIZE };
            assert_eq!(seen, if ours == SHAPE { Ok(false) } else { Err(refused) });
            let mut features = [0xff; 8];
            file.read_exact_at(&mut features, 0).unwrap();
            assert_eq!(features, [0; 8], "as the document has them");
        }
    }

    #[test]
    fn a_log_that_makes_no_sense_is_refused() {
        let refused = |place: u64, bytes: &[u8]| {
            let file = Log::new();
            let (mut log, _) = file.open(at(0, true)).unwrap();
            log.taken(chain(2, 0));
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
        assert_eq!(
            refused(14, &1_u16.to_ne_bytes()),
            InflightError::Entry { entry: 1, entries },
            "free and in a chain"
        );
        assert_eq!(refused(14, &3_u16.to_ne_bytes()), InflightError::Entry { entry: 2, entries }, "in no list");
        let entry = |entry: u64, field: u64| 32 + 32 * entry + field;
        assert_eq!(refused(entry(4, 2), &2_u16.to_ne_bytes()), InflightError::Entry { entry: 2, entries }, "endless");
        assert_eq!(refused(entry(0, 2), &77_u16.to_ne_bytes()), InflightError::Entry { entry: 77, entries });
        assert_eq!(
            refused(entry(0, 4), &0_u16.to_ne_bytes()),
            InflightError::Entry { entry: 0, entries },
            "another end"
        );
        assert_eq!(refused(entry(0, 6), &0_u16.to_ne_bytes()), InflightError::Entry { entry: 0, entries }, "no length");
    }
}
