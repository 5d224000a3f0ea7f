//! Test helpers: queues that send single PDUs, for behaviour that the project's own host does not have or does not expose.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use nvme_tcp::wire::{
    AdminCommand, AsyncEvent, AsyncEventMask, CNTLID_ANY, Cns, CommonHeader, Connect, ConnectData,
    ControllerConfiguration, ControllerInstance, Cqe, Digests, FabricsCommand, FeatureId, Framing, IcReq,
    IdentifyController, LogPage, Nqn, Pdu, PropertyOffset, PropertySize, Sgl, Sqe, Status,
};

use super::PATIENCE;

pub(crate) struct RawQueue {
    stream: TcpStream,
    next_cid: u16,
    pub(crate) cntlid: u16,
    /// Responses to other commands than the expected one.
    early: Vec<Cqe>,
}

impl RawQueue {
    fn connect(addr: SocketAddr, subnqn: Nqn, qid: u16, cntlid: u16) -> Self {
        Self::try_connect(addr, subnqn, qid, cntlid).unwrap_or_else(|status| panic!("{status}"))
    }

    /// Fails with the status of Connect.
    pub(crate) fn try_connect(addr: SocketAddr, subnqn: Nqn, qid: u16, cntlid: u16) -> Result<Self, Status> {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut queue = Self { stream, next_cid: 0, cntlid, early: Vec::new() };
        queue.send(Pdu::IcReq(IcReq { hpda: 0, digests: Digests::default(), maxr2t: 0 }), &[]);
        assert!(matches!(queue.receive(), (Pdu::IcResp(_), _)));
        let hostnqn = Nqn::new("nqn.2024-01.com.example:host1").unwrap();
        let data = ConnectData { hostid: [7; 16], cntlid, subnqn, hostnqn }.emit();
        let kato_ms = if qid == 0 { 5000 } else { 0 };
        let connect = FabricsCommand::Connect(Connect { qid, sqsize: 31, cattr: 0, kato_ms });
        let sgl = Sgl::InCapsule { offset: 0, length: data.len() as u32 };
        let (result, _) = queue.run(|cid| connect.to_sqe(cid, sgl), &data)?;
        queue.cntlid = result as u16;
        Ok(queue)
    }

    pub(crate) fn send(&mut self, pdu: Pdu, data: &[u8]) {
        let mut bytes = Vec::new();
        pdu.emit(&Framing::default(), data, &mut bytes);
        self.stream.write_all(&bytes).unwrap();
    }

    pub(crate) fn receive(&mut self) -> (Pdu, Vec<u8>) {
        let mut bytes = vec![0; CommonHeader::LEN];
        self.stream.read_exact(&mut bytes).unwrap();
        let common = CommonHeader::parse(&bytes).unwrap();
        bytes.resize(common.plen as usize, 0);
        self.stream.read_exact(&mut bytes[CommonHeader::LEN..]).unwrap();
        let layout = Framing::default().layout(&common).unwrap();
        (Pdu::parse(&common, &layout, &bytes).unwrap(), bytes.split_off(layout.data_start() as usize))
    }

    pub(crate) fn submit(&mut self, sqe: impl FnOnce(u16) -> Sqe, payload: &[u8]) -> u16 {
        let cid = self.next_cid;
        self.next_cid += 1;
        self.send(Pdu::CapsuleCmd(sqe(cid)), payload);
        cid
    }

    fn wait_for(&mut self, cid: u16) -> (Cqe, Vec<u8>) {
        let mut data = Vec::new();
        loop {
            if let Some(index) = self.early.iter().position(|cqe| cqe.cid.get() == cid) {
                return (self.early.swap_remove(index), data);
            }
            match self.receive() {
                (Pdu::CapsuleResp(cqe), _) => self.early.push(cqe),
                (Pdu::C2hData(part), bytes) => {
                    assert_eq!((part.cid, part.offset as usize), (cid, data.len()));
                    data.extend_from_slice(&bytes);
                }
                (pdu, _) => panic!("{pdu:?}"),
            }
        }
    }

    pub(crate) fn run(&mut self, sqe: impl FnOnce(u16) -> Sqe, payload: &[u8]) -> Result<(u64, Vec<u8>), Status> {
        let cid = self.submit(sqe, payload);
        let (cqe, data) = self.wait_for(cid);
        cqe.status().result().map(|()| (cqe.result.get(), data))
    }

    /// Whether no bytes arrive for a while.
    pub(crate) fn is_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let start = Instant::now();
        let silent = match self.stream.peek(&mut [0]) {
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            Ok(_) => false,
        };
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent && start.elapsed() >= time / 2
    }
}

pub(crate) struct RawAdmin {
    queue: RawQueue,
    pub(crate) cntlid: u16,
}

impl RawAdmin {
    /// A live controller of `subnqn`.
    pub(crate) fn connect(addr: SocketAddr, subnqn: Nqn) -> Self {
        let queue = RawQueue::connect(addr, subnqn, 0, CNTLID_ANY);
        let mut admin = Self { cntlid: queue.cntlid, queue };
        admin.configure(ControllerConfiguration::ENABLED);
        admin
    }

    /// An I/O queue of the controller.
    pub(crate) fn io_queue(&self, subnqn: Nqn) -> RawQueue {
        RawQueue::connect(self.queue.stream.peer_addr().unwrap(), subnqn, 1, self.cntlid)
    }

    /// Writes CC.
    pub(crate) fn configure(&mut self, configuration: ControllerConfiguration) {
        let value = configuration.0.into();
        let set = FabricsCommand::PropertySet { size: PropertySize::Four, offset: PropertyOffset::CC, value };
        self.queue.run(|cid| set.to_sqe(cid, Sgl::NONE), &[]).unwrap();
    }

    /// A command without data.
    pub(crate) fn plain(&mut self, command: AdminCommand) -> Result<u64, Status> {
        self.queue.run(|cid| command.to_sqe(cid, Sgl::NONE), &[]).map(|(result, _)| result)
    }

    /// A command that returns `length` bytes.
    pub(crate) fn data(&mut self, command: AdminCommand, length: u32) -> Result<Vec<u8>, Status> {
        self.queue.run(|cid| command.to_sqe(cid, Sgl::Transport { length }), &[]).map(|(_, data)| data)
    }

    pub(crate) fn identify(&mut self) -> Vec<u8> {
        let command = AdminCommand::Identify { cns: Cns::CONTROLLER, nsid: 0, cntid: 0, csi: 0 };
        self.data(command, 4096).unwrap()
    }

    pub(crate) fn log(&mut self, lid: LogPage, bytes: u32, offset: u64) -> Vec<u8> {
        let command = AdminCommand::GetLogPage { lid, nsid: u32::MAX, lsp: 0, rae: false, bytes: bytes.into(), offset };
        self.data(command, bytes).unwrap()
    }

    pub(crate) fn instance(&mut self) -> ControllerInstance {
        let data = self.identify();
        let identify = IdentifyController::parse(&data).unwrap();
        let cirn = u64::from_le_bytes(identify.cirn);
        ControllerInstance { cntlid: identify.cntlid.get(), ciu: identify.ciu, cirn }
    }

    pub(crate) fn listen_for(&mut self, mask: AsyncEventMask) {
        let fid = FeatureId::ASYNC_EVENT_CONFIGURATION;
        self.plain(AdminCommand::SetFeatures { fid, save: false, nsid: 0, value: mask.0 }).unwrap();
    }

    /// Sends an Asynchronous Event Request. Returns its CID.
    pub(crate) fn ask_event(&mut self) -> u16 {
        self.queue.submit(|cid| AdminCommand::AsyncEventRequest.to_sqe(cid, Sgl::NONE), &[])
    }

    pub(crate) fn event(&mut self, cid: u16) -> AsyncEvent {
        let (cqe, _) = self.queue.wait_for(cid);
        assert_eq!(cqe.status(), Status::SUCCESS);
        AsyncEvent::from_dw0(cqe.dw0())
    }

    /// Whether no bytes arrive for a while.
    pub(crate) fn is_silent(&mut self, time: Duration) -> bool {
        self.queue.is_silent(time)
    }

    /// Whether the target closes the connection.
    pub(crate) fn is_closed(&mut self) -> bool {
        !matches!(self.queue.stream.read(&mut [0]), Ok(1))
    }
}
