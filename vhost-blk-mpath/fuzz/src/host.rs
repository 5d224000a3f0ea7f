//! A host for fuzz targets: valid PDUs, PDUs that are wrong in one place, and any bytes. It checks the answers.
//!
//! The corpus of `target_queue` has inputs that replay commands of the host of Linux 6.12.117, with digests and authentication
//! too. The names, the CNTLID, the blocks and the proofs of the authentication are those of the fuzz target.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nvme_auth::{AuthConfig, Concatenation, DhGroup, Hash, HostAuthentication, Secret, Step as AuthStep};
use nvme_tcp::wire::{
    AdminCommand, C2hData, CNTLID_ANY, CommonHeader, Connect, ConnectData, ControllerInstance, Digests, FabricsCommand,
    Framing, H2cData, IcReq, Nqn, NvmCommand, Opcode, Pdu, R2t, Sgl, Sqe, Status,
};

use crate::controller::{host, page};
use crate::pdu::{Capsule, PduStream, icreq};

/// Opcode and FCTYPE of Authentication Receive.
const AUTHENTICATION_RECEIVE: [u8; 2] = [0x7f, 0x06];
/// The most bytes of data in one capsule.
const CAPSULE_DATA_MAX: u16 = 9000;
/// A `skew` of at most this does nothing.
const SKEW_MIN: u8 = 128;

/// What a host sends next.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// Any bytes.
    Bytes(Vec<u8>),
    /// The first PDU.
    IcReq { hpda: u8, header_digest: bool, data_digest: bool, maxr2t: u32 },
    /// Connect of an admin queue (0), or of an I/O queue of the last controller.
    Connect { qid: u8, sqsize: u8, cattr: u8, kato_ms: u32 },
    /// Any command.
    Command { cid: u16, opcode: u8, nsid: u32, cdw: [u32; 6], data: Data },
    /// An I/O command whose SGL has the right length. The blocks may be beyond the end of the namespace.
    Io { cid: u16, kind: u8, nsid: u8, slba: u8, blocks: u8, in_capsule: bool },
    /// The next data of an R2T, counted from the last one. At most so many bytes. A large `skew` makes them the wrong bytes.
    H2cData { r2t: u8, bytes: u16, skew: u8 },
    /// The next message of the authentication.
    AuthenticationSend { cid: u16 },
    /// The request for the controller's next message.
    AuthenticationReceive { cid: u16, bytes: u16 },
    /// The reset of the last controller.
    CrossControllerReset { cid: u16 },
}

/// The data of a command.
#[derive(Arbitrary, Debug)]
pub enum Data {
    /// From the controller, or from the host by R2T. Zero bytes are no data.
    Transport(u32),
    /// In the capsule: zeroes, apart from these bytes.
    InCapsule { length: u16, bytes: Vec<(u16, u8)> },
}

/// A command without its whole answer.
struct Command {
    capsule: Capsule,
    /// The data of the answer so far.
    data: Vec<u8>,
}

/// The host's view of a connection.
pub struct Host {
    subnqn: Nqn,
    to_target: PduStream,
    from_target: PduStream,
    /// CPDA of the target.
    cpda: u8,
    has_sent: bool,
    tx: Framing,
    rx: Framing,
    commands: Vec<Command>,
    /// R2Ts of these commands, each with the number of bytes that were sent.
    r2ts: Vec<(R2t, u32)>,
    authentication: HostAuthentication,
    message: Vec<u8>,
}

impl Host {
    /// A fresh connection to a subsystem.
    #[must_use]
    pub fn new(subnqn: Nqn, cpda: u8) -> Self {
        let config = AuthConfig {
            hostnqn: host().hostnqn.as_str().into(),
            subnqn: subnqn.as_str().into(),
            host_secret: secret(1),
            controller_secret: Some(secret(2)),
            hashes: vec![Hash::Sha256],
            groups: vec![DhGroup::Null],
            concatenation: Concatenation::None,
        };
        Self {
            subnqn,
            to_target: PduStream::default(),
            from_target: PduStream::default(),
            cpda,
            has_sent: false,
            tx: Framing::default(),
            rx: Framing::default(),
            commands: Vec::new(),
            r2ts: Vec::new(),
            authentication: HostAuthentication::new(config).expect("a configuration"),
            message: Vec::new(),
        }
    }

    /// The bytes of a step. `last` is the last controller.
    pub fn bytes(&mut self, step: &Step, last: ControllerInstance) -> Vec<u8> {
        let mut out = Vec::new();
        let mut emit = |pdu: Pdu, data: &[u8]| pdu.emit(&self.tx, data, &mut out);
        let in_capsule = |data: &[u8]| Sgl::InCapsule { offset: 0, length: data.len() as u32 };
        match step {
            Step::Bytes(bytes) => return bytes.clone(),
            Step::IcReq { hpda, header_digest, data_digest, maxr2t } => {
                let digests = Digests { header: *header_digest, data: *data_digest };
                emit(Pdu::IcReq(IcReq { hpda: *hpda, digests, maxr2t: *maxr2t }), &[]);
            }
            Step::Connect { qid, sqsize, cattr, kato_ms } => {
                let (qid, sqsize, cattr, kato_ms) = (u16::from(*qid), u16::from(*sqsize), *cattr, *kato_ms);
                let cntlid = if qid == 0 { CNTLID_ANY } else { last.cntlid };
                let host = host();
                let (hostid, hostnqn, subnqn) = (host.hostid, host.hostnqn, self.subnqn.clone());
                let data = ConnectData { hostid, cntlid, subnqn, hostnqn }.emit();
                let command = FabricsCommand::Connect(Connect { qid, sqsize, cattr, kato_ms });
                emit(Pdu::CapsuleCmd(command.to_sqe(0, in_capsule(&data))), &data);
            }
            Step::Command { cid, opcode, nsid, cdw, data } => {
                let (sgl, data) = match data {
                    Data::Transport(length) => (Sgl::Transport { length: *length }, Vec::new()),
                    Data::InCapsule { length, bytes } => {
                        let data = page((*length).min(CAPSULE_DATA_MAX).into(), bytes);
                        (in_capsule(&data), data)
                    }
                };
                emit(Pdu::CapsuleCmd(Sqe::new(Opcode(*opcode), *cid, *nsid, sgl).with_cdw(*cdw)), &data);
            }
            Step::Io { cid, kind, nsid, slba, blocks, in_capsule: is_in_capsule } => {
                let (nsid, slba, blocks) = (*nsid % 4, u64::from(*slba % 72), u32::from(*blocks % 33));
                let bytes = blocks << if nsid == 2 { 12 } else { 9 };
                let command = io_command(*kind, slba, blocks);
                let data = match command {
                    NvmCommand::Write { .. } => vec![7; bytes as usize],
                    NvmCommand::DatasetManagement { .. } => {
                        [&[0; 4], &blocks.to_le_bytes()[..], &slba.to_le_bytes()[..]].concat()
                    }
                    _ => Vec::new(),
                };
                let (sgl, data) = match command {
                    NvmCommand::Read { .. } => (Sgl::Transport { length: bytes }, data),
                    _ if *is_in_capsule && !data.is_empty() => (in_capsule(&data), data),
                    _ => (Sgl::Transport { length: data.len() as u32 }, Vec::new()),
                };
                emit(Pdu::CapsuleCmd(command.to_sqe(*cid, nsid.into(), sgl)), &data);
            }
            Step::H2cData { r2t, bytes, skew } => {
                let place = self.r2ts.len().checked_sub(usize::from(*r2t) % 8 + 1);
                let Some((r2t, sent)) = place.map(|place| &mut self.r2ts[place]) else { return out };
                let skew = u32::from(skew.saturating_sub(SKEW_MIN));
                let (offset, length) = (r2t.offset + *sent, u32::from(*bytes).min(r2t.length - *sent));
                *sent += length;
                let (offset, length) = (offset + skew / 64, length + skew % 4);
                let last = offset + length == r2t.offset + r2t.length;
                let data = H2cData { cid: r2t.cid, ttag: r2t.ttag, offset, length, last };
                emit(Pdu::H2cData(data), &vec![7; length as usize]);
            }
            Step::AuthenticationSend { cid } => {
                if self.message.is_empty() {
                    self.message = self.authentication.start(7, |bytes| bytes.fill(3));
                }
                let command = FabricsCommand::AuthenticationSend { bytes: self.message.len() as u32 };
                emit(Pdu::CapsuleCmd(command.to_sqe(*cid, in_capsule(&self.message))), &self.message);
            }
            Step::AuthenticationReceive { cid, bytes } => {
                let length = u32::from(*bytes);
                let command = FabricsCommand::AuthenticationReceive { bytes: length };
                emit(Pdu::CapsuleCmd(command.to_sqe(*cid, Sgl::Transport { length })), &[]);
            }
            Step::CrossControllerReset { cid } => {
                let command = AdminCommand::CrossControllerReset(last);
                emit(Pdu::CapsuleCmd(command.to_sqe(*cid, Sgl::NONE)), &[]);
            }
        }
        out
    }

    /// Takes note of bytes that are on their way to the target.
    pub fn sent(&mut self, bytes: &[u8]) {
        self.to_target.push(bytes);
        while let Some(pdu) = self.to_target.pop() {
            // Another first PDU ends the connection.
            if !std::mem::replace(&mut self.has_sent, true)
                && let Some(framing) = icreq(&pdu)
            {
                self.rx = framing;
                self.tx = Framing { alignment: self.cpda, ..framing };
            }
            self.commands.extend(Capsule::parse(&pdu).map(|capsule| Command { capsule, data: Vec::new() }));
        }
    }

    /// Whether the host has sent whole PDUs only.
    #[must_use]
    pub fn sent_whole_pdus(&self) -> bool {
        self.to_target.is_empty()
    }

    /// Commands without their whole answer, among the PDUs that were sent as a whole.
    #[must_use]
    pub fn commands(&self) -> usize {
        self.commands.len()
    }

    /// Whether a command waits, although the host owes no data. Asynchronous Event Requests may always wait.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let waits =
            self.commands.iter().any(|command| Opcode(command.capsule.opcode[0]) != Opcode::ASYNC_EVENT_REQUEST);
        waits && self.r2ts.iter().all(|(r2t, sent)| *sent == r2t.length)
    }

    /// Takes answers. Each one must be valid, and must belong to a command that is not answered yet.
    pub fn take(&mut self, bytes: &[u8]) {
        for (pdu, data) in self.parse(bytes) {
            match pdu {
                Pdu::IcResp(_) | Pdu::C2hTermReq(_) => {}
                Pdu::R2t(r2t) => {
                    let command = &self.commands[self.place(r2t.cid)].capsule;
                    assert!(r2t.length > 0 && r2t.offset + r2t.length <= command.length, "an R2T beyond the data");
                    self.r2ts.push((r2t, 0));
                }
                Pdu::C2hData(C2hData { cid, offset, last, success, .. }) => {
                    let place = self.place(cid);
                    let Command { capsule, data: received } = &mut self.commands[place];
                    assert_eq!(offset as usize, received.len(), "data out of order");
                    received.extend_from_slice(&data);
                    assert_eq!(
                        last,
                        received.len() == capsule.length as usize,
                        "data beyond the SGL, or a wrong LAST_PDU"
                    );
                    if success {
                        self.end(place);
                    }
                }
                Pdu::CapsuleResp(cqe) => {
                    let place = self.place(cqe.cid.get());
                    if cqe.status() == Status::COMMAND_ID_CONFLICT.with_dnr() {
                        // The first command with this CID goes on.
                        let second = self.place_from(place + 1, cqe.cid.get());
                        self.commands.remove(second);
                    } else {
                        self.end(place);
                    }
                }
                _ => panic!("a PDU of a host: {pdu:?}"),
            }
        }
    }

    /// Takes the last bytes from the target, which end with a whole PDU. Some of the answered commands may not be known.
    pub fn take_last(&mut self, bytes: &[u8]) {
        let count = self.parse(bytes).len();
        assert!(self.from_target.is_empty(), "a part of a PDU after {count} PDUs");
    }

    fn parse(&mut self, bytes: &[u8]) -> Vec<(Pdu, Vec<u8>)> {
        self.from_target.push(bytes);
        let mut pdus = Vec::new();
        while let Some(bytes) = self.from_target.pop() {
            let common = CommonHeader::parse(&bytes).expect("a valid header");
            let layout = self.rx.layout(&common).expect("a valid layout");
            let start = layout.data_start() as usize;
            let pdu = Pdu::parse(&common, &layout, &bytes).expect("a valid PDU");
            pdus.push((pdu, bytes[start..start + layout.data_len as usize].to_vec()));
        }
        pdus
    }

    /// The place of the first command with this CID.
    fn place(&self, cid: u16) -> usize {
        self.place_from(0, cid)
    }

    /// The place of the first command with this CID from `start` on.
    fn place_from(&self, start: usize, cid: u16) -> usize {
        let mut commands = self.commands.iter().enumerate().skip(start);
        let found = commands.find(|(_, command)| command.capsule.cid == cid);
        found.expect("answers belong to commands").0
    }

    /// Ends the command at this place.
    fn end(&mut self, place: usize) {
        let Command { capsule, data } = self.commands.remove(place);
        self.r2ts.retain(|(r2t, _)| r2t.cid != capsule.cid);
        if capsule.opcode == AUTHENTICATION_RECEIVE && !data.is_empty() {
            let answer = match self.authentication.receive(&data) {
                Ok(AuthStep::Continue { message }) => Some(message),
                Ok(AuthStep::Authenticated { message, .. }) => message,
                Err(failure) => failure.message,
            };
            self.message = answer.unwrap_or_default();
        }
    }
}

fn io_command(kind: u8, slba: u64, blocks: u32) -> NvmCommand {
    match kind % 5 {
        0 => NvmCommand::Flush,
        1 => NvmCommand::Read { slba, blocks },
        2 => NvmCommand::Write { slba, blocks, fua: false },
        3 => NvmCommand::WriteZeroes { slba, blocks, deallocate: true, fua: false },
        _ => NvmCommand::DatasetManagement { ranges: 1, deallocate: true },
    }
}

/// The secret of the host (1), or of the controller (2).
pub(crate) fn secret(byte: u8) -> Secret {
    Secret::new(Some(Hash::Sha256), &[byte; 32]).expect("a secret")
}
