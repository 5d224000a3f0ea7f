//! Decides: the in-flight log of a split ring has these entries before a request is executed: every store, in order.
//! Decides: unanswered requests of an earlier split ring are executed again, in this order (`resume`).
//!
//! The in-flight log of a split ring.
//!
//! ```text
//!  0 features (u64)   8 version   10 desc_num   12 last_batch_head   14 used_idx (u16 each)
//!  16 + 16 × head:  0 inflight (u8)   6 next (u16)   8 counter (u64)
//! ```
//!
//! Each line below is one store. The process may end after any of them. The right column is the state of the chain
//! then, as the next queue finds it. Only this thread writes to the log, so its stores must stay in order, and no more:
//! all are releases.
//!
//! ```text
//!  taken:      entry.counter = next           available: it is taken again, from the ring
//!              entry.inflight = 1             in flight: it is resubmitted, and may be executed twice. Execution starts
//!                                               only after this store
//!  completed:  (the used entry)               in flight
//!              entry.next = last_batch_head   in flight
//!              last_batch_head = head         in flight: a link counts only if the used index covers it
//!  published:  the ring's used index          used, all of the batch at once: the driver may have seen it. The log's used_idx
//!                                               is behind by the batch. Its heads are the links from last_batch_head, as
//!                                               many as the difference. Their `inflight` must be cleared, whatever its value
//!              entry.inflight = 0             the same, for each chain of the batch
//!              used_idx = the used index      used, and finished
//! ```
//!
//! The next queue also gets its position in the available ring from the log. Every taken chain is either used or in
//! flight. So the next chain is at the used index plus the number in flight. To finish a batch, the next queue makes
//! the stores that this one had left, so it may itself end after any of them. A log of version 0 is new: its version is
//! set last.
//!
//! The vhost-user document has features 0. Here one bit is set if the area is larger than the front-end's queue size
//! makes it.

use super::{InflightArea, InflightError, InflightMemory};
use crate::area::{Area, AreaError};

const HEADER_BYTES: u64 = 16;
const ENTRY_BYTES: u64 = 16;
const VERSION_1: u16 = 1;

/// Feature bit of a log with enlarged areas: they are farther apart than the front-end's queue size says. A daemon that
/// relies on that size would look for the logs of later queues in the wrong place, and lose their requests. This bit
/// makes such a daemon refuse the first log. The vhost-user document defines no feature bits, and would assign the
/// highest one last.
const ENLARGED: u64 = 1 << 63;

/// Indices of the 16-bit fields.
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

/// Length of the log of a queue.
pub(super) fn bytes(queue_size: u16) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * u64::from(queue_size)
}

/// Whether the log has chains in flight.
pub(super) fn has_requests(area: &InflightArea) -> Result<bool, AreaError> {
    let InflightArea { whole: InflightMemory { memory, shape, .. }, address } = area;
    let bytes = bytes(shape.queue_size) as usize;
    let words = Area::<u16>::new(memory, *address, bytes / 2)?;
    let flags = Area::<u8>::new(memory, *address, bytes)?;
    Ok(words.get(VERSION) != 0 && (0..shape.queue_size).any(|head| flags.get(inflight(head)) != 0))
}

/// The log of one queue. The same bytes are mapped in three widths. Each byte is accessed in one width only.
#[derive(Debug)]
pub(crate) struct SplitLog {
    flags: Area<u8>,
    words: Area<u16>,
    /// The features, then two words for each entry.
    counters: Area<u64>,
    next_counter: u64,
    last_batch_head: u16,
    /// Heads of chains that are completed and not published.
    batch: Vec<u16>,
    /// Heads of chains in flight in an earlier queue, the oldest last.
    resubmit: Vec<u16>,
}

impl SplitLog {
    /// Opens the log of a queue of `size` entries with used index `used`. Also returns the index of the next chain in
    /// the available ring. A new log does not know it.
    pub(crate) fn open(area: &InflightArea, size: u16, used: u16) -> Result<(Self, Option<u16>), InflightError> {
        area.check(false, size)?;
        let InflightArea { whole: InflightMemory { memory, shape, is_enlarged }, address } = area;
        let expected = if *is_enlarged { ENLARGED } else { 0 };
        // In bounds, because the memory was mapped for this shape.
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

    /// Starts a new log. The area need not be zero: an earlier attempt may have ended in the middle.
    fn begin(&mut self, queue_size: u16, features: u64, used: u16) {
        (0..queue_size).for_each(|head| self.set_in_flight(head, false));
        self.counters.set(0, features);
        self.words.set(DESC_NUM, queue_size);
        self.words.set(LAST_BATCH_HEAD, 0);
        self.words.set(USED_IDX, used);
        self.words.set(VERSION, VERSION_1);
    }

    /// Finishes the last batch and finds the chains in flight. Returns their number.
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
        // At most one chain per entry.
        Ok(in_flight.len() as u16)
    }

    /// Chains of an earlier queue that are still to be resubmitted.
    pub(crate) fn to_resubmit(&self) -> u16 {
        // At most one chain per entry.
        self.resubmit.len() as u16
    }

    /// Takes the oldest chain to resubmit. In the log it stays in flight, with its counter.
    pub(crate) fn resubmit(&mut self) -> Option<u16> {
        self.resubmit.pop()
    }

    /// Whether part of the log may lie in a page that was replaced after a fault.
    pub(crate) fn has_lost(&self) -> bool {
        self.words.has_lost()
    }

    /// Records that a chain was taken from the available ring. Call it before its execution starts.
    pub(crate) fn record_taken(&mut self, head: u16) {
        self.counters.set(counter(head), self.next_counter);
        self.next_counter = self.next_counter.wrapping_add(1);
        self.set_in_flight(head, true);
    }

    /// Undoes the last [`resubmit`](Self::resubmit) or [`record_taken`](Self::record_taken), which was for this chain.
    pub(crate) fn put_back(&mut self, head: u16, is_resubmitted: bool) {
        if is_resubmitted {
            self.resubmit.push(head);
        } else {
            self.set_in_flight(head, false);
        }
    }

    /// Records that the next published used index covers this chain.
    pub(crate) fn record_completed(&mut self, head: u16) {
        self.words.set(next(head), self.last_batch_head);
        self.words.set(LAST_BATCH_HEAD, head);
        self.last_batch_head = head;
        self.batch.push(head);
    }

    /// Records that the ring's used index covers all completed chains.
    pub(crate) fn end_batch(&mut self, used: u16) {
        self.batch.iter().for_each(|&head| self.set_in_flight(head, false));
        self.batch.clear();
        self.words.set(USED_IDX, used);
    }

    fn set_in_flight(&self, head: u16, yes: bool) {
        self.flags.set(inflight(head), yes.into());
    }
}
