//! Decides: the guest asked for no signal of a packed ring.
//!
//! The ring of a packed virtqueue (virtio 1.2, 2.8). In one ring of descriptors, the driver makes chains available and
//! the device writes back used ones. Event suppression structures say who wants which notification.
//!
//! Both sides go round the ring. A *wrap counter* flips with each round. With two flags in each descriptor it tells the
//! owner. A descriptor is available if `AVAIL` equals the counter and `USED` does not. It is used if both equal the
//! counter.
//!
//! ```text
//!      published         next_used       next_available
//!          │ returned,      │ taken, not    │ not looked at yet, or
//!          │ not published  │ returned      │ the driver's
//!   ───────┴────────────────┴───────────────┴──────────────────────►
//! ```

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::{
    VRING_DESC_F_NEXT, VRING_DESC_F_WRITE, VRING_PACKED_DESC_F_AVAIL, VRING_PACKED_DESC_F_USED,
    VRING_PACKED_EVENT_F_WRAP_CTR, VRING_PACKED_EVENT_FLAG_DESC, VRING_PACKED_EVENT_FLAG_DISABLE,
    VRING_PACKED_EVENT_FLAG_ENABLE,
};

use super::RingError;
use super::split::{QueueError, RingLayout};
use crate::area::Area;
use crate::descriptor::{Cursor, RawPackedDescriptor, TakenChain};
use crate::dirty_log::QueueDirtyLog;
use crate::inflight::{InflightArea, InflightError, PackedLog};
use crate::memory::{GuestMemory, GuestRange};
use crate::memory_faults;

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const AVAIL: u16 = 1 << VRING_PACKED_DESC_F_AVAIL;
const USED: u16 = 1 << VRING_PACKED_DESC_F_USED;

const ENABLE: u16 = VRING_PACKED_EVENT_FLAG_ENABLE as u16;
const DISABLE: u16 = VRING_PACKED_EVENT_FLAG_DISABLE as u16;
const DESC: u16 = VRING_PACKED_EVENT_FLAG_DESC as u16;
const EVENT_FLAGS: u16 = 0b11;

/// 16-bit words of a descriptor, and the offsets of its length, buffer id and flags.
const DESCRIPTOR_WORDS: usize = 8;
const LEN_LOW: usize = 4;
const LEN_HIGH: usize = 5;
const ID: usize = 6;
const FLAGS: usize = 7;

/// 16-bit words of an event suppression structure (2.8.14).
const EVENT_OFFSET: usize = 0;
const EVENT_MODE: usize = 1;
const EVENT_WORDS: usize = 2;

/// The wrap counter in a word with an index of 15 bits.
const WRAP: u16 = 1 << VRING_PACKED_EVENT_F_WRAP_CTR;

/// The position at which a ring starts, in vhost-user's format: both indices 0, both wrap counters 1.
pub(crate) const START: u32 = (WRAP as u32) << 16 | WRAP as u32;

/// The encoding of a position in event suppression structures and vhost-user messages, and its meaning for flags.
impl Cursor {
    /// Decodes 15 bits of index and one of wrap counter. `None` if the index is not in a ring of `size`.
    fn from_bits(bits: u16, size: u16) -> Option<Self> {
        let cursor = Self { index: bits & !WRAP, wrap: bits & WRAP != 0 };
        (cursor.index < size).then_some(cursor)
    }

    fn bits(self) -> u16 {
        self.index | if self.wrap { WRAP } else { 0 }
    }

    /// Whether a descriptor with these flags at this position is available.
    fn is_available(self, flags: u16) -> bool {
        (flags & AVAIL != 0) == self.wrap && (flags & USED != 0) != self.wrap
    }
}

/// A packed ring in guest memory, and this device's position in it.
#[derive(Debug)]
pub(super) struct PackedRing {
    size: u16,
    event_idx: bool,
    /// The descriptors, and the same memory as words, for single fields.
    descriptors: Area<RawPackedDescriptor>,
    words: Area<u16>,
    /// When the driver wants a signal, and when the device wants a kick.
    driver_event: Area<u16>,
    device_event: Area<u16>,
    /// Position of the next chain, and of the next used descriptor.
    next_available: Cursor,
    next_used: Cursor,
    /// Chains that are returned and not yet published.
    unpublished: Vec<Unpublished>,
    /// Chains that are taken and not published as used, and the descriptors that they take up.
    outstanding: u16,
    outstanding_descriptors: u16,
    /// Position behind the last used descriptor at the last decision about a signal. `None` after a start: the driver
    /// may wait for any descriptor.
    signalled: Option<Cursor>,
    /// The in-flight log, if the front-end keeps one.
    log: Option<PackedLog>,
    /// Marks for writes to the ring, during a migration.
    dirty_log: Option<DirtyRing>,
}

/// Marks a packed ring in the dirty log, at its guest addresses. The front-end's log address is for the used ring of
/// the split format only.
#[derive(Debug)]
struct DirtyRing {
    log: QueueDirtyLog,
    descriptors: u64,
    device_event: u64,
}

impl DirtyRing {
    fn mark_descriptors(&self, indices: impl Iterator<Item = u16>) {
        let bytes = size_of::<RawPackedDescriptor>() as u64;
        self.log.mark(indices.map(|index| GuestRange { start: self.descriptors + bytes * u64::from(index), bytes }));
    }

    fn mark_device_event(&self) {
        self.log.mark([GuestRange { start: self.device_event, bytes: (EVENT_WORDS * size_of::<u16>()) as u64 }]);
    }
}

/// A used descriptor that is written except for its flags, which would show it to the driver.
#[derive(Debug)]
struct Unpublished {
    index: u16,
    flags: u16,
    chain: TakenChain,
}

impl PackedRing {
    pub(super) fn new(memory: &Arc<GuestMemory>, layout: &RingLayout) -> Result<Self, RingError> {
        let RingLayout { size, descriptors, available, used, event_idx, position, .. } = *layout;
        let entries = usize::from(size);
        let words = Area::new(memory, descriptors, entries * DESCRIPTOR_WORDS)?;
        // User Mode Linux and libblkio pass 0 for the start of any ring. In a ring that has reached this position with
        // wrap counters of 0, the first descriptor was made available before, so its flags are not 0.
        let is_new = words.load(word(0, FLAGS), Ordering::Relaxed) & (AVAIL | USED) == 0;
        let position = if position == 0 && is_new { START } else { position };
        let cursor = |bits: u32| Cursor::from_bits(bits as u16, size).ok_or(RingError::Position { position, size });
        let (next_available, next_used) = (cursor(position)?, cursor(position >> 16)?);
        // A position does not say which chains are taken and not used.
        if next_available != next_used {
            return Err(RingError::Position { position, size });
        }
        Ok(Self {
            size,
            event_idx,
            descriptors: Area::new(memory, descriptors, entries)?,
            words,
            driver_event: Area::new(memory, available, EVENT_WORDS)?,
            device_event: Area::new(memory, used, EVENT_WORDS)?,
            next_available,
            next_used,
            unpublished: Vec::with_capacity(entries),
            outstanding: 0,
            outstanding_descriptors: 0,
            signalled: None,
            log: None,
            dirty_log: None,
        })
    }

    /// Marks later writes to the ring in the dirty log of a migration.
    pub(super) fn set_dirty_log(&mut self, log: QueueDirtyLog) {
        let (descriptors, device_event) = (self.descriptors.guest_start(), self.device_event.guest_start());
        self.dirty_log = Some(DirtyRing { log, descriptors, device_event });
    }

    /// Continues where an earlier queue ended, if the log is not new, and writes the log from then on.
    pub(super) fn resume(&mut self, area: &InflightArea) -> Result<(), InflightError> {
        let (mut log, is_new) = PackedLog::open(area, self.size, self.next_used)?;
        if !is_new {
            let batch = log.batch();
            let published = |before: Cursor| !before.is_available(self.flags(before.index, Ordering::Acquire));
            let published = batch.is_some_and(|(before, _)| published(before));
            if let Some((before, after)) = batch
                && !published
            {
                self.take_back(before, after);
            }
            let (used, in_flight) = log.resume(published)?;
            (self.next_used, self.next_available) = (used, used.plus(in_flight, self.size));
            self.outstanding_descriptors = in_flight;
            // The earlier process may have ended between a write and its mark.
            if let Some(dirty) = &self.dirty_log {
                dirty.mark_descriptors(0..self.size);
            }
        }
        self.log = Some(log);
        Ok(())
    }

    /// Clears the flags of a batch that an earlier queue did not show. The flags of its first descriptor were not
    /// written. The driver must not find the flags of the others when this queue shows another descriptor in the first
    /// place.
    fn take_back(&self, before: Cursor, after: Cursor) {
        let mut place = before.plus(1, self.size);
        for _ in 1..before.distance(after, self.size) {
            let flags = if place.wrap { AVAIL } else { USED };
            self.words.store(word(place.index, FLAGS), flags, Ordering::Release);
            place = place.plus(1, self.size);
        }
    }

    /// The position to continue from, in vhost-user's format. Both indices are equal in a drained ring. If chains are
    /// left in flight, the next queue gets its position from the log.
    pub(super) fn position(&self) -> u32 {
        u32::from(self.next_used.bits()) << 16 | u32::from(self.next_used.bits())
    }

    /// Chains that are taken and not published as used.
    pub(super) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Chains of an earlier queue that are still to be resubmitted.
    pub(super) fn to_resubmit(&self) -> u16 {
        self.log.as_ref().map_or(0, PackedLog::to_resubmit)
    }

    /// Whether a chain is available that was not taken.
    pub(super) fn has_available(&self) -> bool {
        self.next_available.is_available(self.flags(self.next_available.index, Ordering::Relaxed))
    }

    /// Copies descriptor `index` of a taken chain. Also returns the index of the next one.
    pub(super) fn descriptor(&self, index: u16) -> (RawPackedDescriptor, u16) {
        match &self.log {
            Some(log) => log.descriptor(index),
            None => (self.descriptors.read(usize::from(index)), self.after(index)),
        }
    }

    /// Whether part of the ring or its log may lie in a page that was replaced after a fault. The effect is as in a
    /// split ring.
    fn has_lost(&self) -> bool {
        memory_faults::any_fault() && self.has_lost_part()
    }

    #[cold]
    fn has_lost_part(&self) -> bool {
        self.words.has_lost()
            || self.driver_event.has_lost()
            || self.device_event.has_lost()
            || self.log.as_ref().is_some_and(PackedLog::has_lost)
    }

    /// Takes the next chain. Chains of an earlier queue to resubmit come before available ones. Only the end of the
    /// chain is needed to return it.
    pub(super) fn next_chain(&mut self) -> Result<Option<TakenChain>, QueueError> {
        if let Some(chain) = self.log.as_mut().and_then(PackedLog::resubmit) {
            self.outstanding += 1;
            return Ok(Some(chain));
        }
        let start = self.next_available;
        let head = start.index;
        // Acquire: pairs with the driver's release of these flags, which it writes last, so that the whole chain is
        // seen.
        let mut flags = self.flags(head, Ordering::Acquire);
        if !start.is_available(flags) {
            return Ok(None);
        }
        // Bounds a chain without an end, and a driver that makes chains available again and again without waiting for
        // any.
        let room = self.size - self.outstanding_descriptors;
        let (mut last, mut descriptors) = (head, 0);
        loop {
            if descriptors == room {
                return Err(QueueError::ChainOverrun { head, size: self.size });
            }
            descriptors += 1;
            if flags & NEXT == 0 {
                break;
            }
            last = self.after(last);
            flags = self.flags(last, Ordering::Relaxed);
        }
        let id = self.words.load(word(last, ID), Ordering::Relaxed);
        // Checked before the chain is logged as in flight.
        if self.has_lost() {
            return Err(QueueError::Memory);
        }
        let head = match &mut self.log {
            Some(log) => {
                let index = |nth| usize::from(start.plus(nth, self.size).index);
                log.record_taken((0..descriptors).map(|nth| self.descriptors.read(index(nth))))
            }
            None => head,
        };
        self.next_available = start.plus(descriptors, self.size);
        self.outstanding += 1;
        self.outstanding_descriptors += descriptors;
        Ok(Some(TakenChain { head, descriptors, id }))
    }

    /// Undoes the last [`next_chain`](Self::next_chain), which gave this chain.
    pub(super) fn put_back(&mut self, chain: TakenChain, is_resubmitted: bool) {
        self.outstanding -= 1;
        if !is_resubmitted {
            self.outstanding_descriptors -= chain.descriptors;
            self.next_available = self.next_available.minus(chain.descriptors, self.size);
        }
        if let Some(log) = &mut self.log {
            log.put_back(chain, is_resubmitted);
        }
    }

    /// Writes a used descriptor. The driver sees it after [`publish`](Self::publish). `written` is the length that the
    /// driver can rely on.
    pub(super) fn push_used(&mut self, chain: TakenChain, written: u32) {
        if self.has_lost() {
            return;
        }
        assert!(self.unpublished.len() < self.outstanding.into(), "more completions than chains taken");
        let Cursor { index, wrap } = self.next_used;
        self.words.store(word(index, LEN_LOW), written as u16, Ordering::Relaxed);
        self.words.store(word(index, LEN_HIGH), (written >> 16) as u16, Ordering::Relaxed);
        self.words.store(word(index, ID), chain.id, Ordering::Relaxed);
        // The length counts only with WRITE. At least the status was written.
        let flags = WRITE | if wrap { AVAIL | USED } else { 0 };
        self.unpublished.push(Unpublished { index, flags, chain });
        self.next_used = self.next_used.plus(chain.descriptors, self.size);
    }

    /// Shows all written used descriptors to the driver. `true` if the driver wants a signal.
    pub(super) fn publish(&mut self) -> bool {
        if self.unpublished.is_empty() || self.has_lost() {
            return false;
        }
        let heads = self.unpublished.iter().map(|used| used.chain.head);
        if let Some(log) = &mut self.log {
            log.begin_batch(heads.clone(), self.next_used);
        }
        // The flags of the first descriptor are stored last and show all of them: the driver looks at no other before.
        // Release: a driver that sees the flags sees the used descriptors, the status bytes and the data. The log,
        // which describes the batch, is also written before any flags.
        for Unpublished { index, flags, .. } in self.unpublished.iter().rev() {
            self.words.store(word(*index, FLAGS), *flags, Ordering::Release);
        }
        if let Some(dirty) = &self.dirty_log {
            dirty.mark_descriptors(self.unpublished.iter().map(|used| used.index));
        }
        if self.has_lost() {
            return false;
        }
        if let Some(log) = &mut self.log {
            log.end_batch(heads);
        }
        for Unpublished { chain, .. } in self.unpublished.drain(..) {
            self.outstanding -= 1;
            self.outstanding_descriptors -= chain.descriptors;
        }
        // The flags must be visible before the driver's event setting is read. The driver does the reverse: it writes
        // the setting, has a barrier, and reads the flags. Without a full barrier both sides could read the old value,
        // and neither would wake.
        fence(Ordering::SeqCst);
        let last = self.signalled.replace(self.next_used);
        // Acquire: the offset is at least as new as the flags that make it count.
        match self.driver_event.load(EVENT_MODE, Ordering::Acquire) & EVENT_FLAGS {
            DISABLE => false,
            DESC if self.event_idx => {
                let event = Cursor::from_bits(self.driver_event.load(EVENT_OFFSET, Ordering::Relaxed), self.size);
                // A spurious signal does no harm: the first one, or if the event is not in the ring.
                last.zip(event).is_none_or(|(last, event)| {
                    last.distance(event, self.size) < last.distance(self.next_used, self.size)
                })
            }
            _ => true,
        }
    }

    /// Asks the driver not to kick. This is a hint: kicks may still come.
    pub(super) fn disable_notifications(&mut self) {
        // With EVENT_IDX an unchanged event causes at most one more kick in two rounds.
        if !self.event_idx {
            self.device_event.store(EVENT_MODE, DISABLE, Ordering::Relaxed);
            self.mark_device_event();
        }
    }

    /// Asks the driver for a kick on the next chain. `true` if a chain is already available. No kick need come for it.
    pub(super) fn enable_notifications(&mut self) -> bool {
        if self.event_idx {
            self.device_event.store(EVENT_OFFSET, self.next_available.bits(), Ordering::Relaxed);
            // Release: the offset is visible before the flags that make it count.
            self.device_event.store(EVENT_MODE, DESC, Ordering::Release);
        } else {
            self.device_event.store(EVENT_MODE, ENABLE, Ordering::Relaxed);
        }
        self.mark_device_event();
        // The event setting must be visible before the flags are read. The driver does the reverse. See `publish`.
        fence(Ordering::SeqCst);
        self.has_available()
    }

    fn mark_device_event(&self) {
        if let Some(dirty) = &self.dirty_log {
            dirty.mark_device_event();
        }
    }

    fn flags(&self, index: u16, order: Ordering) -> u16 {
        self.words.load(word(index, FLAGS), order)
    }

    /// The index after `index`.
    fn after(&self, index: u16) -> u16 {
        if index + 1 < self.size { index + 1 } else { 0 }
    }
}

fn word(index: u16, word: usize) -> usize {
    usize::from(index) * DESCRIPTOR_WORDS + word
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Positions are counted modulo two rounds, whatever the size.
        #[test]
        fn a_cursor_counts_two_rounds(size in 1_u16..=32768, start: u32, steps in prop::collection::vec(0_u16..=32768, 0..8)) {
            let at = |place: u32| {
                let place = place % (2 * u32::from(size));
                let wrap = place < u32::from(size);
                Cursor { index: (place % u32::from(size)) as u16, wrap }
            };
            let start = start % (2 * u32::from(size));
            let (mut place, mut cursor) = (start, at(start));
            for step in steps {
                let step = step % (size + 1);
                let before = cursor;
                (place, cursor) = (place + u32::from(step), cursor.plus(step, size));
                prop_assert_eq!(cursor, at(place));
                prop_assert_eq!(before.distance(cursor, size), u32::from(step));
                prop_assert_eq!(cursor.minus(step, size), before);
                prop_assert_eq!(Cursor::from_bits(cursor.bits(), size), Some(cursor));
            }
            prop_assert_eq!(Cursor::from_bits(size & !WRAP, size), (size & WRAP != 0).then(|| at(u32::from(size))));
        }
    }
}
