//! Commands in flight by CID.
//!
//! A CID is the index of a slot in its low twelve bits and the slot's generation in the high four, so that a completion that
//! comes twice, or late, is told from the one of the slot's next command.

use std::time::Instant;

/// Which way a command's data go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    /// From the controller, by `C2HData`.
    In,
    /// To the controller, in the capsule or by `H2CData`.
    Out,
}

/// A command whose capsule is laid out and whose completion has not come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    /// Whose command: the key the pair's user gave.
    pub(super) owner: u16,
    pub(super) direction: Direction,
    /// Where the command's data start in its owner's payload, in bytes.
    pub(super) base: u32,
    /// Bytes of the command's data.
    pub(super) length: u32,
    /// Bytes of it received, or asked for by R2Ts and carried in the capsule.
    pub(super) moved: u32,
    /// R2Ts not laid out to their end.
    pub(super) transfers: u8,
    /// A data digest of it was wrong.
    pub(super) corrupted: bool,
    /// When its capsule was laid out; not kept for admin commands.
    pub(super) sent_at: Option<Instant>,
}

const INDEX_BITS: u32 = 12;
const INDEX_MASK: u16 = (1 << INDEX_BITS) - 1;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Of the current or, in a free entry, the last command.
    cid: u16,
    slot: Option<Slot>,
}

/// The slots of a queue. Their number is fixed.
#[derive(Debug)]
pub(super) struct Slots {
    entries: Vec<Entry>,
    free: Vec<u16>,
}

impl Slots {
    /// `count` slots, at most [`QUEUE_ENTRIES_MAX`](super::QUEUE_ENTRIES_MAX).
    pub(super) fn new(count: u16) -> Self {
        let entries = (0..count).map(|index| Entry { cid: index, slot: None }).collect();
        Self { entries, free: (0..count).rev().collect() }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The CID of the slot a command now occupies; `None` if all are taken.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<u16> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[usize::from(index)];
        entry.cid = entry.cid.wrapping_add(1 << INDEX_BITS);
        entry.slot = Some(slot);
        Some(entry.cid)
    }

    /// When the oldest command in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.entries.iter().filter_map(|entry| entry.slot.as_ref()?.sent_at).min()
    }

    /// The command in flight with a CID off the wire.
    pub(super) fn get_mut(&mut self, cid: u16) -> Option<&mut Slot> {
        let entry = self.entries.get_mut(usize::from(cid & INDEX_MASK))?;
        if entry.cid == cid { entry.slot.as_mut() } else { None }
    }

    /// Ends the command with a CID off the wire.
    pub(super) fn remove(&mut self, cid: u16) -> Option<Slot> {
        let index = cid & INDEX_MASK;
        let entry = self.entries.get_mut(usize::from(index))?;
        if entry.cid != cid {
            return None;
        }
        let slot = entry.slot.take()?;
        self.free.push(index);
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Slot = Slot {
        owner: 3,
        direction: Direction::None,
        base: 0,
        length: 0,
        moved: 0,
        transfers: 0,
        corrupted: false,
        sent_at: None,
    };

    #[test]
    fn a_cid_names_one_generation_only() {
        let mut slots = Slots::new(2);
        let first = slots.insert(SLOT).unwrap();
        assert!(slots.remove(first).is_some());
        assert!(slots.remove(first).is_none(), "completed twice");
        let second = slots.insert(SLOT).unwrap();
        assert_eq!(first & INDEX_MASK, second & INDEX_MASK);
        assert!(first != second && slots.get_mut(first).is_none() && slots.get_mut(second).is_some());
        assert!(slots.insert(SLOT).is_some());
        assert!(!slots.has_free() && slots.insert(SLOT).is_none());
        for cid in [2, INDEX_MASK, u16::MAX] {
            assert!(slots.get_mut(cid).is_none() && slots.remove(cid).is_none());
        }
    }
}
