//! Decides: the guest asked for no signal of a split ring.
//!
//! The available and used ring of a split virtqueue: indices, memory barriers, notification suppression.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};
use vm_memory::ByteValued;

use super::RingError;
use super::chain::ChainDefect;
use crate::area::Area;
use crate::dirty_log::QueueDirtyLog;
use crate::inflight::{InflightArea, InflightError, SplitLog};
use crate::memory::GuestMemory;
use crate::memory_faults;

/// Words of the available and the used ring before their entries.
const FLAGS: usize = 0;
const IDX: usize = 1;
const HEADER_WORDS: usize = 2;
/// 16-bit words in an entry of the used ring.
const USED_ENTRY_WORDS: usize = 4;

/// One entry of the descriptor table (virtio 1.2, 2.7.5), little-endian as in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RawDescriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    pub(super) next: u16,
}

// SAFETY: plain integers without padding; any bytes are a valid value.
unsafe impl ByteValued for RawDescriptor {}

/// One entry of the used ring (virtio 1.2, 2.7.8), little-endian as in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct RawUsed {
    id: u32,
    len: u32,
}

// SAFETY: plain integers without padding; any bytes are a valid value.
unsafe impl ByteValued for RawUsed {}

/// Why a queue takes no more chains. Only the driver causes these errors, and only for its own queue, except
/// [`Self::Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The available index is further ahead than the ring has entries.
    #[error("available index {available} is more than {size} entries ahead of the next chain at {next}")]
    AvailableIndex {
        /// Available index in the ring.
        available: u16,
        /// Index of the next chain to take.
        next: u16,
        /// Entries of the ring.
        size: u16,
    },
    /// A chain starts outside the descriptor table.
    #[error("chain head {head} is outside the descriptor table of {size} entries")]
    Head {
        /// Index of the head.
        head: u16,
        /// Entries of the descriptor table.
        size: u16,
    },
    /// The driver makes more chains available than it has descriptors, before it gets one back.
    #[error("more than {size} chains are outstanding, which is the size of the queue")]
    TooManyOutstanding {
        /// Entries of the descriptor table.
        size: u16,
    },
    /// A chain cannot be answered, because its status byte cannot be found.
    #[error("a request cannot be answered: the status byte of chain {id} was not found, because {defect}")]
    NoStatus {
        /// The id by which the driver knows the chain.
        id: u16,
        /// Why the byte was not found.
        defect: ChainDefect,
    },
    /// The ring, its log or a chain could not be accessed, so their contents are not known.
    #[error("the memory of the queue cannot be accessed")]
    Memory,
    /// A chain of a packed ring has no end, or runs into descriptors that the driver does not own.
    #[error("the chain at {head} in a queue of {size} entries runs into descriptors that the driver does not own")]
    ChainOverrun {
        /// Index of its first descriptor.
        head: u16,
        /// Entries of the ring.
        size: u16,
    },
}

/// The parameters of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingLayout {
    /// `VIRTIO_F_RING_PACKED` was negotiated.
    pub(crate) packed: bool,
    /// Entries, at most 32768; a power of two unless packed.
    pub(crate) size: u16,
    /// Front-end addresses. In a packed ring: of the descriptor ring, the driver's event suppression and the device's.
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// `VIRTIO_RING_F_EVENT_IDX` was negotiated.
    pub(crate) event_idx: bool,
    /// The position to continue from, in vhost-user's format. Split: the index of the next available chain. Packed: the
    /// same with the wrap counter in bit 15, and in the upper half the used index with its wrap counter.
    pub(crate) position: u32,
}

impl RingLayout {
    /// Bytes of the used ring, including `avail_event`.
    pub(crate) fn used_bytes(&self) -> u64 {
        let words = HEADER_WORDS + USED_ENTRY_WORDS * usize::from(self.size) + usize::from(self.event_idx);
        (words * size_of::<u16>()) as u64
    }
}

/// A split ring in guest memory, and this device's position in it.
#[derive(Debug)]
pub(super) struct SplitRing {
    size: u16,
    event_idx: bool,
    descriptors: Area<RawDescriptor>,
    /// flags, idx, `ring[size]`, `used_event` (with `EVENT_IDX`).
    available: Area<u16>,
    /// flags, idx, `ring[size]` of four words each, `avail_event` (with `EVENT_IDX`).
    used: Area<u16>,
    used_entries: Area<RawUsed>,
    /// Index of the next chain to take, and the available index read last.
    next_available: u16,
    seen_available: u16,
    /// Index of the next used entry to write, and the used index that the driver sees.
    next_used: u16,
    published_used: u16,
    /// The used index at the last decision about a signal. `None` after a start: the driver may wait for any entry.
    signalled_used: Option<u16>,
    /// Chains that are taken and not published as used.
    outstanding: u16,
    /// The in-flight log, if the front-end keeps one.
    log: Option<SplitLog>,
    /// Marks for writes to the used ring, during a migration.
    dirty_log: Option<QueueDirtyLog>,
}

impl SplitRing {
    pub(super) fn new(memory: &Arc<GuestMemory>, layout: &RingLayout) -> Result<Self, RingError> {
        let RingLayout { size, descriptors, available, used, event_idx, position, .. } = *layout;
        if !size.is_power_of_two() {
            return Err(RingError::Size { size });
        }
        let next_available = u16::try_from(position).map_err(|_| RingError::Position { position, size })?;
        let entries = usize::from(size);
        let event_words = usize::from(event_idx);
        let used_words = HEADER_WORDS + USED_ENTRY_WORDS * entries + event_words;
        let used_area = Area::new(memory, used, used_words)?;
        // `used_area` covers these bytes, so the sum cannot wrap.
        let used_entries = Area::new(memory, used + 2 * HEADER_WORDS as u64, entries)?;
        let used_idx = used_area.load(IDX, Ordering::Acquire);
        Ok(Self {
            size,
            event_idx,
            descriptors: Area::new(memory, descriptors, entries)?,
            available: Area::new(memory, available, HEADER_WORDS + entries + event_words)?,
            used: used_area,
            used_entries,
            next_available,
            seen_available: next_available,
            next_used: used_idx,
            published_used: used_idx,
            signalled_used: None,
            outstanding: 0,
            log: None,
            dirty_log: None,
        })
    }

    /// Continues where an earlier queue ended, if the log is not new, and writes the log from then on.
    pub(super) fn resume(&mut self, area: &InflightArea) -> Result<(), InflightError> {
        let (log, next_available) = SplitLog::open(area, self.size, self.next_used)?;
        if let Some(next) = next_available {
            (self.next_available, self.seen_available) = (next, next);
            // The earlier process may have ended between a write and its mark.
            self.mark_used(0, HEADER_WORDS + USED_ENTRY_WORDS * usize::from(self.size));
        }
        self.log = Some(log);
        Ok(())
    }

    /// Marks later writes to the used ring in the dirty log of a migration.
    pub(super) fn set_dirty_log(&mut self, log: QueueDirtyLog) {
        self.dirty_log = Some(log);
    }

    /// Marks words of the used ring as written.
    fn mark_used(&self, first_word: usize, words: usize) {
        if let Some(log) = &self.dirty_log {
            log.mark_used(first_word * size_of::<u16>(), words * size_of::<u16>());
        }
    }

    pub(super) fn size(&self) -> u16 {
        self.size
    }

    pub(super) fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Chains that are taken and not published as used.
    pub(super) fn outstanding(&self) -> u16 {
        self.outstanding
    }

    /// Chains of an earlier queue that are still to be resubmitted.
    pub(super) fn to_resubmit(&self) -> u16 {
        self.log.as_ref().map_or(0, SplitLog::to_resubmit)
    }

    /// Whether a chain is available that was not taken.
    pub(super) fn has_available(&self) -> bool {
        self.available.load(IDX, Ordering::Relaxed) != self.next_available
    }

    /// Copies descriptor `index` of the table. `index` is below the size.
    pub(super) fn descriptor(&self, index: u16) -> RawDescriptor {
        self.descriptors.read(usize::from(index))
    }

    /// Whether part of the ring or its log may lie in a page that was replaced after a fault. From then on this queue
    /// shows nothing to the driver and logs nothing: the next queue finds both as after a kill.
    fn has_lost(&self) -> bool {
        memory_faults::any_fault() && self.has_lost_part()
    }

    #[cold]
    fn has_lost_part(&self) -> bool {
        self.descriptors.has_lost()
            || self.available.has_lost()
            || self.used.has_lost()
            || self.log.as_ref().is_some_and(SplitLog::has_lost)
    }

    /// Takes the head of the next chain. Chains of an earlier queue to resubmit come before available ones.
    pub(super) fn next_head(&mut self) -> Result<Option<u16>, QueueError> {
        if let Some(head) = self.log.as_mut().and_then(SplitLog::resubmit) {
            self.outstanding += 1;
            return Ok(Some(head));
        }
        let (size, next) = (self.size, self.next_available);
        if next == self.seen_available {
            // Acquire: pairs with the driver's release of the index, so that the entries and descriptors it covers are
            // seen.
            let available = self.available.load(IDX, Ordering::Acquire);
            if available.wrapping_sub(next) > size {
                return Err(QueueError::AvailableIndex { available, next, size });
            }
            self.seen_available = available;
            if available == next {
                return Ok(None);
            }
        }
        // Bounds a driver that makes chains available again and again without waiting for any.
        if self.outstanding >= size {
            return Err(QueueError::TooManyOutstanding { size });
        }
        let head = self.available.load(HEADER_WORDS + self.slot(next), Ordering::Relaxed);
        // Checked before the chain is logged as in flight.
        if self.has_lost() {
            return Err(QueueError::Memory);
        }
        if head >= size {
            return Err(QueueError::Head { head, size });
        }
        if let Some(log) = &mut self.log {
            log.record_taken(head);
        }
        self.next_available = next.wrapping_add(1);
        self.outstanding += 1;
        Ok(Some(head))
    }

    /// Undoes the last [`next_head`](Self::next_head), which gave this head.
    pub(super) fn put_back(&mut self, head: u16, is_resubmitted: bool) {
        self.outstanding -= 1;
        if !is_resubmitted {
            self.next_available = self.next_available.wrapping_sub(1);
        }
        if let Some(log) = &mut self.log {
            log.put_back(head, is_resubmitted);
        }
    }

    /// Writes a used entry. The driver sees it after [`publish`](Self::publish).
    pub(super) fn push_used(&mut self, head: u16, written: u32) {
        if self.has_lost() {
            return;
        }
        let unpublished = self.next_used.wrapping_sub(self.published_used);
        assert!(unpublished < self.outstanding, "more completions than chains taken");
        let entry = RawUsed { id: u32::from(head).to_le(), len: written.to_le() };
        let slot = self.slot(self.next_used);
        self.used_entries.write(slot, entry);
        self.mark_used(HEADER_WORDS + USED_ENTRY_WORDS * slot, USED_ENTRY_WORDS);
        if let Some(log) = &mut self.log {
            log.record_completed(head);
        }
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Shows all written used entries to the driver. `true` if the driver wants a signal.
    pub(super) fn publish(&mut self) -> bool {
        let (old, new) = (self.published_used, self.next_used);
        if old == new || self.has_lost() {
            return false;
        }
        // Release: a driver that sees the index sees the entries, the status bytes and the data.
        self.used.store(IDX, new, Ordering::Release);
        self.mark_used(IDX, 1);
        if self.has_lost() {
            return false;
        }
        if let Some(log) = &mut self.log {
            log.end_batch(new);
        }
        self.published_used = new;
        self.outstanding -= new.wrapping_sub(old);
        // The index must be visible before the driver's event setting is read. The driver does the reverse: it writes
        // the setting, has a barrier, and reads the index. Without a full barrier both sides could read the old value,
        // and neither would wake.
        fence(Ordering::SeqCst);
        if self.event_idx {
            let event = self.available.load(HEADER_WORDS + usize::from(self.size), Ordering::Relaxed);
            let last = self.signalled_used.replace(new);
            last.is_none_or(|last| event_passed(event, new, last))
        } else {
            let no_interrupt = VRING_AVAIL_F_NO_INTERRUPT as u16;
            self.available.load(FLAGS, Ordering::Relaxed) & no_interrupt == 0
        }
    }

    /// Asks the driver not to kick. This is a hint: kicks may still come.
    pub(super) fn disable_notifications(&mut self) {
        // With EVENT_IDX an unchanged event causes at most one more kick until the index wraps.
        if !self.event_idx {
            self.used.store(FLAGS, VRING_USED_F_NO_NOTIFY as u16, Ordering::Relaxed);
            self.mark_used(FLAGS, 1);
        }
    }

    /// Asks the driver for a kick on the next chain. `true` if a chain is already available. No kick need come for it.
    pub(super) fn enable_notifications(&mut self) -> bool {
        if self.event_idx {
            let avail_event = HEADER_WORDS + USED_ENTRY_WORDS * usize::from(self.size);
            self.used.store(avail_event, self.next_available, Ordering::Relaxed);
            self.mark_used(avail_event, 1);
        } else {
            self.used.store(FLAGS, 0, Ordering::Relaxed);
            self.mark_used(FLAGS, 1);
        }
        // The event setting must be visible before the index is read. The driver does the reverse. See `publish`.
        fence(Ordering::SeqCst);
        self.has_available()
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }
}

/// Whether an index that went from `old` to `new` passed `event` (virtio 1.2, 2.7.10: `vring_need_event`).
fn event_passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The wrapping formula means that `event` is one of the entries `old .. new`.
        #[test]
        fn event_passed_means_between(old: u16, steps in 0_u16..512, ahead in -600_i16..600) {
            let new = old.wrapping_add(steps);
            let event = old.wrapping_add_signed(ahead);
            prop_assert_eq!(event_passed(event, new, old), (0..i32::from(steps)).contains(&i32::from(ahead)));
        }
    }
}
