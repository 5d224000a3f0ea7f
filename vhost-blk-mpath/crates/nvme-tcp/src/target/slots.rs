//! The commands a connection has in hand, bounded by the submission queue's size.

use std::collections::VecDeque;

use super::answer_faults::AnswerFault;
use crate::wire::Sqe;

/// A command between its capsule and its completion.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) cid: u16,
    /// Bytes of payload that count against the connection's transfer budget.
    pub(super) reserved_bytes: u32,
    pub(super) fault: Option<AnswerFault>,
    /// It was answered already, and its CID may be another command's.
    is_answered: bool,
    pub(super) fill: Option<Fill>,
}

/// Data still on its way from the host.
#[derive(Debug)]
pub(super) struct Fill {
    pub(super) sqe: Sqe,
    pub(super) payload: Vec<u8>,
    /// Bytes of the whole payload.
    pub(super) total: u32,
    /// Bytes asked for by R2Ts so far.
    pub(super) requested: u32,
    /// Ends of the R2Ts that are not answered in full yet, in order.
    pub(super) r2t_ends: VecDeque<u32>,
    /// A data digest was wrong; the command will fail once all of its data is in.
    pub(super) damaged: bool,
}

/// All slots of a connection.
#[derive(Debug)]
pub(super) struct Slots {
    table: Vec<Option<Slot>>,
    free: Vec<u16>,
    capacity: u16,
    in_use: u16,
    /// One bit for each CID in use.
    cids: Box<[u64; 1024]>,
}

/// Why a command finds no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotError {
    /// The host has more commands outstanding than the queue has entries.
    Full,
    /// The CID names a command that is still outstanding.
    CidInUse,
}

impl Slots {
    pub(super) fn new(capacity: u16) -> Self {
        let cids = Box::new([0; 1024]);
        Self { table: Vec::new(), free: Vec::new(), capacity, in_use: 0, cids }
    }

    pub(super) fn capacity(&self) -> u16 {
        self.capacity
    }

    pub(super) fn set_capacity(&mut self, capacity: u16) {
        self.capacity = capacity;
    }

    pub(super) fn in_use(&self) -> u16 {
        self.in_use
    }

    fn cid_bit(cid: u16) -> (usize, u64) {
        (usize::from(cid / 64), 1 << (cid % 64))
    }

    pub(super) fn insert(&mut self, cid: u16) -> Result<u16, SlotError> {
        let (word, bit) = Self::cid_bit(cid);
        if self.cids[word] & bit != 0 {
            return Err(SlotError::CidInUse);
        }
        if self.in_use >= self.capacity {
            return Err(SlotError::Full);
        }
        let slot = Some(Slot { cid, reserved_bytes: 0, fault: None, is_answered: false, fill: None });
        let index = if let Some(index) = self.free.pop() {
            self.table[usize::from(index)] = slot;
            index
        } else {
            self.table.push(slot);
            // At most `capacity` slots are in use, and those not in use are in `free`.
            (self.table.len() - 1) as u16
        };
        self.cids[word] |= bit;
        self.in_use += 1;
        Ok(index)
    }

    /// The command in slot `index` is answered before its end; its CID.
    pub(super) fn answer(&mut self, index: u16) -> Option<u16> {
        let slot = self.table.get_mut(usize::from(index))?.as_mut()?;
        slot.is_answered = true;
        let (word, bit) = Self::cid_bit(slot.cid);
        self.cids[word] &= !bit;
        Some(slot.cid)
    }

    /// Ends the command in slot `index`, which must be in use.
    pub(super) fn remove(&mut self, index: u16) -> Slot {
        let slot = self.table.get_mut(usize::from(index)).and_then(Option::take);
        let slot = slot.expect("a slot's index is known to one place at a time, until the slot is emptied");
        if !slot.is_answered {
            let (word, bit) = Self::cid_bit(slot.cid);
            self.cids[word] &= !bit;
        }
        self.free.push(index);
        self.in_use -= 1;
        slot
    }

    /// What the command in slot `index` meets.
    pub(super) fn fault(&self, index: u16) -> Option<AnswerFault> {
        self.table.get(usize::from(index))?.as_ref()?.fault
    }

    /// The slot with this index, which may be anything the host sent.
    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut Slot> {
        self.table.get_mut(usize::from(index))?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_reused() {
        let mut slots = Slots::new(2);
        let first = slots.insert(7).unwrap();
        assert_eq!(slots.insert(7), Err(SlotError::CidInUse));
        let second = slots.insert(65535).unwrap();
        assert_eq!(slots.insert(1), Err(SlotError::Full));
        assert_eq!(slots.remove(first).cid, 7);
        assert!(slots.get_mut(first).is_none());
        assert_eq!(slots.insert(7), Ok(first));
        assert_eq!(slots.get_mut(second).map(|slot| slot.cid), Some(65535));
        assert_eq!(slots.in_use(), 2);
    }

    #[test]
    fn any_index_may_be_asked_for() {
        assert!(Slots::new(1).get_mut(u16::MAX).is_none());
    }
}
