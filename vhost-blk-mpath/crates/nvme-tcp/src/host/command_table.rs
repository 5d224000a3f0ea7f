//! The requests of a queue and their commands in flight, in one table of slots.
//!
//! A request has a slot from its submission to its end. Its command uses the same slot. If the request is split, further commands
//! have slots of their own while the slot of the request has a command in flight.
//!
//! A CID is the index of a slot in the low bits, as many as the table needs, and the generation of the slot in the others. Each
//! command of a slot has another generation. So a second or late completion is not taken for that of the slot's next command.

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
    /// The slot of its request.
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
    /// When the capsule was encoded; `None` for commands of a queue's own, and on admin queues.
    pub(super) sent_at: Option<Instant>,
}

impl InFlightCommand {
    /// A command of the request in slot `owner`, without data.
    pub(super) const fn of(owner: u16) -> Self {
        Self {
            owner,
            part: Part { first: 0, blocks: 0 },
            direction: Direction::None,
            base: 0,
            length: 0,
            moved: 0,
            transfers: 0,
            corrupted: false,
            sent_at: None,
        }
    }
}

#[derive(Debug)]
struct Slot<R> {
    /// The CID of the command.
    cid: u16,
    has_request: bool,
    is_in_flight: bool,
    /// The next free slot, while this one is free.
    next_free: u16,
    /// The command in flight, or the last one.
    command: InFlightCommand,
    /// The request, or the last one.
    request: R,
}

/// The slots of a queue. Their number is fixed.
#[derive(Debug)]
pub(super) struct CommandTable<R> {
    slots: Vec<Slot<R>>,
    /// The bits of a CID that are an index.
    index_bits: u32,
    /// The slot that became free last.
    first_free: u16,
    requests: u16,
    /// Commands that can be sent before one completes.
    room: u16,
}

impl<R: Default> CommandTable<R> {
    /// A table for `count` requests and `count` commands in flight. At most
    /// [`QUEUE_ENTRIES_MAX`](super::QUEUE_ENTRIES_MAX).
    pub(super) fn new(count: u16) -> Self {
        // Each command could be of a request whose slot has another command.
        let slots = 2 * count;
        let slot = |cid| Slot {
            cid,
            has_request: false,
            is_in_flight: false,
            next_free: cid + 1,
            command: InFlightCommand::of(cid),
            request: R::default(),
        };
        Self {
            slots: (0..slots).map(slot).collect(),
            index_bits: u16::BITS - (slots - 1).leading_zeros(),
            first_free: 0,
            requests: 0,
            room: count,
        }
    }

    /// The most requests, and the most commands in flight.
    pub(super) fn capacity(&self) -> usize {
        self.slots.len() / 2
    }

    /// The number of requests.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.requests.into()
    }

    /// Adds a request and returns its slot. The caller keeps the number of requests within the capacity.
    #[inline]
    pub(super) fn insert(&mut self, request: R) -> u16 {
        let index = self.take_free();
        self.requests += 1;
        let slot = &mut self.slots[usize::from(index)];
        (slot.has_request, slot.request) = (true, request);
        index
    }

    /// Removes a request none of whose commands is in flight.
    #[inline]
    pub(super) fn remove(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        assert!(slot.has_request && !slot.is_in_flight, "a request ends once, after its commands");
        slot.has_request = false;
        self.requests -= 1;
        self.add_free(index);
    }

    /// The request in a slot. Slots are named by this crate and never by the controller.
    #[inline]
    pub(super) fn request(&self, index: u16) -> &R {
        &self.slots[usize::from(index)].request
    }

    #[inline]
    pub(super) fn request_mut(&mut self, index: u16) -> &mut R {
        &mut self.slots[usize::from(index)].request
    }

    /// The requests with their slots.
    pub(super) fn requests(&self) -> impl Iterator<Item = (u16, &R)> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.has_request).map(|(index, slot)| (index, &slot.request))
    }

    /// Whether another command can be sent.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.room > 0
    }

    /// Adds a command of a request and returns its CID. The table must have [room](Self::has_room).
    #[inline]
    pub(super) fn send(&mut self, command: InFlightCommand) -> u16 {
        let is_taken = self.slots[usize::from(command.owner)].is_in_flight;
        let index = if is_taken { self.take_free() } else { command.owner };
        self.send_in(index, command)
    }

    /// Adds a command of no request and returns its CID.
    pub(super) fn send_alone(&mut self, command: InFlightCommand) -> u16 {
        let index = self.take_free();
        self.send_in(index, command)
    }

    #[inline]
    fn send_in(&mut self, index: u16, command: InFlightCommand) -> u16 {
        self.room -= 1;
        let slot = &mut self.slots[usize::from(index)];
        (slot.is_in_flight, slot.command) = (true, command);
        slot.cid = slot.cid.wrapping_add(1 << self.index_bits);
        slot.cid
    }

    /// The slot of the command in flight with a CID from the controller.
    #[inline]
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        let index = cid & ((1 << self.index_bits) - 1);
        let slot = self.slots.get(usize::from(index))?;
        (slot.cid == cid && slot.is_in_flight).then_some(index)
    }

    /// The command in flight in a slot from [`find`](Self::find).
    #[inline]
    pub(super) fn command_mut(&mut self, index: u16) -> &mut InFlightCommand {
        &mut self.slots[usize::from(index)].command
    }

    /// The command in flight with a CID from the controller.
    #[inline]
    pub(super) fn get_mut(&mut self, cid: u16) -> Option<&mut InFlightCommand> {
        Some(self.command_mut(self.find(cid)?))
    }

    /// Ends the command in a slot from [`find`](Self::find).
    #[inline]
    pub(super) fn end(&mut self, index: u16) {
        self.room += 1;
        let slot = &mut self.slots[usize::from(index)];
        slot.is_in_flight = false;
        if !slot.has_request {
            self.add_free(index);
        }
    }

    /// When the oldest command in flight was sent.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.slots.iter().filter(|slot| slot.is_in_flight).filter_map(|slot| slot.command.sent_at).min()
    }

    fn take_free(&mut self) -> u16 {
        let index = self.first_free;
        self.first_free = self.slots[usize::from(index)].next_free;
        index
    }

    fn add_free(&mut self, index: u16) {
        self.slots[usize::from(index)].next_free = self.first_free;
        self.first_free = index;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cid_is_valid_for_one_generation_only() {
        let mut table = CommandTable::<()>::new(2);
        let request = table.insert(());
        let first = table.send(InFlightCommand::of(request));
        assert_eq!(table.find(first), Some(request));
        table.end(request);
        assert_eq!(table.find(first), None, "completed twice");
        let second = table.send(InFlightCommand::of(request));
        assert!(first != second && table.find(first).is_none() && table.find(second) == Some(request));
        let third = table.send(InFlightCommand::of(request));
        assert!(!table.has_room() && table.find(third).is_some_and(|index| index != request));
    }

    proptest! {
        /// Requests with any number of commands, and completions that come once, again, or late. Each command in flight has one
        /// slot, and no CID of the past is valid.
        #[test]
        fn a_completion_ends_its_own_command(
            count in prop_oneof![1_u16..9, Just(127), Just(4095)],
            steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>()), 1..400),
        ) {
            let mut table = CommandTable::<u32>::new(count);
            // The requests by slot with their content, and the commands in flight with the slots of their requests.
            let (mut requests, mut in_flight) = (BTreeMap::new(), BTreeMap::new());
            // CIDs of the past, and the commands that were sent since the first.
            let (mut past, mut next) = (Vec::new(), 0_u32);
            for (step, which) in steps {
                match step {
                    0 if requests.len() < usize::from(count) => {
                        prop_assert!(requests.insert(table.insert(next), next).is_none(), "a slot has one request");
                        next += 1;
                    }
                    0..3 if table.has_room() && !requests.is_empty() => {
                        let owner = *requests.keys().nth(which.index(requests.len())).unwrap();
                        let cid = table.send(InFlightCommand::of(owner));
                        prop_assert!(in_flight.insert(cid, owner).is_none(), "a CID names one command");
                        prop_assert!(!past.contains(&cid), "the CID of a late completion");
                    }
                    3 if !past.is_empty() => {
                        let cid = past[which.index(past.len())];
                        prop_assert!(table.find(cid).is_none() && table.get_mut(cid).is_none());
                    }
                    4 if !in_flight.is_empty() => {
                        let cid = *in_flight.keys().nth(which.index(in_flight.len())).unwrap();
                        let index = table.find(cid).expect("it is in flight");
                        prop_assert_eq!(Some(table.command_mut(index).owner), in_flight.remove(&cid));
                        table.end(index);
                        past.push(cid);
                        // A slot has at least seven generations more.
                        past.drain(..past.len().saturating_sub(7));
                    }
                    _ => {
                        let done = requests.keys().copied().find(|request| in_flight.values().all(|of| of != request));
                        if let Some(index) = done {
                            table.remove(index);
                            requests.remove(&index);
                        }
                    }
                }
                let room = usize::from(count) - in_flight.len();
                prop_assert_eq!((table.has_room(), table.len()), (room > 0, requests.len()));
                prop_assert!(table.requests().eq(requests.iter().map(|(index, content)| (*index, content))));
            }
        }
    }
}
