//! Receiving commands and their data, which arrive in the capsule or by R2T.

use std::collections::VecDeque;

use nvme_tcp::wire::{Cqe, H2cData, Opcode, Pdu, PduType, R2t, Sgl, Sqe, Status};

use super::answer_faults::AnswerFault;
use super::command::{CommandToken, TargetCommand};
use super::command_table::{IncomingData, InsertError};
use super::error::TargetError;
use super::queue::TargetQueue;

/// The direction of a command's data: the low two bits of its opcode, or of FCTYPE (Base 3.3.3.1).
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
            // 3 is bidirectional. No supported command has it, so the command will be refused.
            _ => Self::None,
        }
    }
}

/// How the data of a command arrive.
enum HostData {
    /// The host sends no data.
    None { expects_bytes: u32 },
    /// In the capsule.
    InCapsule { bytes: u32 },
    /// Requested by R2T.
    ByR2t { bytes: u32 },
}

impl TargetQueue {
    /// Takes a command capsule. Returns the slot for its data.
    pub(super) fn on_capsule(&mut self, sqe: &Sqe, data_bytes: u32) -> Result<Option<u16>, TargetError> {
        let limit = self.in_capsule_limit(sqe);
        if data_bytes > limit {
            return Err(TargetError::TooMuchData { pdu: PduType::CapsuleCmd, bytes: data_bytes, limit });
        }
        let entries = self.commands.capacity();
        self.sqhd = (self.sqhd + 1) % entries;
        let cid = sqe.cid.get();
        let slot = match self.commands.insert(cid) {
            Ok(slot) => slot,
            Err(InsertError::Full) => return Err(TargetError::TooManyCommands { entries }),
            Err(InsertError::CidInUse) => {
                let status = Status::COMMAND_ID_CONFLICT.with_dnr();
                self.respond(Cqe::new(cid, self.sqhd, status, 0));
                return Ok(None);
            }
        };
        let host_data = match self.host_data(sqe, data_bytes) {
            Ok(host_data) => host_data,
            Err(status) => {
                self.complete_slot(slot, status.with_dnr(), 0);
                return Ok(None);
            }
        };
        self.assign_fault(slot, sqe);
        let mut data_slot = None;
        match host_data {
            HostData::None { expects_bytes } => self.make_ready(slot, *sqe, Vec::new(), expects_bytes),
            HostData::InCapsule { bytes } => {
                let payload = self.spare_payloads.take(bytes);
                self.expect_data(slot, sqe, bytes, payload);
                data_slot = Some(slot);
            }
            HostData::ByR2t { bytes } => {
                self.expect_data(slot, sqe, bytes, Vec::new());
                self.waiting.push_back(slot);
                self.start_waiting_transfers();
            }
        }
        if self.commands.fault(slot) == Some(AnswerFault::Early) {
            self.answer_early(slot);
        }
        Ok(data_slot)
    }

    /// Makes a command with all of its data ready for execution, unless its fault is `Swallow` or the authentication answers it.
    fn make_ready(&mut self, slot: u16, sqe: Sqe, payload: Vec<u8>, expects_bytes: u32) {
        if self.commands.fault(slot) == Some(AnswerFault::Swallow) {
            return self.release_budget(slot);
        }
        let command = TargetCommand { token: CommandToken { slot }, sqe, payload, expects_bytes };
        if let Some(command) = self.authenticate(command) {
            self.ready.push_back(command);
        }
    }

    /// How the data of the command arrive, or the status of an invalid command.
    fn host_data(&self, sqe: &Sqe, data_bytes: u32) -> Result<HostData, Status> {
        // Fabrics allow SGLs only (Base 3.3.3.1, PSDT); fused operations are not supported.
        if sqe.flags != Sqe::FLAGS_SGL {
            return Err(Status::INVALID_FIELD);
        }
        let direction = Direction::of(sqe);
        if direction == Direction::None {
            return if data_bytes == 0 { Ok(HostData::None { expects_bytes: 0 }) } else { Err(Status::INVALID_FIELD) };
        }
        let sgl = Sgl::parse(&sqe.dptr)?;
        if sgl.length() > self.limits.max_transfer_bytes {
            return Err(Status::INVALID_FIELD);
        }
        match (direction, sgl) {
            (Direction::ToHost, Sgl::Transport { length }) if data_bytes == 0 => {
                Ok(HostData::None { expects_bytes: length })
            }
            (Direction::FromHost, Sgl::InCapsule { offset: 1.., .. }) => Err(Status::SGL_OFFSET_INVALID),
            (Direction::FromHost, Sgl::InCapsule { length, .. }) if length == data_bytes => Ok(match length {
                0 => HostData::None { expects_bytes: 0 },
                bytes => HostData::InCapsule { bytes },
            }),
            (Direction::FromHost, Sgl::Transport { length }) if data_bytes == 0 => Ok(match length {
                0 => HostData::None { expects_bytes: 0 },
                bytes => HostData::ByR2t { bytes },
            }),
            (Direction::ToHost, Sgl::InCapsule { .. }) => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
            _ => Err(Status::DATA_SGL_LENGTH_INVALID),
        }
    }

    /// Prepares a command for data from the host.
    fn expect_data(&mut self, slot: u16, sqe: &Sqe, total: u32, payload: Vec<u8>) {
        let incoming =
            IncomingData { sqe: *sqe, payload, total, requested: 0, r2t_ends: VecDeque::new(), damaged: false };
        if let Some(command) = self.commands.get_mut(slot) {
            command.incoming = Some(incoming);
        }
    }

    /// Starts transfers of waiting commands, as far as the transfer budget allows.
    fn start_waiting_transfers(&mut self) {
        while let Some(&index) = self.waiting.front() {
            let Some(command) = self.commands.get_mut(index) else {
                return;
            };
            let Some(incoming) = &mut command.incoming else { return };
            let reserved_bytes = self.reserved_bytes + u64::from(incoming.total);
            if self.reserved_bytes > 0 && reserved_bytes > self.limits.transfer_budget_bytes.into() {
                return;
            }
            self.reserved_bytes = reserved_bytes;
            command.reserved_bytes = incoming.total;
            incoming.payload = self.spare_payloads.take(incoming.total);
            self.waiting.pop_front();
            self.send_r2ts(index);
        }
    }

    /// Sends R2Ts for a command, as many as may be outstanding.
    fn send_r2ts(&mut self, index: u16) {
        let Some(command) = self.commands.get_mut(index) else {
            return;
        };
        let (cid, Some(incoming)) = (command.cid, &mut command.incoming) else {
            return;
        };
        while incoming.requested < incoming.total && incoming.r2t_ends.len() < self.max_r2ts {
            let offset = incoming.requested;
            let length = (incoming.total - offset).min(self.limits.max_r2t_bytes);
            // TTAG is the slot of the command. R2Ts of the same command differ by offset.
            let r2t = Pdu::R2t(R2t { cid, ttag: index, offset, length });
            let start = self.out.len();
            r2t.emit(&self.tx_framing, &[], &mut self.out);
            self.digest_faults.corrupt_header(&mut self.out[start..]);
            incoming.requested += length;
            incoming.r2t_ends.push_back(incoming.requested);
        }
    }

    /// Takes the header of an `H2CData` PDU. Returns the slot for its data.
    pub(super) fn on_h2c_data(&mut self, data: H2cData) -> Result<u16, TargetError> {
        let H2cData { cid, ttag, offset, length, last } = data;
        let limit = self.limits.max_h2c_data_bytes;
        if length > limit {
            return Err(TargetError::TooMuchData { pdu: PduType::H2cData, bytes: length, limit });
        }
        let unknown = TargetError::UnknownTransfer { cid, ttag };
        let command = self.commands.get_mut(ttag).filter(|command| command.cid == cid).ok_or(unknown)?;
        let incoming = command.incoming.as_mut().ok_or(unknown)?;
        let &end = incoming.r2t_ends.front().ok_or(unknown)?;
        let expected = incoming.payload.len() as u32;
        if offset != expected || length > end - expected {
            return Err(TargetError::DataOutOfRange { offset, length, expected, end });
        }
        if last != (expected + length == end) {
            return Err(TargetError::WrongLast { last });
        }
        Ok(ttag)
    }

    pub(super) fn on_data(&mut self, slot: u16, data: &[u8]) {
        if let Some(incoming) = self.commands.get_mut(slot).and_then(|command| command.incoming.as_mut()) {
            incoming.payload.extend_from_slice(data);
        }
    }

    /// Takes note that the data of a PDU are complete. `intact`: the data digest was right.
    pub(super) fn on_data_end(&mut self, index: u16, intact: bool) {
        let Some(command) = self.commands.get_mut(index) else {
            return;
        };
        let Some(incoming) = &mut command.incoming else { return };
        incoming.damaged |= !intact;
        let received = incoming.payload.len() as u32;
        if incoming.r2t_ends.front() == Some(&received) {
            incoming.r2t_ends.pop_front();
        }
        if received < incoming.total {
            return self.send_r2ts(index);
        }
        let Some(IncomingData { sqe, payload, damaged, .. }) = command.incoming.take() else {
            return;
        };
        if damaged {
            return self.complete_slot(index, Status::TRANSIENT_TRANSPORT_ERROR, 0);
        }
        self.make_ready(index, sqe, payload, 0);
    }

    /// Frees a slot and its share of the transfer budget. Returns the CID of its command.
    pub(super) fn release(&mut self, slot: u16) -> u16 {
        self.release_budget(slot);
        self.commands.remove(slot).cid
    }

    /// Frees the share of the transfer budget of a command, and starts waiting transfers.
    pub(super) fn release_budget(&mut self, slot: u16) {
        let reserved_bytes =
            self.commands.get_mut(slot).map_or(0, |command| std::mem::take(&mut command.reserved_bytes));
        if reserved_bytes > 0 {
            self.reserved_bytes -= u64::from(reserved_bytes);
            self.start_waiting_transfers();
        }
    }
}
