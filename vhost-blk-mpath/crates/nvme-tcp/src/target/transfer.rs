//! Commands and their data on the way in: in the capsule, or asked for by R2Ts.

use std::collections::VecDeque;

use super::answer_faults::AnswerFault;
use super::command::{CommandToken, TargetCommand};
use super::error::TargetError;
use super::queue::TargetQueue;
use super::slots::{Fill, SlotError};
use crate::wire::{Cqe, H2cData, Opcode, Pdu, PduType, R2t, Sgl, Sqe, Status};

/// Which way a command's data goes: the low two bits of its opcode, or of FCTYPE (Base 3.3.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    None,
    FromHost,
    ToHost,
}

impl Direction {
    pub(super) fn of(sqe: &Sqe) -> Self {
        let fabrics = Opcode(sqe.opcode) == Opcode::FABRICS;
        let code = if fabrics { sqe.nsid.get() as u8 } else { sqe.opcode };
        match code & 3 {
            1 => Self::FromHost,
            2 => Self::ToHost,
            // 3 is both ways; no command that is supported does that, so it will be refused.
            _ => Self::None,
        }
    }
}

/// What a capsule's SGL asks for.
enum Plan {
    /// Nothing more to come from the host.
    Ready { expects_bytes: u32 },
    /// The data is in the capsule.
    InCapsule { bytes: u32 },
    /// The data has to be asked for.
    Ask { bytes: u32 },
}

impl TargetQueue {
    /// Takes a command capsule; returns the slot that its data goes to.
    pub(super) fn on_capsule(&mut self, sqe: &Sqe, data_bytes: u32) -> Result<Option<u16>, TargetError> {
        let limit = self.in_capsule_limit();
        if data_bytes > limit {
            return Err(TargetError::TooMuchData { pdu: PduType::CapsuleCmd, bytes: data_bytes, limit });
        }
        let entries = self.slots.capacity();
        self.sqhd = (self.sqhd + 1) % entries;
        let cid = sqe.cid.get();
        let slot = match self.slots.insert(cid) {
            Ok(slot) => slot,
            Err(SlotError::Full) => return Err(TargetError::TooManyCommands { entries }),
            Err(SlotError::CidInUse) => {
                let status = Status::COMMAND_ID_CONFLICT.with_dnr();
                self.respond(Cqe::new(cid, self.sqhd, status, 0));
                return Ok(None);
            }
        };
        let plan = match self.plan(sqe, data_bytes) {
            Ok(plan) => plan,
            Err(status) => {
                self.complete_slot(slot, status.with_dnr(), 0);
                return Ok(None);
            }
        };
        self.meet_fault(slot, sqe);
        let mut sink = None;
        match plan {
            Plan::Ready { expects_bytes } => self.hand_up(slot, *sqe, Vec::new(), expects_bytes),
            Plan::InCapsule { bytes } => {
                self.start_fill(slot, sqe, bytes, Vec::with_capacity(bytes as usize));
                sink = Some(slot);
            }
            Plan::Ask { bytes } => {
                self.start_fill(slot, sqe, bytes, Vec::new());
                self.waiting.push_back(slot);
                self.ask_for_waiting();
            }
        }
        if self.slots.fault(slot) == Some(AnswerFault::Early) {
            self.answer_early(slot);
        }
        Ok(sink)
    }

    /// A command with all of its data is to be executed, unless it is lost.
    fn hand_up(&mut self, slot: u16, sqe: Sqe, payload: Vec<u8>, expects_bytes: u32) {
        if self.slots.fault(slot) == Some(AnswerFault::Swallow) {
            return self.give_back_budget(slot);
        }
        self.ready.push_back(TargetCommand { token: CommandToken { slot }, sqe, payload, expects_bytes });
    }

    fn plan(&self, sqe: &Sqe, data_bytes: u32) -> Result<Plan, Status> {
        // Fabrics allow SGLs only (Base 3.3.3.1, PSDT); fused operations are not supported.
        if sqe.flags != Sqe::FLAGS_SGL {
            return Err(Status::INVALID_FIELD);
        }
        let direction = Direction::of(sqe);
        if direction == Direction::None {
            return if data_bytes == 0 { Ok(Plan::Ready { expects_bytes: 0 }) } else { Err(Status::INVALID_FIELD) };
        }
        let sgl = Sgl::parse(&sqe.dptr)?;
        if sgl.length() > self.limits.max_transfer_bytes {
            return Err(Status::INVALID_FIELD);
        }
        match (direction, sgl) {
            (Direction::ToHost, Sgl::Transport { length }) if data_bytes == 0 => {
                Ok(Plan::Ready { expects_bytes: length })
            }
            (Direction::FromHost, Sgl::InCapsule { offset: 1.., .. }) => Err(Status::SGL_OFFSET_INVALID),
            (Direction::FromHost, Sgl::InCapsule { length, .. }) if length == data_bytes => Ok(match length {
                0 => Plan::Ready { expects_bytes: 0 },
                bytes => Plan::InCapsule { bytes },
            }),
            (Direction::FromHost, Sgl::Transport { length }) if data_bytes == 0 => Ok(match length {
                0 => Plan::Ready { expects_bytes: 0 },
                bytes => Plan::Ask { bytes },
            }),
            (Direction::ToHost, Sgl::InCapsule { .. }) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
            _ => Err(Status::DATA_SGL_LENGTH_INVALID),
        }
    }

    fn start_fill(&mut self, slot: u16, sqe: &Sqe, total: u32, payload: Vec<u8>) {
        let fill = Fill { sqe: *sqe, payload, total, requested: 0, r2t_ends: VecDeque::new(), damaged: false };
        if let Some(slot) = self.slots.get_mut(slot) {
            slot.fill = Some(fill);
        }
    }

    /// Gives commands their turn as long as the transfer budget lasts.
    fn ask_for_waiting(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let Some(slot) = self.slots.get_mut(index) else {
                return;
            };
            let Some(fill) = &mut slot.fill else { return };
            let reserved_bytes = self.reserved_bytes + u64::from(fill.total);
            if self.reserved_bytes > 0 && reserved_bytes > self.limits.transfer_budget_bytes.into() {
                return;
            }
            self.reserved_bytes = reserved_bytes;
            slot.reserved_bytes = fill.total;
            fill.payload.reserve_exact(fill.total as usize);
            self.waiting.pop_front();
            self.send_r2ts(index);
        }
    }

    /// Sends the R2Ts that a command may have now.
    fn send_r2ts(&mut self, index: u16) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let (cid, Some(fill)) = (slot.cid, &mut slot.fill) else {
            return;
        };
        while fill.requested < fill.total && fill.r2t_ends.len() < self.max_r2ts {
            let offset = fill.requested;
            let length = (fill.total - offset).min(self.limits.max_r2t_bytes);
            // The tag is the slot's index: the offset tells a command's R2Ts apart.
            let r2t = Pdu::R2t(R2t { cid, ttag: index, offset, length });
            let start = self.out.len();
            r2t.emit(&self.tx_framing, &[], &mut self.out);
            self.digest_faults.spoil_header(&mut self.out[start..]);
            fill.requested += length;
            fill.r2t_ends.push_back(fill.requested);
        }
    }

    /// Takes the header of an `H2CData` PDU; returns the slot that its data goes to.
    pub(super) fn on_h2c_data(&mut self, data: H2cData) -> Result<u16, TargetError> {
        let H2cData { cid, ttag, offset, length, last } = data;
        let limit = self.limits.max_h2c_data_bytes;
        if length > limit {
            return Err(TargetError::TooMuchData { pdu: PduType::H2cData, bytes: length, limit });
        }
        let unknown = TargetError::UnknownTransfer { cid, ttag };
        let slot = self.slots.get_mut(ttag).filter(|slot| slot.cid == cid).ok_or(unknown)?;
        let fill = slot.fill.as_mut().ok_or(unknown)?;
        let &end = fill.r2t_ends.front().ok_or(unknown)?;
        let expected = fill.payload.len() as u32;
        if offset != expected || length > end - expected {
            return Err(TargetError::DataOutOfRange { offset, length, expected, end });
        }
        if last != (expected + length == end) {
            return Err(TargetError::WrongLast { last });
        }
        Ok(ttag)
    }

    pub(super) fn on_data(&mut self, slot: u16, data: &[u8]) {
        if let Some(fill) = self.slots.get_mut(slot).and_then(|slot| slot.fill.as_mut()) {
            fill.payload.extend_from_slice(data);
        }
    }

    /// A PDU's data is complete; `intact` tells whether its digest was right.
    pub(super) fn on_data_end(&mut self, index: u16, intact: bool) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let Some(fill) = &mut slot.fill else { return };
        fill.damaged |= !intact;
        let received = fill.payload.len() as u32;
        if fill.r2t_ends.front() == Some(&received) {
            fill.r2t_ends.pop_front();
        }
        if received < fill.total {
            return self.send_r2ts(index);
        }
        let Some(Fill { sqe, payload, damaged, .. }) = slot.fill.take() else {
            return;
        };
        if damaged {
            return self.complete_slot(index, Status::TRANSIENT_TRANSPORT_ERROR, 0);
        }
        self.hand_up(index, sqe, payload, 0);
    }

    /// Empties a slot, gives its share of the transfer budget to the next in line, and returns its CID.
    pub(super) fn release(&mut self, slot: u16) -> u16 {
        self.give_back_budget(slot);
        self.slots.remove(slot).cid
    }

    pub(super) fn give_back_budget(&mut self, slot: u16) {
        let reserved_bytes = self.slots.get_mut(slot).map_or(0, |slot| std::mem::take(&mut slot.reserved_bytes));
        if reserved_bytes > 0 {
            self.reserved_bytes -= u64::from(reserved_bytes);
            self.ask_for_waiting();
        }
    }
}
