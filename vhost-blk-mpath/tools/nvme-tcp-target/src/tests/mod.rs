//! Tests of the target, with a host that sends single PDUs.

mod admin;
mod answer_faults;
mod any_bytes;
mod connect;
mod digest_faults;
mod discovery;
mod events;
mod exchange;
mod handshake;
mod host_authentication;
mod host_concatenation;
mod host_discovery;
mod namespace;
mod reset;
mod transfer;

use monotonic::{Duration, Instant};
use nvme_tcp::wire::{
    AdminCommand, AnaState, CNTLID_ANY, Cns, Connect, ConnectData, ControllerConfiguration, ControllerStatus, Cqe,
    Digests, FabricsCommand, FeatureId, Framing, IcReq, LogPage, Nqn, NvmCommand, Pdu, PropertyOffset, PropertySize,
    Sgl, Sqe, Status, TermReq,
};

use crate::receive::{Item, Receiver};
use crate::{
    AdminReply, CommandToken, Namespace, QueueIdentity, QueueLimits, Subsystem, SubsystemConfig, TargetCommand,
    TargetQueue,
};

const ENTRIES: u16 = 16;
const KATO: Duration = Duration::from_secs(5);

/// A PDU with its data.
type Whole = (Pdu, Vec<u8>);

/// Two namespaces, two ports.
fn subsystem() -> Subsystem {
    let namespace = |id: u8, block_shift| Namespace { blocks: 1 << 12, block_shift, uuid: [id; 16], nguid: [id; 16] };
    Subsystem::new(SubsystemConfig {
        nqn: nqn(),
        serial: "0123456789".into(),
        namespaces: vec![namespace(1, 9), namespace(2, 12)],
        ports: vec![AnaState::Optimized, AnaState::NonOptimized],
        limits: QueueLimits::default(),
        max_entries: ENTRIES,
        keeps_flow_control: false,
        max_io_queues: 4,
        anatt_seconds: 10,
        seed: 1,
        authentication: None,
    })
}

fn nqn() -> Nqn {
    Nqn::new("nqn.2024-01.com.example:disk1").unwrap()
}

fn connect_data(cntlid: u16) -> ConnectData {
    let hostnqn = Nqn::new("nqn.2024-01.com.example:host1").unwrap();
    ConnectData { hostid: [9; 16], cntlid, subnqn: nqn(), hostnqn }
}

/// A connection without a socket.
struct Wire {
    queue: TargetQueue,
    tx: Framing,
    rx: Receiver,
}

impl Wire {
    fn new(limits: QueueLimits) -> Self {
        let framing = Framing::default();
        Self { queue: TargetQueue::new(limits), tx: framing, rx: Receiver::new(framing) }
    }

    /// A connection after an `ICReq` with these fields.
    fn open(limits: QueueLimits, icreq: IcReq) -> Self {
        let mut wire = Self::new(limits);
        wire.send(Pdu::IcReq(icreq), &[]);
        let answer = wire.answers();
        let [(Pdu::IcResp(icresp), _)] = &answer[..] else { panic!("{answer:?}") };
        assert_eq!(icresp.digests, icreq.digests);
        assert_eq!(icresp.maxh2cdata, limits.max_h2c_data_bytes);
        wire.tx = Framing { digests: icreq.digests, alignment: icresp.cpda };
        wire.rx.framing = Framing { digests: icreq.digests, alignment: icreq.hpda };
        wire
    }

    /// An I/O queue of [`ENTRIES`] entries.
    fn io(limits: QueueLimits, icreq: IcReq, flow_control: bool) -> Self {
        let mut wire = Self::open(limits, icreq);
        let sqe = connect(1, ENTRIES - 1).to_sqe(0, Sgl::InCapsule { offset: 0, length: 1024 });
        wire.send(Pdu::CapsuleCmd(sqe), &connect_data(7).emit());
        let command = wire.queue.poll_command().unwrap();
        assert_eq!(command.payload, connect_data(7).emit());
        wire.queue.accept(command.token, QueueIdentity { cntlid: 7, qid: 1, entries: ENTRIES, flow_control }, None);
        let cqe = wire.answer_cqe();
        assert_eq!((cqe.status(), cqe.dw0()), (Status::SUCCESS, 7));
        assert_eq!(cqe.sqhd.get(), if flow_control { 1 } else { u16::MAX });
        wire
    }

    fn bytes_of(&self, pdu: Pdu, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pdu.emit(&self.tx, data, &mut bytes);
        bytes
    }

    fn send(&mut self, pdu: Pdu, data: &[u8]) {
        let bytes = self.bytes_of(pdu, data);
        self.queue.receive(&bytes).unwrap();
    }

    /// All PDUs that the target has sent since the last call.
    fn answers(&mut self) -> Vec<Whole> {
        let bytes = self.queue.pending().to_vec();
        self.queue.sent(bytes.len());
        let (mut rest, mut answers) = (&bytes[..], Vec::<Whole>::new());
        while let Some(item) = self.rx.next(&mut rest).unwrap() {
            match item {
                Item::Header(pdu, _) => answers.push((pdu, Vec::new())),
                Item::Data(data) => answers.last_mut().unwrap().1.extend_from_slice(data),
                Item::End { intact } => assert!(intact),
            }
        }
        answers
    }

    /// The only response that the target has sent since the last call.
    fn answer_cqe(&mut self) -> Cqe {
        let answers = self.answers();
        let [(Pdu::CapsuleResp(cqe), _)] = answers[..] else { panic!("{answers:?}") };
        cqe
    }
}

fn icreq(header: bool, data: bool, hpda: u8, maxr2t: u32) -> IcReq {
    IcReq { hpda, digests: Digests { header, data }, maxr2t }
}

fn connect(qid: u16, sqsize: u16) -> FabricsCommand {
    let kato_ms = if qid == 0 { KATO.as_millis() as u32 } else { 0 };
    FabricsCommand::Connect(Connect { qid, sqsize, cattr: 0, kato_ms })
}

/// A command, as a queue returns it.
fn command(sqe: Sqe, payload: &[u8], expects_bytes: u32) -> TargetCommand {
    let token = CommandToken { slot: sqe.cid.get() };
    TargetCommand { token, sqe, payload: payload.to_vec(), expects_bytes }
}

/// Connects an admin queue to `port` and enables the controller.
fn live_controller(subsystem: &mut Subsystem, now: Instant, port: u16) -> u16 {
    let sqe = connect(0, ENTRIES - 1).to_sqe(0, Sgl::NONE);
    let data = connect_data(CNTLID_ANY).emit();
    let identity = subsystem.connect(now, port, &command(sqe, &data, 0)).unwrap();
    let enable = set_property(PropertyOffset::CC, ControllerConfiguration::ENABLED.0);
    assert_eq!(fabrics(subsystem, now, identity.cntlid, enable), Ok(0));
    identity.cntlid
}

fn set_property(offset: PropertyOffset, value: u32) -> FabricsCommand {
    FabricsCommand::PropertySet { size: PropertySize::Four, offset, value: value.into() }
}

fn get_property(offset: PropertyOffset) -> FabricsCommand {
    let size = if offset == PropertyOffset::CAP { PropertySize::Eight } else { PropertySize::Four };
    FabricsCommand::PropertyGet { size, offset }
}

fn fabrics(subsystem: &mut Subsystem, now: Instant, cntlid: u16, fabrics: FabricsCommand) -> Result<u64, Status> {
    match subsystem.admin(now, cntlid, command(fabrics.to_sqe(1, Sgl::NONE), &[], 0)) {
        AdminReply::Done { status, result, .. } => status.result().map(|()| result),
        AdminReply::Shutdown { .. } => Ok(0),
        reply => panic!("{reply:?}"),
    }
}

/// Sends an admin command without data.
fn admin(subsystem: &mut Subsystem, now: Instant, cntlid: u16, admin: AdminCommand) -> Result<u64, Status> {
    match subsystem.admin(now, cntlid, command(admin.to_sqe(1, Sgl::NONE), &[], 0)) {
        AdminReply::Done { status, result, .. } => status.result().map(|()| result),
        AdminReply::Deferred => Ok(u64::MAX),
        reply => panic!("{reply:?}"),
    }
}

/// Sends an admin command that returns `bytes` bytes.
fn admin_data(subsystem: &mut Subsystem, cntlid: u16, admin: AdminCommand, bytes: u32) -> Result<Vec<u8>, Status> {
    let sgl = Sgl::Transport { length: bytes };
    match subsystem.admin(Instant::now(), cntlid, command(admin.to_sqe(1, sgl), &[], bytes)) {
        AdminReply::Data { data, .. } => Ok(data),
        AdminReply::Done { status, .. } => Err(status),
        reply => panic!("{reply:?}"),
    }
}

fn plain() -> IcReq {
    icreq(false, false, 0, 0)
}

fn io() -> Wire {
    Wire::io(QueueLimits::default(), plain(), true)
}

fn write_sqe(cid: u16, bytes: u32, sgl: Sgl) -> Sqe {
    NvmCommand::Write { slba: 0, blocks: bytes / 512, fua: false }.to_sqe(cid, 1, sgl)
}

fn ask(cid: u16, bytes: u32) -> Pdu {
    Pdu::CapsuleCmd(write_sqe(cid, bytes, Sgl::Transport { length: bytes }))
}

fn read(cid: u16, bytes: u32) -> Pdu {
    let sgl = Sgl::Transport { length: bytes };
    Pdu::CapsuleCmd(NvmCommand::Read { slba: 0, blocks: bytes / 512 }.to_sqe(cid, 1, sgl))
}

fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i / 7) as u8).collect()
}

/// The terminate request that follows an error.
fn term(wire: &mut Wire) -> TermReq {
    let answers = wire.answers();
    let Some((Pdu::C2hTermReq(term), _)) = answers.last() else { panic!("{answers:?}") };
    *term
}

fn try_connect(
    subsystem: &mut Subsystem,
    port: u16,
    qid: u16,
    sqsize: u16,
    data: &ConnectData,
) -> Result<QueueIdentity, (Status, u64)> {
    let sqe = connect(qid, sqsize).to_sqe(0, Sgl::NONE);
    subsystem.connect(Instant::now(), port, &command(sqe, &data.emit(), 0))
}

fn identify(cns: Cns, nsid: u32) -> AdminCommand {
    AdminCommand::Identify { cns, nsid, cntid: 0, csi: 0 }
}

fn set_feature(fid: FeatureId, value: u32) -> AdminCommand {
    AdminCommand::SetFeatures { fid, save: false, nsid: 0, value }
}

fn log(lid: LogPage, bytes: u32, offset: u64) -> AdminCommand {
    AdminCommand::GetLogPage { lid, nsid: 0, lsp: 0, rae: false, bytes: bytes.into(), offset }
}

fn status_of(subsystem: &mut Subsystem, cntlid: u16) -> ControllerStatus {
    let value = fabrics(subsystem, Instant::now(), cntlid, get_property(PropertyOffset::CSTS));
    ControllerStatus(value.unwrap() as u32)
}
