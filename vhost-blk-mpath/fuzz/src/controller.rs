//! A controller for fuzz targets: valid PDUs, PDUs that are wrong in one place, and any bytes.
//!
//! The corpora of `admin`, `discovery` and `io_queue` have inputs that replay answers of the target of Linux 6.12.117. The
//! names of host and subsystem, CNTLIDs and CIDs are those of the fuzz target.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use monotonic::Duration;
use nvme_tcp::host::{HostIdentity, QueueConfig};
use nvme_tcp::wire::{C2hData, Cqe, Digests, Framing, IcResp, Pdu, R2t, Status};

use crate::pdu::{Capsule, PduStream};

/// The most bytes of data that one step sends. The ANA log of Linux has 8208.
const DATA_BYTES_MAX: u32 = 16 << 10;

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
    from_host: PduStream,
    /// The framing after `ICResp`.
    framing: Framing,
    /// CID and expected bytes of each command that the host has sent.
    commands: Vec<(u16, u32)>,
}

impl Controller {
    /// Takes bytes from the host.
    pub fn take(&mut self, bytes: &[u8]) {
        self.from_host.push(bytes);
        while let Some(pdu) = self.from_host.pop() {
            self.commands.extend(Capsule::parse(&pdu).map(|capsule| (capsule.cid, capsule.length)));
        }
    }

    fn command(&self, back: u8) -> (u16, u32) {
        let place = self.commands.len().checked_sub(usize::from(back) % 8 + 1);
        place.map_or((u16::from(back), 0), |place| self.commands[place])
    }

    /// The bytes of a step, and how long the controller waits first.
    pub fn bytes(&mut self, step: &Step) -> (Vec<u8>, Duration) {
        let mut out = Vec::new();
        let framing = self.framing;
        let mut emit = |pdu: Pdu, data: &[u8]| pdu.emit(&framing, data, &mut out);
        let mut wait = Duration::ZERO;
        match step {
            Step::Bytes(bytes) => return (bytes.clone(), wait),
            Step::IcResp { cpda, header_digest, data_digest, maxh2cdata } => {
                let digests = Digests { header: *header_digest, data: *data_digest };
                emit(Pdu::IcResp(IcResp { cpda: *cpda, digests, maxh2cdata: *maxh2cdata }), &[]);
                // The host asks for no padding.
                self.framing = Framing { digests, alignment: 0 };
            }
            Step::Response { command, status, result } => {
                emit(Pdu::CapsuleResp(Cqe::new(self.command(*command).0, 0, Status(status & 0x7fff), *result)), &[]);
            }
            Step::Page { command, bytes, success, short } => {
                let (cid, expected) = self.command(*command);
                let length = expected.min(DATA_BYTES_MAX).saturating_sub(u32::from(*short) / 64);
                let page = page(length, bytes);
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

/// Zeroes, apart from these bytes.
pub(crate) fn page(length: u32, bytes: &[(u16, u8)]) -> Vec<u8> {
    let mut page = vec![0; length as usize];
    for (at, byte) in bytes {
        if let Some(place) = page.get_mut(usize::from(*at)) {
            *place = *byte;
        }
    }
    page
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
