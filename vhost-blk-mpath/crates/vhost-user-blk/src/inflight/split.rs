//! The in-flight log of a split ring.
//!
//! ```text
//!  0 features (u64)   8 version   10 desc_num   12 last_batch_head   14 used_idx (u16 each)
//!  16 + 16 × head:  0 inflight (u8)   6 next (u16)   8 counter (u64)
//! ```
//!
//! Each line below is one store, and the process may be gone after any of them. What a chain then is, for the queue that follows,
//! stands to the right. Nobody else writes to the log, so the stores of one thread need to stay in order and no more: all are
//! releases.
//!
//! ```text
//!  taken:      entry.counter = next           available: it is taken again, from the ring
//!              entry.inflight = 1             in flight: it is resubmitted, and may be executed twice, but nothing is done
//!                                               for a chain before this is stored
//!  completed:  (the used entry)               in flight
//!              entry.next = last_batch_head   in flight
//!              last_batch_head = head         in flight: a link counts only if the used index covers it
//!  published:  the ring's used index          used, all of the batch at once: the driver may have seen it. The log's used_idx
//!                                               is behind by the batch, whose heads are the first so many links from
//!                                               last_batch_head; their `inflight`, whatever it says, is to be cleared
//!              entry.inflight = 0             the same, for each of the batch
//!              used_idx = the used index      used, and done with
//! ```
//!
//! A queue that follows has its place in the available ring from here, too: every chain taken is either used or in flight, so
//! the next one is at the used index plus the number in flight. What it stores to finish a batch is what the one before would
//! have stored, so it may itself be gone at any of them. A log of version 0 is new: its version is set last.
//!
//! The features are 0 in the document. Here they have one bit where the area is larger than the size told makes it.

use super::{InflightArea, InflightError, InflightMemory};
use crate::area::{Area, AreaError};

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
const VERSION_1: u16 = 1;

/// Feature bit of a log in memory that is larger than the size told makes it: areas are farther apart than that size says. A
/// daemon that goes by that size alone would find no log where it looks for that of another queue than the first, and lose what
/// that one has in flight; this bit has it refuse the first. It is not the document's, which has none yet, and so the one that it
/// would come to last.
const LARGER_THAN_TOLD: u64 = 1 << 63;

/// Places of 16-bit values, counted in such.
const VERSION: usize = 4;
const DESC_NUM: usize = 5;
const LAST_BATCH_HEAD: usize = 6;
const USED_IDX: usize = 7;

const fn inflight(head: u16) -> usize {
    16 + 16 * head as usize
}

const fn next(head: u16) -> usize {
    11 + 8 * head as usize
}

const fn counter(head: u16) -> usize {
    3 + 2 * head as usize
}

/// What the log of a queue of so many entries takes.
pub(super) fn bytes(queue_size: u16) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * u64::from(queue_size)
}

/// Whether a log says that chains are in flight.
pub(super) fn has_requests(area: &InflightArea) -> Result<bool, AreaError> {
    let InflightArea { whole: InflightMemory { memory, shape, .. }, address } = area;
    let bytes = bytes(shape.queue_size) as usize;
    let words = Area::<u16>::new(memory, *address, bytes / 2)?;
    let flags = Area::<u8>::new(memory, *address, bytes)?;
    Ok(words.get(VERSION) != 0 && (0..shape.queue_size).any(|head| flags.get(inflight(head)) != 0))
}

/// The log of one queue. The same bytes are seen in three widths, and each of them is accessed in one only.
#[derive(Debug)]
pub(crate) struct SplitLog {
    flags: Area<u8>,
    words: Area<u16>,
    /// The features, then two for each entry.
    counters: Area<u64>,
    next_counter: u64,
    last_batch_head: u16,
    /// Heads completed and not yet published.
    batch: Vec<u16>,
    /// Heads that a queue before this one had in flight, the oldest last.
    resubmit: Vec<u16>,
}

impl SplitLog {
    /// Goes on with the log of a queue of `size` entries, whose used index is `used`. Also tells the place of the next chain in the
    /// available ring; a new log does not know it.
    pub(crate) fn open(area: &InflightArea, size: u16, used: u16) -> Result<(Self, Option<u16>), InflightError> {
        area.check(false, size)?;
        let InflightArea { whole: InflightMemory { memory, shape, larger_than_told }, address } = area;
        let expected = if *larger_than_told { LARGER_THAN_TOLD } else { 0 };
        // In bounds, as the memory was mapped for that.
        let misaligned = |_: AreaError| InflightError::Misaligned;
        let bytes = bytes(shape.queue_size) as usize;
        let mut log = Self {
            flags: Area::new(memory, *address, bytes).map_err(misaligned)?,
            words: Area::new(memory, *address, bytes / 2).map_err(misaligned)?,
            counters: Area::new(memory, *address, bytes / 8).map_err(misaligned)?,
            next_counter: 0,
            last_batch_head: 0,
            batch: Vec::with_capacity(size.into()),
            resubmit: Vec::with_capacity(size.into()),
        };
        let (version, features) = (log.words.get(VERSION), log.counters.get(0));
        match version {
            0 => {
                log.begin(shape.queue_size, expected, used);
                Ok((log, None))
            }
            VERSION_1 if features == expected => {
                let in_flight = log.resume(size, used)?;
                Ok((log, Some(used.wrapping_add(in_flight))))
            }
            _ => Err(InflightError::Version { version, features }),
        }
    }

    /// Makes a log of an area without one, which need not be zeros: another one's attempt may have ended in the middle.
    fn begin(&mut self, queue_size: u16, features: u64, used: u16) {
        (0..queue_size).for_each(|head| self.set_in_flight(head, false));
        self.counters.set(0, features);
        self.words.set(DESC_NUM, queue_size);
        self.words.set(LAST_BATCH_HEAD, 0);
        self.words.set(USED_IDX, used);
        self.words.set(VERSION, VERSION_1);
    }

    /// Finishes the last batch and finds what is in flight; how much that is.
    fn resume(&mut self, size: u16, used: u16) -> Result<u16, InflightError> {
        let entries = self.words.get(DESC_NUM);
        if entries < size {
            return Err(InflightError::Size { entries, size });
        }
        let logged = self.words.get(USED_IDX);
        self.last_batch_head = self.words.get(LAST_BATCH_HEAD);
        let batch = used.wrapping_sub(logged);
        if batch > size {
            return Err(InflightError::UsedIndex { logged, used, size });
        }
        let mut head = self.last_batch_head;
        for _ in 0..batch {
            if head >= size {
                return Err(InflightError::Head { head, size });
            }
            self.set_in_flight(head, false);
            head = self.words.get(next(head));
        }
        self.words.set(USED_IDX, used);

        let in_flight = (0..size).filter(|&head| self.flags.get(inflight(head)) != 0);
        let mut in_flight: Vec<_> = in_flight.map(|head| (self.counters.get(counter(head)), head)).collect();
        in_flight.sort_unstable();
        self.next_counter = in_flight.last().map_or(0, |(newest, _)| newest.wrapping_add(1));
        self.resubmit.extend(in_flight.iter().rev().map(|(_, head)| head));
        // At most one an entry.
        Ok(in_flight.len() as u16)
    }

    /// Chains that a queue before this one had in flight and that were not taken again yet.
    pub(crate) fn to_resubmit(&self) -> u16 {
        // At most one an entry.
        self.resubmit.len() as u16
    }

    /// Takes the oldest of these. They stay in flight in the log, by the counter they have.
    pub(crate) fn resubmit(&mut self) -> Option<u16> {
        self.resubmit.pop()
    }

    /// Whether any of it may have been lost with a page that could not be accessed.
    pub(crate) fn has_lost(&self) -> bool {
        self.words.has_lost()
    }

    /// A chain was taken from the available ring; nothing was done for it yet.
    pub(crate) fn taken(&mut self, head: u16) {
        self.counters.set(counter(head), self.next_counter);
        self.next_counter = self.next_counter.wrapping_add(1);
        self.set_in_flight(head, true);
    }

    /// The next used index that is published covers this chain.
    pub(crate) fn completed(&mut self, head: u16) {
        self.words.set(next(head), self.last_batch_head);
        self.words.set(LAST_BATCH_HEAD, head);
        self.last_batch_head = head;
        self.batch.push(head);
    }

    /// The ring's used index covers all chains completed so far.
    pub(crate) fn published(&mut self, used: u16) {
        self.batch.iter().for_each(|&head| self.set_in_flight(head, false));
        self.batch.clear();
        self.words.set(USED_IDX, used);
    }

    fn set_in_flight(&self, head: u16, yes: bool) {
        self.flags.set(inflight(head), yes.into());
    }
}
