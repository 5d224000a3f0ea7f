//! `ICReq`, `ICResp` and Connect.

use monotonic::Instant;

use super::mini_target::PduReader;
use super::{NAMESPACE, Payloads, queue_config, transmit};
use crate::host::{
    Completion, ConfigError, ConnectError, HostQueue, IoCommand, NamespaceLimits, ProtocolError, QueueConfig,
    QueueError, STAGING_MIN, SubmitError, Tag,
};
use crate::wire::{
    ConnectField, ConnectResult, Cqe, Digests, FatalError, Framing, IcReq, IcResp, Pdu, PduError, PduField, PduType,
    Status, TermReq,
};

/// A queue with both ends of its connection.
pub(super) struct Peer {
    pub(super) queue: HostQueue,
    pub(super) reader: PduReader,
    pub(super) payloads: Payloads,
    pub(super) framing: Framing,
    /// The clock of the host.
    pub(super) now: Instant,
}

impl Peer {
    /// The next completion, without the time at which its command was sent.
    pub(super) fn completion(&mut self) -> Option<Completion> {
        self.queue.poll_completion().map(|done| Completion { sent_at: None, ..done })
    }

    pub(super) fn new(config: QueueConfig) -> Self {
        Self {
            queue: HostQueue::new(config).unwrap(),
            reader: PduReader::default(),
            payloads: Payloads::default(),
            framing: Framing::default(),
            now: Instant::now(),
        }
    }

    /// The PDUs that the host sends by this call.
    pub(super) fn sent(&mut self) -> Vec<(Pdu, Vec<u8>)> {
        let bytes = transmit(self.now, &mut self.queue, &self.payloads, STAGING_MIN);
        self.reader.feed(&bytes);
        std::iter::from_fn(|| self.reader.next()).collect()
    }

    pub(super) fn send(&mut self, pdu: Pdu, data: &[u8]) -> Result<(), QueueError> {
        let mut bytes = Vec::new();
        pdu.emit(&self.framing, data, &mut bytes);
        self.queue.receive(&bytes, &mut self.payloads)
    }

    pub(super) fn complete(&mut self, cid: u16, status: Status, result: u64) -> Result<(), QueueError> {
        self.send(Pdu::CapsuleResp(Cqe::new(cid, 0, status, result)), &[])
    }

    /// Exchanges PDUs up to the Connect command. Returns its CID.
    fn connecting(digests: Digests) -> (Self, u16) {
        Self::connecting_with(digests, 8192)
    }

    fn connecting_with(digests: Digests, maxh2cdata: u32) -> (Self, u16) {
        Self::connecting_as(queue_config(digests), maxh2cdata)
    }

    pub(super) fn connecting_as(config: QueueConfig, maxh2cdata: u32) -> (Self, u16) {
        let digests = config.digests;
        let mut peer = Self::new(config);
        assert_eq!(peer.sent(), [(Pdu::IcReq(IcReq { hpda: 0, digests, maxr2t: 3 }), vec![])]);
        peer.send(Pdu::IcResp(IcResp { cpda: 0, digests, maxh2cdata }), &[]).unwrap();
        peer.framing.digests = digests;
        peer.reader.framing.digests = digests;
        let sent = peer.sent();
        let [(Pdu::CapsuleCmd(connect), data)] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((connect.opcode, data.len()), (0x7f, 1024));
        (peer, connect.cid.get())
    }

    /// A queue ready for requests.
    pub(super) fn ready(digests: Digests) -> Self {
        Self::ready_with(digests, 8192)
    }

    pub(super) fn ready_with(digests: Digests, maxh2cdata: u32) -> Self {
        Self::ready_as(queue_config(digests), maxh2cdata)
    }

    pub(super) fn ready_as(config: QueueConfig, maxh2cdata: u32) -> Self {
        let (mut peer, cid) = Self::connecting_as(config, maxh2cdata);
        assert!(!peer.queue.is_ready());
        peer.complete(cid, Status::SUCCESS, 5).unwrap();
        assert!(peer.queue.is_ready());
        peer
    }
}

#[test]
fn a_queue_connects_with_any_digests() {
    for (header, data) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut peer = Peer::ready(Digests { header, data });
        assert_eq!(peer.queue.submit(Tag(0), 0, IoCommand::Flush), Ok(()));
        let sent = peer.sent();
        let [(Pdu::CapsuleCmd(flush), _)] = &sent[..] else { panic!("{sent:?}") };
        peer.complete(flush.cid.get(), Status::SUCCESS, 0).unwrap();
        assert_eq!(peer.queue.poll_completion().map(|done| (done.tag, done.result)), Some((Tag(0), Ok(()))));
    }
}

#[test]
fn requests_wait_for_the_connection() {
    let (mut peer, _) = Peer::connecting(Digests::default());
    assert_eq!(peer.queue.submit(Tag(0), 0, IoCommand::Flush), Err(SubmitError::NotReady));
    assert_eq!(peer.queue.into_lost().count(), 0);
}

#[test]
fn requests_out_of_bounds_are_refused() {
    let mut peer = Peer::ready(Digests::default());
    let mut refuse = |command, error| assert_eq!(peer.queue.submit(Tag(0), 0, command), Err(error));
    refuse(IoCommand::Read { slba: 0, blocks: 0 }, SubmitError::Empty);
    let out = |slba, blocks| SubmitError::OutOfRange { slba, blocks, namespace_blocks: 2048 };
    refuse(IoCommand::Read { slba: 2048, blocks: 1 }, out(2048, 1));
    refuse(IoCommand::Deallocate { slba: 2047, blocks: 2 }, out(2047, 2));
    refuse(IoCommand::WriteZeroes { slba: u64::MAX, blocks: 2, deallocate: false, fua: false }, out(u64::MAX, 2));
    assert_eq!(peer.queue.in_flight(), 0);
    for tag in 0..7 {
        assert_eq!(peer.queue.submit(Tag(tag), 0, IoCommand::Flush), Ok(()));
    }
    assert_eq!(peer.queue.submit(Tag(7), 0, IoCommand::Flush), Err(SubmitError::Full));
    let lost: Vec<_> = peer.queue.into_lost().collect();
    assert_eq!(lost.len(), 7);
    assert!(lost.iter().all(|lost| !lost.indeterminate));
}

#[test]
fn a_request_of_4_gib_is_too_large() {
    let mut config = queue_config(Digests::default());
    config.namespaces = vec![Some(NamespaceLimits { namespace_blocks: 1 << 40, ..NAMESPACE })];
    let (mut peer, blocks) = (Peer::new(config), 1 << 23);
    peer.sent();
    peer.send(Pdu::IcResp(IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 4096 }), &[]).unwrap();
    let sent = peer.sent();
    let [(Pdu::CapsuleCmd(connect), _)] = &sent[..] else { panic!("{sent:?}") };
    peer.complete(connect.cid.get(), Status::SUCCESS, 5).unwrap();
    let write = IoCommand::Write { slba: 0, blocks, fua: false };
    assert_eq!(peer.queue.submit(Tag(0), 0, write), Err(SubmitError::TooLarge { blocks }));
    let zeroes = IoCommand::WriteZeroes { slba: 0, blocks: u32::MAX, deallocate: true, fua: false };
    assert_eq!(peer.queue.submit(Tag(0), 0, zeroes), Ok(()));
    // The queue sends as many commands as it has entries. The others wait.
    assert_eq!(peer.sent().len(), 7);
}

#[test]
fn a_refused_connect_reports_the_reason() {
    let refusals = [
        (ConnectField::Subnqn.invalid(), ConnectError::InvalidParameters { field: ConnectField::Subnqn }),
        ((Status::CONNECT_INVALID_HOST, 0), ConnectError::Rejected { status: Status::CONNECT_INVALID_HOST }),
        ((Status::SUCCESS, 6), ConnectError::WrongController { wanted: 5, got: 6 }),
        (
            (
                Status::SUCCESS,
                ConnectResult { cntlid: 5, authentication_required: true, secure_channel_required: false }.to_result(),
            ),
            ConnectError::AuthenticationRequired,
        ),
    ];
    for ((status, result), error) in refusals {
        let (mut peer, cid) = Peer::connecting(Digests::default());
        assert_eq!(peer.complete(cid, status, result), Err(QueueError::Connect(error)));
        assert!(!peer.queue.is_ready());
    }
    let wrong_nqn = ConnectError::InvalidParameters { field: ConnectField::Subnqn };
    assert_eq!(
        wrong_nqn.to_string(),
        "Connect rejected: Connect Invalid Parameters (SUBNQN): the target has no subsystem of this NQN"
    );
    let not_allowed = ConnectError::Rejected { status: Status::CONNECT_INVALID_HOST.with_dnr() }.to_string();
    assert!(not_allowed.contains("the target does not allow this host NQN"), "{not_allowed}");
    let busy = ConnectError::Rejected { status: Status::CONNECT_CONTROLLER_BUSY }.to_string();
    assert!(busy.ends_with(&Status::CONNECT_CONTROLLER_BUSY.to_string()), "{busy}");
}

#[test]
fn icresp_is_checked() {
    let icresp = IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 8192 };
    let mut peer = Peer::new(queue_config(Digests { header: true, data: false }));
    peer.sent();
    let (asked, got) = (Digests { header: true, data: false }, Digests::default());
    let error = QueueError::Connect(ConnectError::Digests { asked, got });
    assert_eq!(peer.send(Pdu::IcResp(icresp), &[]), Err(error));

    let invalid = |field, value| {
        QueueError::Protocol(ProtocolError::Pdu(PduError::InvalidField { pdu: PduType::IcResp, field, value }))
    };
    let unsupported = |field, value| {
        QueueError::Protocol(ProtocolError::Pdu(PduError::Unsupported { pdu: PduType::IcResp, field, value }))
    };
    let cases = [
        (2, 127, invalid(PduField::Hlen, 127)),
        (4, 129, invalid(PduField::Plen, 129)),
        (8, 1, unsupported(PduField::Pfv, 1)),
        (10, 32, invalid(PduField::Alignment, 32)),
        (12, 1, invalid(PduField::MaxH2cData, 8193)),
        (13, 0x0f, invalid(PduField::MaxH2cData, 0xf00)),
    ];
    for (at, byte, error) in cases {
        let mut peer = Peer::new(queue_config(Digests::default()));
        peer.sent();
        let mut bytes = Vec::new();
        Pdu::IcResp(icresp).emit(&Framing::default(), &[], &mut bytes);
        bytes[at] = byte;
        assert_eq!(peer.queue.receive(&bytes, &mut peer.payloads), Err(error), "byte {at}");
    }
}

#[test]
fn pdus_out_of_sequence_end_the_connection() {
    let unexpected = |pdu| Err(QueueError::Protocol(ProtocolError::UnexpectedPdu { pdu }));
    let icresp = Pdu::IcResp(IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 8192 });
    let mut before = Peer::new(queue_config(Digests::default()));
    assert_eq!(before.send(icresp, &[]), unexpected(PduType::IcResp));
    let mut early = Peer::new(queue_config(Digests::default()));
    early.sent();
    assert_eq!(early.complete(0, Status::SUCCESS, 0), unexpected(PduType::CapsuleResp));
    let mut again = Peer::ready(Digests::default());
    assert_eq!(again.send(icresp, &[]), unexpected(PduType::IcResp));
    let mut echo = Peer::ready(Digests::default());
    let icreq = Pdu::IcReq(IcReq { hpda: 0, digests: Digests::default(), maxr2t: 0 });
    assert_eq!(echo.send(icreq, &[]), unexpected(PduType::IcReq));
}

#[test]
fn a_terminate_request_is_an_error() {
    let mut peer = Peer::ready(Digests { header: true, data: true });
    let term = TermReq { fes: FatalError::PduSequence, fei: 7 };
    let error = ProtocolError::Terminated { fes: FatalError::PduSequence, fei: 7 };
    assert_eq!(peer.send(Pdu::C2hTermReq(term), &[1; 24]), Err(QueueError::Protocol(error)));
}

#[test]
fn invalid_configurations_are_refused() {
    let good = queue_config(Digests::default());
    let check = |change: &dyn Fn(&mut QueueConfig)| {
        let mut config = good.clone();
        change(&mut config);
        HostQueue::new(config).err()
    };
    assert_eq!(check(&|_| {}), None);
    assert_eq!(check(&|c| c.qid = 0), Some(ConfigError::AdminQueue));
    assert_eq!(check(&|c| c.entries = 1), Some(ConfigError::Entries(1)));
    assert_eq!(check(&|c| c.entries = 4097), Some(ConfigError::Entries(4097)));
    assert_eq!(
        check(&|c| c.namespaces.push(Some(NamespaceLimits { block_bytes: 520, ..NAMESPACE }))),
        Some(ConfigError::BlockBytes(520))
    );
    let small = ConfigError::MaxTransfer { max_transfer_bytes: 511, block_bytes: 512 };
    assert_eq!(check(&|c| c.max_transfer_bytes = 511), Some(small));
    // A namespace that is unusable on this controller has no limits to check.
    assert_eq!(check(&|c| (c.max_transfer_bytes, c.namespaces) = (511, vec![None])), None);
}
