//! The commands of a connection that are not completed, at most as many as the submission queue has entries.

use std::collections::VecDeque;

use nvme_tcp::wire::Sqe;

use super::answer_faults::AnswerFault;

/// A command between its capsule and its completion.
#[derive(Debug)]
pub(super) struct ActiveCommand {
    pub(super) cid: u16,
    /// Bytes of payload that count against the transfer budget of the connection.
    pub(super) reserved_bytes: u32,
    /// The fault that its answer gets.
    pub(super) fault: Option<AnswerFault>,
    /// The command was answered before its end. Another command may use its CID.
    is_answered: bool,
    /// Data that have not arrived completely.
    pub(super) incoming: Option<IncomingData>,
}

/// The data of a command while they arrive from the host.
#[derive(Debug)]
pub(super) struct IncomingData {
    pub(super) sqe: Sqe,
    pub(super) payload: Vec<u8>,
    /// Bytes of the whole payload.
    pub(super) total: u32,
    /// Bytes requested by R2Ts so far.
    pub(super) requested: u32,
    /// End offsets of the R2Ts that are not answered completely, in order.
    pub(super) r2t_ends: VecDeque<u32>,
    /// A data digest was wrong. The command fails once all of its data have arrived.
    pub(super) damaged: bool,
}

/// The commands of a connection, each in a numbered slot.
#[derive(Debug)]
pub(super) struct CommandTable {
    table: Vec<Option<ActiveCommand>>,
    free: Vec<u16>,
    capacity: u16,
    in_use: u16,
    /// One bit per CID; set if the CID is in use.
    cids: Box<[u64; 1024]>,
}

/// Why a command does not get a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InsertError {
    /// The host has more commands outstanding than the queue has entries.
    Full,
    /// Another outstanding command has this CID.
    CidInUse,
}

impl CommandTable {
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

    /// Adds a command and returns its slot.
    pub(super) fn insert(&mut self, cid: u16) -> Result<u16, InsertError> {
        let (word, bit) = Self::cid_bit(cid);
        if self.cids[word] & bit != 0 {
            return Err(InsertError::CidInUse);
        }
        if self.in_use >= self.capacity {
            return Err(InsertError::Full);
        }
        let slot = Some(ActiveCommand { cid, reserved_bytes: 0, fault: None, is_answered: false, incoming: None });
        let index = if let Some(index) = self.free.pop() {
            self.table[usize::from(index)] = slot;
            index
        } else {
            self.table.push(slot);
            // Unused slots are in `free`, so the table never exceeds `capacity`.
            (self.table.len() - 1) as u16
        };
        self.cids[word] |= bit;
        self.in_use += 1;
        Ok(index)
    }

    /// Marks the command in slot `index` as answered before its end. Returns its CID.
    pub(super) fn mark_answered(&mut self, index: u16) -> Option<u16> {
        let slot = self.table.get_mut(usize::from(index))?.as_mut()?;
        slot.is_answered = true;
        let (word, bit) = Self::cid_bit(slot.cid);
        self.cids[word] &= !bit;
        Some(slot.cid)
    }

    /// Removes the command in slot `index`, which must be in use.
    pub(super) fn remove(&mut self, index: u16) -> ActiveCommand {
        let slot = self.table.get_mut(usize::from(index)).and_then(Option::take);
        let slot = slot.expect("the slot is in use until its only index is removed");
        if !slot.is_answered {
            let (word, bit) = Self::cid_bit(slot.cid);
            self.cids[word] &= !bit;
        }
        self.free.push(index);
        self.in_use -= 1;
        slot
    }

    /// The fault of the command in slot `index`.
    pub(super) fn fault(&self, index: u16) -> Option<AnswerFault> {
        self.table.get(usize::from(index))?.as_ref()?.fault
    }

    /// The command in slot `index`, which may be any value from the host.
    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut ActiveCommand> {
        self.table.get_mut(usize::from(index))?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_bounded_and_reused() {
        let mut commands = CommandTable::new(2);
        let first = commands.insert(7).unwrap();
        assert_eq!(commands.insert(7), Err(InsertError::CidInUse));
        let second = commands.insert(65535).unwrap();
        assert_eq!(commands.insert(1), Err(InsertError::Full));
        assert_eq!(commands.remove(first).cid, 7);
        assert!(commands.get_mut(first).is_none());
        assert_eq!(commands.insert(7), Ok(first));
        assert_eq!(commands.get_mut(second).map(|command| command.cid), Some(65535));
        assert_eq!(commands.in_use(), 2);
    }

    #[test]
    fn an_unknown_slot_is_empty() {
        assert!(CommandTable::new(1).get_mut(u16::MAX).is_none());
    }
}
