//! One connection: a submission and completion queue pair, seen from the controller.
//!
//! ```text
//!             ICReq          Connect accepted
//! AwaitIcReq ───────▶ Open ───────────────────▶ Open, role Admin or Io
//!      │                │                           │
//!      └────────────────┴──── fatal error ──────────┴──▶ Terminated
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::answer_faults::{AnswerFault, AnswerFaults};
use super::command::{CommandToken, TargetCommand};
use super::digest_faults::DigestFaults;
use super::error::TargetError;
use super::receive::{Item, Receiver};
use super::slots::Slots;
use crate::wire::{
    C2hData, Cqe, Digest, Framing, IcReq, IcResp, MAXH2CDATA_MIN, Opcode, PDU_ALIGNMENT_MAX, Pdu, Sqe, Status,
};

/// What one connection may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Most bytes of data in a command capsule of an I/O queue; IOCCSZ announces the same.
    pub in_capsule_bytes: u32,
    /// Most bytes one command transfers; MDTS announces the same. A power of two, 8192 at least.
    pub max_transfer_bytes: u32,
    /// Most bytes one `H2CData` PDU carries (MAXH2CDATA): at least 4096, a multiple of four.
    pub max_h2c_data_bytes: u32,
    /// Most bytes one R2T asks for, a multiple of four.
    pub max_r2t_bytes: u32,
    /// Most bytes one `C2HData` PDU carries, a multiple of four.
    pub max_c2h_data_bytes: u32,
    /// Most bytes of payload that R2Ts have asked for and that are not completed, over all commands. A command
    /// larger than that still gets its turn when it is alone.
    pub transfer_budget_bytes: u32,
    /// CPDA: alignment of the data that the host sends, in dwords, 0's-based (0–31).
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

/// What a connection is, once its Connect was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueIdentity {
    /// Controller.
    pub cntlid: u16,
    /// Queue of the controller; 0 is the admin queue.
    pub qid: u16,
    /// Entries of the submission queue.
    pub entries: u16,
    /// Whether the host follows SQHD; if not, responses may be left out.
    pub flow_control: bool,
}

/// Entries a queue has before its Connect says how many: the Connect itself.
const ENTRIES_UNCONNECTED: u16 = 1;

/// In-capsule data of fabrics and admin commands.
const ADMIN_IN_CAPSULE_BYTES: u32 = 8192;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    AwaitIcReq,
    Open,
    Terminated,
}

/// The target's side of one NVMe/TCP connection: bytes in, commands out; completions in, bytes out.
#[derive(Debug)]
pub struct TargetQueue {
    pub(super) limits: QueueLimits,
    phase: Phase,
    identity: Option<QueueIdentity>,
    receiver: Receiver,
    /// The slot that the data in flight belongs to; without one it is thrown away.
    sink: Option<u16>,
    pub(super) tx_framing: Framing,
    /// R2Ts that may be outstanding for one command.
    pub(super) max_r2ts: usize,
    pub(super) slots: Slots,
    pub(super) sqhd: u16,
    /// Slots of commands that wait for room in the transfer budget.
    pub(super) waiting: VecDeque<u16>,
    pub(super) reserved_bytes: u64,
    pub(super) ready: VecDeque<TargetCommand>,
    pub(super) digest_faults: Arc<DigestFaults>,
    answer_faults: Arc<AnswerFaults>,
    pub(super) out: Vec<u8>,
    out_sent: usize,
}

impl TargetQueue {
    /// A connection of which nothing has arrived yet.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        limits.check();
        Self {
            limits,
            phase: Phase::AwaitIcReq,
            identity: None,
            receiver: Receiver::new(Framing::default()),
            sink: None,
            tx_framing: Framing::default(),
            max_r2ts: 1,
            slots: Slots::new(ENTRIES_UNCONNECTED),
            sqhd: 0,
            waiting: VecDeque::new(),
            reserved_bytes: 0,
            ready: VecDeque::new(),
            digest_faults: Arc::default(),
            answer_faults: Arc::default(),
            out: Vec::new(),
            out_sent: 0,
        }
    }

    /// What the connection is; `None` before its Connect was accepted.
    #[must_use]
    pub fn identity(&self) -> Option<QueueIdentity> {
        self.identity
    }

    /// Takes bytes from the host, however they were cut.
    ///
    /// After an error the connection is over: send what is [`pending`](Self::pending), then close.
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
                    if let Some(slot) = self.sink {
                        self.on_data(slot, data);
                    }
                }
                Item::End { intact } => {
                    if let Some(slot) = self.sink.take() {
                        self.on_data_end(slot, intact);
                    }
                }
            }
        }
        Ok(())
    }

    fn on_header(&mut self, pdu: Pdu, data_bytes: u32) -> Result<(), TargetError> {
        match (self.phase, pdu) {
            (Phase::AwaitIcReq, Pdu::IcReq(icreq)) => self.on_icreq(icreq),
            (_, Pdu::H2cTermReq(term)) => return Err(TargetError::HostTerminated(term)),
            (Phase::Open, Pdu::CapsuleCmd(sqe)) => self.sink = self.on_capsule(&sqe, data_bytes)?,
            (Phase::Open, Pdu::H2cData(data)) => self.sink = Some(self.on_h2c_data(data)?),
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

    /// Ends the connection, with a terminate request if the host should know why.
    fn terminate(&mut self, error: TargetError) {
        self.phase = Phase::Terminated;
        self.ready.clear();
        self.waiting.clear();
        if let Some(term) = error.term_req() {
            let header = self.receiver.header_bytes();
            Pdu::C2hTermReq(term).emit(&self.tx_framing, header, &mut self.out);
        }
    }

    /// Bytes that are sure to come: what is missing of the PDU that is being received, its data digest included. 0 between two PDUs, and
    /// while its header is being received. Before the last of them there is nothing to execute and nothing to send.
    #[must_use]
    pub fn missing_bytes(&self) -> u32 {
        self.receiver.missing_bytes()
    }

    /// The next command to execute. Each one must be completed by its token, in any order.
    pub fn poll_command(&mut self) -> Option<TargetCommand> {
        self.ready.pop_front()
    }

    /// Fabrics and admin commands carry up to 8 KiB whatever IOCCSZ says (TCP Transport 3.3.1).
    pub(super) fn in_capsule_limit(&self) -> u32 {
        match self.identity {
            Some(QueueIdentity { qid: 1.., .. }) => self.limits.in_capsule_bytes,
            _ => ADMIN_IN_CAPSULE_BYTES,
        }
    }

    /// Whether [`poll_command`](Self::poll_command) has something.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Commands that are not completed yet, those whose data is still on its way included.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.slots.in_use().into()
    }

    /// Makes the connection a queue of a controller and completes the Connect that asked for it.
    pub fn accept(&mut self, CommandToken { slot }: CommandToken, identity: QueueIdentity) {
        self.identity = Some(identity);
        self.slots.set_capacity(identity.entries);
        // The Connect itself was the queue's first entry.
        self.sqhd = 1 % identity.entries;
        // SQHD FFFFh tells the host that it is not kept up to date.
        let sqhd = if identity.flow_control { self.sqhd } else { u16::MAX };
        self.finish(slot, sqhd, Status::SUCCESS, identity.cntlid.into());
    }

    /// Completes a command without data for the host.
    pub fn complete(&mut self, CommandToken { slot }: CommandToken, status: Status, result: u64) {
        self.complete_slot(slot, status, result);
    }

    /// Completes a command with `bytes` bytes for the host, laid out in place: `fill` gets the offset in the whole
    /// and the part to fill, in order. If it fails, the host gets its status and no data.
    pub fn complete_with_data(
        &mut self,
        token: CommandToken,
        bytes: u32,
        mut fill: impl FnMut(u32, &mut [u8]) -> Result<(), Status>,
    ) {
        let start = self.out.len();
        // A success flag in place of the response saves a PDU, but carries no SQHD.
        let short = self.identity.is_some_and(|identity| !identity.flow_control);
        let Some(cid) = self.slots.get_mut(token.slot).map(|slot| slot.cid) else {
            return;
        };
        let fault = self.slots.fault(token.slot);
        let bytes = match fault {
            Some(AnswerFault::Lose) => 0,
            Some(AnswerFault::Short) => bytes / 2,
            _ => bytes,
        };
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(self.limits.max_c2h_data_bytes);
            let last = offset + length == bytes;
            let pdu = Pdu::C2hData(C2hData { cid, offset, length, last, success: last && short });
            let header = self.out.len();
            pdu.emit_header(&self.tx_framing, length, &mut self.out);
            let data = self.out.len();
            self.out.resize(data + length as usize, 0);
            if let Err(status) = fill(offset, &mut self.out[data..]) {
                self.out.truncate(start);
                return self.complete(token, status, 0);
            }
            self.digest_faults.spoil_header(&mut self.out[header..]);
            if self.tx_framing.digests.data {
                let mut digest = Digest::default();
                digest.update(&self.out[data..]);
                let digest = self.digest_faults.spoil_data(digest);
                self.out.extend_from_slice(&digest);
            }
            offset += length;
        }
        if short && bytes > 0 {
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
        let answers = match self.slots.fault(slot) {
            Some(AnswerFault::Lose) => return self.give_back_budget(slot),
            Some(AnswerFault::Early) => 0,
            Some(AnswerFault::Twice) => 2,
            _ => 1,
        };
        let cid = self.release(slot);
        for _ in 0..answers {
            self.respond(Cqe::new(cid, sqhd, status, result));
        }
    }

    /// Has the command that has just arrived in this slot meet the fault that it is to meet.
    pub(super) fn meet_fault(&mut self, slot: u16, sqe: &Sqe) {
        if self.identity.is_some_and(|identity| identity.qid > 0)
            && Opcode(sqe.opcode) != Opcode::FABRICS
            && let Some(slot) = self.slots.get_mut(slot)
        {
            slot.fault = self.answer_faults.take(sqe);
        }
    }

    /// Answers a command with success, whose data are still to come.
    pub(super) fn answer_early(&mut self, slot: u16) {
        if let Some(cid) = self.slots.answer(slot) {
            self.respond(Cqe::new(cid, self.sqhd, Status::SUCCESS, 0));
        }
    }

    pub(super) fn respond(&mut self, cqe: Cqe) {
        if self.phase == Phase::Open {
            let start = self.out.len();
            Pdu::CapsuleResp(cqe).emit(&self.tx_framing, &[], &mut self.out);
            self.digest_faults.spoil_header(&mut self.out[start..]);
        }
    }

    /// Makes as many of the next digests wrong as `faults` says, where digests are in use.
    pub fn set_digest_faults(&mut self, faults: Arc<DigestFaults>) {
        self.digest_faults = faults;
    }

    /// Has commands that arrive from now on meet the faults that `faults` says.
    pub fn set_answer_faults(&mut self, faults: Arc<AnswerFaults>) {
        self.answer_faults = faults;
    }

    /// How much later a command is to be executed and answered than others.
    #[must_use]
    pub fn late_by(&self, token: &CommandToken) -> Duration {
        match self.slots.fault(token.slot) {
            Some(AnswerFault::Late(time)) => time,
            _ => Duration::ZERO,
        }
    }

    /// Bytes to send to the host.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.out[self.out_sent..]
    }

    /// The first `bytes` of [`pending`](Self::pending) are sent.
    pub fn sent(&mut self, bytes: usize) {
        self.out_sent += bytes;
        assert!(self.out_sent <= self.out.len(), "more was sent than there was");
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out_sent = 0;
            self.out.shrink_to(OUT_KEPT_BYTES);
        }
    }
}

/// Capacity that the output buffer keeps when it is empty.
const OUT_KEPT_BYTES: usize = 1 << 20;
