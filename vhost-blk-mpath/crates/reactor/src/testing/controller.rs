//! Test helper: a controller without a target behind it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use monotonic::Duration;
use nvme_tcp::host::{CommandLimits, HostIdentity, HostQueue, NamespaceLimits, NoPayload, QueueConfig, STAGING_MIN};
use nvme_tcp::wire::{C2hData, Cqe, Digests, Framing, IcResp, Nqn, Pdu, R2t, Status};

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};

use super::TIMEOUT;
use crate::{CloseMode, ConnectedQueuePair};

/// A command capsule without data: common header and SQE.
const CAPSULE_BYTES: usize = 72;

/// Small socket buffers, so that unread data stay with their sender.
const SOCKET_BYTES: usize = 16 << 10;

/// The controller's end of one queue pair.
pub(crate) struct Controller {
    pub(crate) stream: TcpStream,
}

impl Controller {
    /// A ready queue pair and the controller at its other end.
    pub(crate) fn connect() -> (Self, ConnectedQueuePair) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_socket_recv_buffer_size(&listener, SOCKET_BYTES).unwrap();
        let host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        host.set_nodelay(true).unwrap();
        set_socket_send_buffer_size(&host, SOCKET_BYTES).unwrap();
        let controller = listener.accept().unwrap().0;
        controller.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut queue = HostQueue::new(QueueConfig {
            qid: 1,
            entries: 16,
            host: HostIdentity { hostnqn: Nqn::new("nqn.2014-08.org.example:host").unwrap(), hostid: [1; 16] },
            subnqn: Nqn::new("nqn.2014-08.org.example:disk").unwrap(),
            cntlid: 1,
            digests: Digests::default(),
            max_transfer_bytes: 1 << 20,
            reports_max_transfer: false,
            command_limits: CommandLimits::NONE,
            in_capsule_bytes: 8192,
            namespaces: vec![Some(NamespaceLimits {
                nsid: 1,
                block_bytes: 4096,
                namespace_blocks: 1024,
                noiob_blocks: 0,
            })],
            authentication: None,
            is_encrypted: false,
        })
        .unwrap();
        // ICReq and Connect are not sent over the socket.
        let icresp = Pdu::IcResp(IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 131_072 });
        let connected = |cid| Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 1));
        for answer in [&|_| icresp, &connected as &dyn Fn(u16) -> Pdu] {
            let mut sent = Vec::with_capacity(STAGING_MIN);
            queue.fill_tx(monotonic::Instant::now(), &mut sent, &NoPayload, &mut Vec::new(), u32::MAX);
            let cid = u16::from_le_bytes([sent[10], sent[11]]);
            queue.receive(&bytes_of(answer(cid), &[]), &mut NoPayload).unwrap();
        }
        assert!(queue.is_ready());
        (
            Self { stream: controller },
            ConnectedQueuePair {
                socket: host.into(),
                queue,
                tls: None,
                retry_delays: [Duration::ZERO; 3],
                close_mode: CloseMode::Reset,
            },
        )
    }

    /// The CID of the next command.
    pub(crate) fn command(&mut self) -> u16 {
        let mut capsule = [0; CAPSULE_BYTES];
        self.stream.read_exact(&mut capsule).unwrap();
        u16::from_le_bytes([capsule[10], capsule[11]])
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// A PDU that asks for the first `bytes` of a write.
    pub(crate) fn ask(cid: u16, bytes: usize) -> Vec<u8> {
        bytes_of(Pdu::R2t(R2t { cid, ttag: cid, offset: 0, length: bytes as u32 }), &[])
    }

    /// Receives requested data: `(cid, data)`.
    pub(crate) fn data(&mut self, bytes: usize) -> (u16, Vec<u8>) {
        let (mut data, mut cid) = (Vec::new(), None);
        while data.len() < bytes {
            // Common header, CCCID, TTAG, offset, length.
            let mut header = [0; 24];
            self.stream.read_exact(&mut header).unwrap();
            assert_eq!(header[0], 6, "H2CData");
            let of = u16::from_le_bytes([header[8], header[9]]);
            assert_eq!(*cid.get_or_insert(of), of);
            let pdu_bytes = u32::from_le_bytes([16, 17, 18, 19].map(|at| header[at])) as usize;
            let start = data.len();
            data.resize(start + pdu_bytes, 0xee);
            self.stream.read_exact(&mut data[start..]).unwrap();
        }
        assert_eq!(data.len(), bytes);
        (cid.unwrap(), data)
    }

    /// The completion of a command.
    pub(crate) fn end(cid: u16, status: Status) -> Vec<u8> {
        bytes_of(Pdu::CapsuleResp(Cqe::new(cid, 0, status, 0)), &[])
    }

    /// The complete answer to a read of `bytes`.
    pub(crate) fn answer(cid: u16, byte: u8, bytes: usize) -> Vec<u8> {
        let data = C2hData { cid, offset: 0, length: bytes as u32, last: true, success: false };
        let mut answer = bytes_of(Pdu::C2hData(data), &vec![byte; bytes]);
        answer.extend(Self::end(cid, Status::SUCCESS));
        answer
    }
}

fn bytes_of(pdu: Pdu, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu.emit(&Framing::default(), data, &mut bytes);
    bytes
}
