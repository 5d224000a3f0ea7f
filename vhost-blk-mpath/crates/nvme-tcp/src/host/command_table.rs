//! Commands in flight by CID.
//!
//! The low twelve bits of a CID are an index into the table, and the high four are the generation of the entry. So a second or
//! late completion is not taken for that of the entry's next command.

use monotonic::Instant;

use super::request::Part;

/// The direction of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    /// From the controller, by `C2HData`.
    In,
    /// To the controller, in the capsule or by `H2CData`.
    Out,
}

/// A command whose capsule is encoded and whose completion has not arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightCommand {
    /// The key of the owner.
    pub(super) owner: u16,
    /// The blocks of the owner's request that the command covers.
    pub(super) part: Part,
    pub(super) direction: Direction,
    /// Offset of the command's data in the owner's payload, in bytes.
    pub(super) base: u32,
    /// Bytes of the command's data.
    pub(super) length: u32,
    /// Bytes of the data that were received, or requested by R2Ts, or carried in the capsule.
    pub(super) moved: u32,
    /// R2Ts whose data are not encoded completely.
    pub(super) transfers: u8,
    /// A data digest was wrong.
    pub(super) corrupted: bool,
    /// When the capsule was encoded; `None` for admin commands.
    pub(super) sent_at: Option<Instant>,
}

impl InFlightCommand {
    /// The content of an entry that was never used.
    const NONE: Self = Self {
        owner: 0,
        part: Part { first: 0, blocks: 0 },
        direction: Direction::None,
        base: 0,
        length: 0,
        moved: 0,
        transfers: 0,
        corrupted: false,
        sent_at: None,
    };
}

const INDEX_BITS: u32 = 12;
const INDEX_MASK: u16 = (1 << INDEX_BITS) - 1;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The CID of the command.
    cid: u16,
    is_in_flight: bool,
    /// The command in flight, or the last one.
    command: InFlightCommand,
}

/// The commands in flight on a queue. The size is fixed.
#[derive(Debug)]
pub(super) struct CommandTable {
    entries: Vec<Entry>,
    free: Vec<u16>,
}

impl CommandTable {
    /// A table of `count` entries, at most [`QUEUE_ENTRIES_MAX`](super::QUEUE_ENTRIES_MAX).
    pub(super) fn new(count: u16) -> Self {
        let entry = |cid| Entry { cid, is_in_flight: false, command: InFlightCommand::NONE };
        let entries = (0..count).map(entry).collect();
        Self { entries, free: (0..count).rev().collect() }
    }

    #[inline]
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Adds a command and returns its CID; `None` if the table is full.
    #[inline]
    pub(super) fn insert(&mut self, command: InFlightCommand) -> Option<u16> {
        let index = self.free.pop()?;
        let entry = &mut self.entries[usize::from(index)];
        let cid = entry.cid.wrapping_add(1 << INDEX_BITS);
        *entry = Entry { cid, is_in_flight: true, command };
        Some(cid)
    }

    /// When the oldest command in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let in_flight = self.entries.iter().filter(|entry| entry.is_in_flight);
        in_flight.filter_map(|entry| entry.command.sent_at).min()
    }

    /// The command in flight with a CID from the controller.
    #[inline]
    pub(super) fn get_mut(&mut self, cid: u16) -> Option<&mut InFlightCommand> {
        let entry = self.entries.get_mut(usize::from(cid & INDEX_MASK))?;
        (entry.cid == cid && entry.is_in_flight).then_some(&mut entry.command)
    }

    /// Removes the command with a CID from the controller.
    #[inline]
    pub(super) fn remove(&mut self, cid: u16) -> Option<InFlightCommand> {
        let index = cid & INDEX_MASK;
        let entry = self.entries.get_mut(usize::from(index)).filter(|entry| entry.cid == cid && entry.is_in_flight)?;
        entry.is_in_flight = false;
        self.free.push(index);
        Some(entry.command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND: InFlightCommand = InFlightCommand { owner: 3, ..InFlightCommand::NONE };

    #[test]
    fn a_cid_is_valid_for_one_generation_only() {
        let mut commands = CommandTable::new(2);
        let first = commands.insert(COMMAND).unwrap();
        assert!(commands.remove(first).is_some());
        assert!(commands.remove(first).is_none(), "completed twice");
        let second = commands.insert(COMMAND).unwrap();
        assert_eq!(first & INDEX_MASK, second & INDEX_MASK);
        assert!(first != second && commands.get_mut(first).is_none() && commands.get_mut(second).is_some());
        assert!(commands.insert(COMMAND).is_some());
        assert!(!commands.has_free() && commands.insert(COMMAND).is_none());
        for cid in [2, INDEX_MASK, u16::MAX] {
            assert!(commands.get_mut(cid).is_none() && commands.remove(cid).is_none());
        }
    }
}
