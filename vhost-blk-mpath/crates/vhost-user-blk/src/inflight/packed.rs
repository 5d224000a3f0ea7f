//! Decides: the in-flight log of a packed ring has these entries before a request is executed: every store, in order.
//! Decides: unanswered requests of an earlier packed ring are executed again, in this order (`resume`).
//!
//! The in-flight log of a packed ring.
//!
//! ```text
//!  0 features (u64)   8 version   10 desc_num   12 free_head   14 old_free_head (u16 each)
//!  16 used_idx   18 old_used_idx (u16 each)   20 used_wrap_counter   21 old_used_wrap_counter (u8 each)
//!  32 + 32 × entry:  0 inflight (u8)   2 next   4 last   6 num (u16 each)   8 counter (u64)
//!                    16 id   18 flags (u16 each)   20 len (u32)   24 addr (u64)
//! ```
//!
//! In a packed ring, used descriptors overwrite available ones. So the log keeps a copy of each descriptor in flight. A
//! chain is a list of `num` entries, from its head over `next` to `last`. All other entries are in the free list. It
//! starts at `free_head` and ends with a `next` outside the log. Free list and used position exist twice: after the
//! current batch is published, and before.
//!
//! Each line below is one store. The process may end after any of them. The right column is the state of the chain
//! then, as the next queue finds it. All fields of a line are in one 64-bit word, so that a wrap counter always belongs
//! to its index.
//!
//! ```text
//!  taken:      entry.id, flags, len; addr     available: these entries are free; the chain is taken again, from the ring
//!              head.counter = next            the same
//!              head.inflight, last, num       the same: in the free list, `inflight` means nothing
//!              free_head, old_free_head       in flight: it is resubmitted, from the log
//!  completed:  (id and length in the ring)    in flight
//!  published:  last.next = free_head          in flight, for each of the batch: the `next` of a chain's last entry is not used
//!              free_head                      in flight: old_free_head counts
//!              used_idx, used_wrap_counter    in flight, as the first of the batch was not published. The next queue
//!              (the ring's other flags)         clears the ring's flags of the others, and restores free_head and used_idx
//!              (the ring's first flags)       used, all of the batch at once: the old values follow the new ones
//!              head.inflight = 0              the same, for each of the batch
//!              old_free_head                  the same
//!              old_used_idx, …_wrap_counter   used, and finished
//! ```
//!
//! The first of a batch was published if its descriptor in the ring, at the old used position, is no longer available. A
//! driver that has seen it can make that descriptor available once more, with the other wrap counter. It cannot do so
//! twice without another batch.
//!
//! The next queue also gets its position in the ring from the log. Every taken chain is in flight or used. So the next
//! chain follows the used position after as many descriptors as are in flight. The stores of the next queue can be
//! repeated by its own successor after any line.
//!
//! `desc_num` is the number of entries in the area. It may exceed the ring's size and the front-end's queue size. The
//! features are 0.

use super::{InflightArea, InflightError, InflightMemory};
use crate::area::{Area, AreaError};
use crate::descriptor::{Cursor, RawPackedDescriptor, TakenChain};

const HEADER_BYTES: u64 = 32;
const ENTRY_BYTES: u64 = 32;
const VERSION_1: u16 = 1;

/// Words of the header.
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

/// Length of the log of a queue.
pub(super) fn bytes(queue_size: u16) -> u64 {
    HEADER_BYTES + ENTRY_BYTES * u64::from(queue_size)
}

/// Whether the log has chains in flight. Entries in the free list may count too.
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
    /// The first word of each entry. The copy in the log is not read again: the front-end can change it.
    entries: Vec<State>,
    free_head: u16,
    /// The first free entry before the current batch.
    old_free_head: u16,
    old_used: Cursor,
    used: Cursor,
    next_counter: u64,
    /// Chains in flight in an earlier queue, the oldest last.
    resubmit: Vec<TakenChain>,
}

impl PackedLog {
    /// Opens the log of a queue of `size` descriptors. A new log starts at `used`. Returns whether it is new. If not,
    /// call [`batch`](Self::batch), then [`resume`](Self::resume).
    pub(crate) fn open(area: &InflightArea, size: u16, used: Cursor) -> Result<(Self, bool), InflightError> {
        area.check(true, size)?;
        let InflightArea { whole: InflightMemory { memory, shape, .. }, address } = area;
        let words = bytes(shape.queue_size) as usize / size_of::<u64>();
        // In bounds, because the memory was mapped for this shape.
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

    /// Starts a new log. The area need not be zero: an earlier attempt may have ended in the middle.
    fn begin(&mut self, queue_size: u16) {
        self.entries = (1..=queue_size).map(|next| State { next, ..State::default() }).collect();
        (0..queue_size).for_each(|entry| self.store_state(entry));
        self.words.set(FEATURES, 0);
        self.store_used();
        // The last store, because it includes the version.
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
        // A batch cannot be longer than the ring.
        if self.old_used.distance(self.used, size) > u32::from(size) {
            return Err(InflightError::Place { index: used, size });
        }
        Ok(())
    }

    /// The used positions before and after a batch that an earlier queue may have published.
    pub(crate) fn batch(&self) -> Option<(Cursor, Cursor)> {
        (self.old_used != self.used).then_some((self.old_used, self.used))
    }

    /// Finishes that batch if it was `published`, and undoes it otherwise. Returns the used position, and the number of
    /// descriptors in flight behind it.
    pub(crate) fn resume(&mut self, published: bool) -> Result<(Cursor, u16), InflightError> {
        if published {
            (self.old_free_head, self.old_used) = (self.free_head, self.used);
        } else {
            (self.free_head, self.used) = (self.old_free_head, self.old_used);
        }
        let in_flight = self.sort_entries()?;
        self.store_free_list();
        self.store_used();
        Ok((self.used, in_flight))
    }

    /// Finds the chains in flight and returns their number of descriptors. Each entry must be in one chain or free.
    fn sort_entries(&mut self) -> Result<u16, InflightError> {
        let entries = self.entries.len() as u16;
        let mut seen = vec![false; entries.into()];
        let mut see = |entry: u16| {
            let seen = seen.get_mut(usize::from(entry)).filter(|seen| !**seen);
            seen.map(|seen| *seen = true).ok_or(InflightError::Entry { entry, entries })
        };
        let mut free = self.free_head;
        // This ends, because a repeated entry is an error.
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
            chains.push((self.words.get(word(head, COUNTER)), TakenChain { head, descriptors: num, id }));
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

    /// Chains of an earlier queue that are still to be resubmitted.
    pub(crate) fn to_resubmit(&self) -> u16 {
        // At most one chain per entry.
        self.resubmit.len() as u16
    }

    /// Whether part of the log may lie in a page that was replaced after a fault.
    pub(crate) fn has_lost(&self) -> bool {
        self.words.has_lost()
    }

    /// Takes the oldest chain to resubmit. In the log it stays in flight, with its counter.
    pub(crate) fn resubmit(&mut self) -> Option<TakenChain> {
        self.resubmit.pop()
    }

    /// Records that a chain was taken from the ring, and returns the entry of its head. Call it before its execution
    /// starts. There are free entries for all descriptors of the ring.
    pub(crate) fn record_taken(&mut self, chain: impl Iterator<Item = RawPackedDescriptor>) -> u16 {
        let head = self.free_head;
        let (mut last, mut num) = (head, 0);
        for RawPackedDescriptor { addr, len, id, flags } in chain {
            last = self.free_head;
            // The length takes the last two of four fields, in the byte order of the host.
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

    /// Undoes the last [`resubmit`](Self::resubmit) or [`record_taken`](Self::record_taken), which was for this chain.
    pub(crate) fn put_back(&mut self, chain: TakenChain, is_resubmitted: bool) {
        if is_resubmitted {
            return self.resubmit.push(chain);
        }
        // The entries of the chain still link to each other and to the free list, so one store frees all of them. In
        // the free list, `inflight` means nothing.
        (self.free_head, self.old_free_head) = (chain.head, chain.head);
        self.store_free_list();
        self.entries[usize::from(chain.head)].in_flight = false;
        self.store_state(chain.head);
    }

    /// Copies the descriptor in `entry`, in the byte order of the ring. Also returns the next entry.
    pub(crate) fn descriptor(&self, entry: u16) -> (RawPackedDescriptor, u16) {
        let [id, flags, first, second] = fields(self.words.get(word(entry, DESCRIPTOR)));
        let len = four([first, second, first, second]) as u32;
        let addr = self.words.get(word(entry, ADDRESS));
        (RawPackedDescriptor { addr, len, id, flags }, self.entries[usize::from(entry)].next)
    }

    /// Records that the chains with these heads are about to be published as used, up to the position `used`.
    pub(crate) fn begin_batch(&mut self, heads: impl Iterator<Item = u16>, used: Cursor) {
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

    /// Records that the batch was published.
    pub(crate) fn end_batch(&mut self, heads: impl Iterator<Item = u16>) {
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
mod tests;
