//! A controller for fuzz targets: valid PDUs, PDUs that are wrong in one place, and any bytes.

use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nvme_tcp::host::{HostIdentity, QueueConfig};
use nvme_tcp::wire::{C2hData, Cqe, Digests, Framing, IcResp, Pdu, R2t, Status};

/// Bytes of the header of a PDU with a command capsule.
const CAPSULE_BYTES: usize = 72;
/// The most bytes of data that one step sends.
const DATA_BYTES_MAX: u32 = 8192;

/// What a controller does next.
#[derive(Arbitrary, Debug)]
pub enum Step {
    /// Any bytes.
    Bytes(Vec<u8>),
    /// The answer to `ICReq`.
    IcResp { cpda: u8, header_digest: bool, data_digest: bool, maxh2cdata: u32 },
    /// The end of a command that the host has sent, counted from the last one.
    Response { command: u8, status: u16, result: u64 },
    /// All data of a command: zeroes, apart from these bytes.
    Page { command: u8, bytes: Vec<(u16, u8)>, success: bool, short: u8 },
    /// A part of the data of a command.
    Data { command: u8, offset: u32, bytes: Vec<u8>, last: bool, success: bool },
    /// A request for data.
    R2t { command: u8, ttag: u16, offset: u32, length: u32 },
    /// Time passes.
    Milliseconds(u16),
}

/// The controller's view of a connection.
#[derive(Default)]
pub struct Controller {
    /// Bytes from the host that are no complete PDU yet.
    unread: Vec<u8>,
    /// CID and expected bytes of each command that the host has sent.
    commands: Vec<(u16, u32)>,
}

impl Controller {
    /// Takes bytes from the host.
    pub fn take(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while let Some(length) = self.unread.get(4..8) {
            let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
            if length < 8 || self.unread.len() < length {
                return;
            }
            if self.unread[0] == 4 && length >= CAPSULE_BYTES {
                let word = |at: usize| u32::from_le_bytes(self.unread[at..at + 4].try_into().expect("four bytes"));
                // CID, and the length of the SGL.
                self.commands.push(((word(8) >> 16) as u16, word(8 + 32)));
            }
            self.unread.drain(..length);
        }
    }

    fn command(&self, back: u8) -> (u16, u32) {
        let place = self.commands.len().checked_sub(usize::from(back) % 8 + 1);
        place.map_or((u16::from(back), 0), |place| self.commands[place])
    }

    /// The bytes of a step, and how long the controller waits first.
    pub fn bytes(&self, step: &Step) -> (Vec<u8>, Duration) {
        let mut out = Vec::new();
        let mut emit = |pdu: Pdu, data: &[u8]| pdu.emit(&Framing::default(), data, &mut out);
        let mut wait = Duration::ZERO;
        match step {
            Step::Bytes(bytes) => return (bytes.clone(), wait),
            Step::IcResp { cpda, header_digest, data_digest, maxh2cdata } => {
                let digests = Digests { header: *header_digest, data: *data_digest };
                emit(Pdu::IcResp(IcResp { cpda: *cpda, digests, maxh2cdata: *maxh2cdata }), &[]);
            }
            Step::Response { command, status, result } => {
                emit(Pdu::CapsuleResp(Cqe::new(self.command(*command).0, 0, Status(status & 0x7fff), *result)), &[]);
            }
            Step::Page { command, bytes, success, short } => {
                let (cid, expected) = self.command(*command);
                let length = expected.min(DATA_BYTES_MAX).saturating_sub(u32::from(*short) / 64);
                let mut page = vec![0; length as usize];
                for (at, byte) in bytes {
                    if let Some(place) = page.get_mut(usize::from(*at)) {
                        *place = *byte;
                    }
                }
                emit(Pdu::C2hData(C2hData { cid, offset: 0, length, last: true, success: *success }), &page);
            }
            Step::Data { command, offset, bytes, last, success } => {
                let (cid, length) = (self.command(*command).0, bytes.len() as u32);
                emit(Pdu::C2hData(C2hData { cid, offset: *offset, length, last: *last, success: *success }), bytes);
            }
            Step::R2t { command, ttag, offset, length } => {
                let cid = self.command(*command).0;
                emit(Pdu::R2t(R2t { cid, ttag: *ttag, offset: *offset, length: *length }), &[]);
            }
            Step::Milliseconds(milliseconds) => wait = Duration::from_millis((*milliseconds).into()),
        }
        (out, wait)
    }
}

/// The identity of a host.
pub fn host() -> HostIdentity {
    HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().expect("an NQN"), hostid: [1; 16] }
}

/// An I/O queue of 8 entries with one namespace.
pub fn queue_config(digests: Digests) -> QueueConfig {
    QueueConfig {
        qid: 1,
        entries: 8,
        host: host(),
        subnqn: "nqn.2014-08.org.example:disk".parse().expect("an NQN"),
        cntlid: 5,
        digests,
        authentication: None,
        is_encrypted: false,
        max_transfer_bytes: 128 << 10,
        reports_max_transfer: true,
        command_limits: nvme_tcp::host::CommandLimits::NONE,
        in_capsule_bytes: 4096,
        namespaces: vec![Some(nvme_tcp::host::NamespaceLimits {
            nsid: 1,
            block_bytes: 512,
            namespace_blocks: 1 << 20,
            noiob_blocks: 0,
        })],
    }
}
