//! One connection: a submission and completion queue pair, seen from the controller.
//!
//! ```text
//!             ICReq          Connect accepted
//! AwaitIcReq ───────▶ Open ───────────────────▶ Open, role Admin or Io
//!      │                │                           │
//!      └────────────────┴──── fatal error ──────────┴──▶ Terminated
//!
//! With an authentication, the queue itself answers the commands of a host that is not proven (see `authentication.rs`).
//! ```

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use monotonic::Duration;
use nvme_tcp::wire::{
    C2hData, ConnectResult, Cqe, Digest, Framing, IcReq, IcResp, MAXH2CDATA_MIN, Opcode, PDU_ALIGNMENT_MAX, Pdu, Sqe,
    Status,
};

use super::answer_faults::{AnswerFault, AnswerFaults};
use super::authentication::TargetAuthentication;
use super::command::{CommandToken, TargetCommand};
use super::command_table::CommandTable;
use super::digest_faults::DigestFaults;
use super::error::TargetError;
use super::receive::{Item, Receiver};
use super::spare_payloads::SparePayloads;

/// The limits of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// The most data in a command capsule of an I/O queue, in bytes; announced as IOCCSZ.
    pub in_capsule_bytes: u32,
    /// The most data of one command, in bytes; announced as MDTS. A power of two, at least 8192.
    pub max_transfer_bytes: u32,
    /// The most data in one `H2CData` PDU, in bytes (MAXH2CDATA). At least 4096, a multiple of four.
    pub max_h2c_data_bytes: u32,
    /// The most data that one R2T requests, in bytes. A multiple of four.
    pub max_r2t_bytes: u32,
    /// The most data in one `C2HData` PDU, in bytes. A multiple of four.
    pub max_c2h_data_bytes: u32,
    /// The most data that all commands may have requested by R2Ts and not completed, in bytes. A command larger than this runs
    /// alone.
    pub transfer_budget_bytes: u32,
    /// CPDA: the alignment of data from the host, in dwords, 0's-based (0–31).
    pub cpda: u8,
}

impl QueueLimits {
    fn check(&self) {
        let aligned = |bytes: u32| bytes >= 4 && bytes.is_multiple_of(4);
        assert!(self.max_h2c_data_bytes >= MAXH2CDATA_MIN && aligned(self.max_h2c_data_bytes));
        assert!(aligned(self.max_r2t_bytes) && aligned(self.max_c2h_data_bytes));
        // MDTS counts in powers of two of 4 KiB, and 0 means no limit.
        assert!(self.max_transfer_bytes >= 8192 && self.max_transfer_bytes.is_power_of_two());
        assert!(self.cpda <= PDU_ALIGNMENT_MAX);
    }
}

impl Default for QueueLimits {
    fn default() -> Self {
        Self {
            in_capsule_bytes: 8192,
            max_transfer_bytes: 1 << 20,
            max_h2c_data_bytes: 128 << 10,
            max_r2t_bytes: 1 << 20,
            max_c2h_data_bytes: 256 << 10,
            transfer_budget_bytes: 8 << 20,
            cpda: 0,
        }
    }
}

/// The queue that a connection carries, once its Connect was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueIdentity {
    /// The controller.
    pub cntlid: u16,
    /// The queue of the controller; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// The host follows SQHD. If not, `C2HData` with SUCCESS may replace a response.
    pub flow_control: bool,
}

/// Entries of a queue before its Connect is accepted: the Connect itself.
const ENTRIES_UNCONNECTED: u16 = 1;

/// The most in-capsule data of fabrics and admin commands, in bytes.
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitIcReq,
    Open,
    Terminated,
}

/// The target's side of one NVMe/TCP connection. It turns received bytes into commands, and completions into bytes to send.
#[derive(Debug)]
pub struct TargetQueue {
    pub(super) limits: QueueLimits,
    phase: Phase,
    identity: Option<QueueIdentity>,
    pub(super) authentication: Option<Box<TargetAuthentication>>,
    receiver: Receiver,
    /// The slot of the command whose data arrive; `None` discards the data.
    data_slot: Option<u16>,
    pub(super) tx_framing: Framing,
    /// The most outstanding R2Ts of one command.
    pub(super) max_r2ts: usize,
    pub(super) commands: CommandTable,
    pub(super) sqhd: u16,
    /// Slots of commands that wait for transfer budget.
    pub(super) waiting: VecDeque<u16>,
    pub(super) reserved_bytes: u64,
    pub(super) spare_payloads: SparePayloads,
    pub(super) ready: VecDeque<TargetCommand>,
    pub(super) digest_faults: Arc<DigestFaults>,
    answer_faults: Arc<AnswerFaults>,
    pub(super) out: Vec<u8>,
    out_sent: usize,
}

impl TargetQueue {
    /// A fresh connection.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        limits.check();
        Self {
            limits,
            phase: Phase::AwaitIcReq,
            identity: None,
            authentication: None,
            receiver: Receiver::new(Framing::default()),
            data_slot: None,
            tx_framing: Framing::default(),
            max_r2ts: 1,
            commands: CommandTable::new(ENTRIES_UNCONNECTED),
            sqhd: 0,
            waiting: VecDeque::new(),
            reserved_bytes: 0,
            spare_payloads: SparePayloads::default(),
            ready: VecDeque::new(),
            digest_faults: Arc::default(),
            answer_faults: Arc::default(),
            out: Vec::new(),
            out_sent: 0,
        }
    }

    /// The queue that the connection carries; `None` before its Connect was accepted.
    #[must_use]
    pub fn identity(&self) -> Option<QueueIdentity> {
        self.identity
    }

    /// Takes bytes from the host, split at any place.
    ///
    /// An error ends the connection: send the [`pending`](Self::pending) bytes, then close.
    pub fn receive(&mut self, mut bytes: &[u8]) -> Result<(), TargetError> {
        if self.phase == Phase::Terminated {
            return Err(TargetError::Terminated);
        }
        let result = self.receive_items(&mut bytes);
        if let Err(error) = result {
            self.terminate(error);
        }
        result
    }

    fn receive_items(&mut self, bytes: &mut &[u8]) -> Result<(), TargetError> {
        while let Some(item) = self.receiver.next(bytes)? {
            match item {
                Item::Header(pdu, data_bytes) => self.on_header(pdu, data_bytes)?,
                Item::Data(data) => {
                    if let Some(slot) = self.data_slot {
                        self.on_data(slot, data);
                    }
                }
                Item::End { intact } => {
                    if let Some(slot) = self.data_slot.take() {
                        self.on_data_end(slot, intact);
                    }
                }
            }
            if self.authentication_error().is_some() {
                return Err(TargetError::NotAuthenticated);
            }
        }
        Ok(())
    }

    fn on_header(&mut self, pdu: Pdu, data_bytes: u32) -> Result<(), TargetError> {
        match (self.phase, pdu) {
            (Phase::AwaitIcReq, Pdu::IcReq(icreq)) => self.on_icreq(icreq),
            (_, Pdu::H2cTermReq(term)) => return Err(TargetError::HostTerminated(term)),
            (Phase::Open, Pdu::CapsuleCmd(sqe)) => self.data_slot = self.on_capsule(&sqe, data_bytes)?,
            (Phase::Open, Pdu::H2cData(data)) => self.data_slot = Some(self.on_h2c_data(data)?),
            _ => return Err(TargetError::OutOfSequence(pdu.pdu_type())),
        }
        Ok(())
    }

    fn on_icreq(&mut self, icreq: IcReq) {
        let IcReq { hpda, digests, maxr2t } = icreq;
        let cpda = self.limits.cpda;
        let icresp = IcResp { cpda, digests, maxh2cdata: self.limits.max_h2c_data_bytes };
        Pdu::IcResp(icresp).emit(&Framing::default(), &[], &mut self.out);
        self.receiver.framing = Framing { digests, alignment: cpda };
        self.tx_framing = Framing { digests, alignment: hpda };
        self.max_r2ts = maxr2t.saturating_add(1) as usize;
        self.phase = Phase::Open;
    }

    /// Ends the connection, with a terminate request unless the host has ended it.
    fn terminate(&mut self, error: TargetError) {
        self.phase = Phase::Terminated;
        self.ready.clear();
        self.waiting.clear();
        if let Some(term) = error.term_req() {
            let header = self.receiver.header_bytes();
            Pdu::C2hTermReq(term).emit(&self.tx_framing, header, &mut self.out);
        }
    }

    /// Bytes that complete the PDU that is being received, including the data digest. 0 between PDUs, and during a header. Until
    /// the last of these bytes arrives, receiving leads to no command and no answer.
    #[must_use]
    pub fn missing_bytes(&self) -> u32 {
        self.receiver.missing_bytes()
    }

    /// The next command to execute. Complete each command by its token, in any order.
    pub fn poll_command(&mut self) -> Option<TargetCommand> {
        self.ready.pop_front()
    }

    /// Takes the payload of an executed command back. Its memory serves later commands.
    pub fn reuse(&mut self, payload: Vec<u8>) {
        self.spare_payloads.put(payload);
    }

    /// The most in-capsule data in bytes. IOCCSZ does not apply to fabrics and admin commands (TCP Transport 3.3.1).
    pub(super) fn in_capsule_limit(&self, sqe: &Sqe) -> u32 {
        match self.identity {
            Some(QueueIdentity { qid: 1.., .. }) if Opcode(sqe.opcode) != Opcode::FABRICS => {
                self.limits.in_capsule_bytes
            }
            _ => ADMIN_IN_CAPSULE_BYTES,
        }
    }

    /// Whether [`poll_command`](Self::poll_command) would return a command.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Commands that are not completed, including commands whose data have not arrived.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.commands.in_use().into()
    }

    /// Accepts a Connect: completes it, and makes the connection a queue of a controller. `authentication` is that of
    /// [`Subsystem::authentication`](super::Subsystem::authentication). With one, the host must prove itself first.
    pub fn accept(
        &mut self,
        CommandToken { slot }: CommandToken,
        identity: QueueIdentity,
        authentication: Option<Box<TargetAuthentication>>,
    ) {
        let authentication_required = authentication.is_some();
        let secure_channel_required =
            authentication.as_ref().is_some_and(|authentication| authentication.concatenates());
        self.identity = Some(identity);
        self.authentication = authentication;
        self.commands.set_capacity(identity.entries);
        // The Connect itself was the first entry of the queue.
        self.sqhd = 1 % identity.entries;
        // SQHD FFFFh tells the host that SQHD is not updated.
        let sqhd = if identity.flow_control { self.sqhd } else { u16::MAX };
        let cntlid = identity.cntlid;
        let result = ConnectResult { cntlid, authentication_required, secure_channel_required };
        self.finish(slot, sqhd, Status::SUCCESS, result.to_result());
    }

    /// Completes a command that returns no data.
    pub fn complete(&mut self, CommandToken { slot }: CommandToken, status: Status, result: u64) {
        self.complete_slot(slot, status, result);
    }

    /// Completes a command that returns `bytes` bytes. `append` is called for each part in order. The function gets the place of
    /// the part in the data, in bytes, and appends exactly these bytes to the buffer. If the function fails, the host gets the
    /// status and no data.
    pub fn complete_with_data(
        &mut self,
        token: CommandToken,
        bytes: u32,
        mut append: impl FnMut(Range<usize>, &mut Vec<u8>) -> Result<(), Status>,
    ) {
        let start = self.out.len();
        // The SUCCESS flag replaces the response and saves a PDU, but cannot carry SQHD.
        let has_success_flag = self.identity.is_some_and(|identity| !identity.flow_control);
        let Some(cid) = self.commands.get_mut(token.slot).map(|command| command.cid) else {
            return;
        };
        let fault = self.commands.fault(token.slot);
        let bytes = match fault {
            Some(AnswerFault::Lose) => 0,
            Some(AnswerFault::Short) => bytes / 2,
            _ => bytes,
        };
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(self.limits.max_c2h_data_bytes);
            let last = offset + length == bytes;
            let pdu = Pdu::C2hData(C2hData { cid, offset, length, last, success: last && has_success_flag });
            let header = self.out.len();
            pdu.emit_header(&self.tx_framing, length, &mut self.out);
            let data = self.out.len();
            let part = offset as usize..(offset + length) as usize;
            if let Err(status) = append(part, &mut self.out) {
                self.out.truncate(start);
                return self.complete(token, status, 0);
            }
            assert_eq!(self.out.len() - data, length as usize, "the caller appends the whole part");
            self.digest_faults.corrupt_header(&mut self.out[header..]);
            if self.tx_framing.digests.data {
                let mut digest = Digest::default();
                digest.update(&self.out[data..]);
                let digest = self.digest_faults.corrupt_data(digest);
                self.out.extend_from_slice(&digest);
            }
            offset += length;
        }
        if has_success_flag && bytes > 0 {
            self.release(token.slot);
            if fault == Some(AnswerFault::Twice) {
                self.respond(Cqe::new(cid, 0, Status::SUCCESS, 0));
            }
        } else {
            self.complete(token, Status::SUCCESS, 0);
        }
    }

    pub(super) fn complete_slot(&mut self, slot: u16, status: Status, result: u64) {
        let flow_control = self.identity.is_none_or(|identity| identity.flow_control);
        self.finish(slot, if flow_control { self.sqhd } else { 0 }, status, result);
    }

    fn finish(&mut self, slot: u16, sqhd: u16, status: Status, result: u64) {
        let answers = match self.commands.fault(slot) {
            Some(AnswerFault::Lose) => return self.release_budget(slot),
            Some(AnswerFault::Early) => 0,
            Some(AnswerFault::Twice) => 2,
            _ => 1,
        };
        let cid = self.release(slot);
        for _ in 0..answers {
            self.respond(Cqe::new(cid, sqhd, status, result));
        }
    }

    /// Gives the command that has just arrived in this slot its fault, if one is due.
    pub(super) fn assign_fault(&mut self, slot: u16, sqe: &Sqe) {
        if self.identity.is_some_and(|identity| identity.qid > 0)
            && Opcode(sqe.opcode) != Opcode::FABRICS
            && let Some(command) = self.commands.get_mut(slot)
        {
            command.fault = self.answer_faults.take(sqe);
        }
    }

    /// Answers a command with success before its data have arrived.
    pub(super) fn answer_early(&mut self, slot: u16) {
        if let Some(cid) = self.commands.mark_answered(slot) {
            self.respond(Cqe::new(cid, self.sqhd, Status::SUCCESS, 0));
        }
    }

    pub(super) fn respond(&mut self, cqe: Cqe) {
        if self.phase == Phase::Open {
            let start = self.out.len();
            Pdu::CapsuleResp(cqe).emit(&self.tx_framing, &[], &mut self.out);
            self.digest_faults.corrupt_header(&mut self.out[start..]);
        }
    }

    /// Sets the source of digest faults. It takes effect on digests that are sent later.
    pub fn set_digest_faults(&mut self, faults: Arc<DigestFaults>) {
        self.digest_faults = faults;
    }

    /// Sets the source of answer faults. It takes effect on commands that arrive later.
    pub fn set_answer_faults(&mut self, faults: Arc<AnswerFaults>) {
        self.answer_faults = faults;
    }

    /// The time by which the execution of a command is delayed, because of [`AnswerFault::Late`].
    #[must_use]
    pub fn fault_delay(&self, token: &CommandToken) -> Duration {
        match self.commands.fault(token.slot) {
            Some(AnswerFault::Late(time)) => time,
            _ => Duration::ZERO,
        }
    }

    /// Bytes to send to the host.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.out[self.out_sent..]
    }

    /// Takes note that the first `bytes` of [`pending`](Self::pending) were sent.
    pub fn sent(&mut self, bytes: usize) {
        self.out_sent += bytes;
        assert!(self.out_sent <= self.out.len(), "sent more than was pending");
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
            self.out.shrink_to(OUT_KEPT_BYTES);
        }
    }
}

/// The capacity that an empty output buffer keeps, in bytes.
const OUT_KEPT_BYTES: usize = 1 << 20;
