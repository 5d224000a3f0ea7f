//! A queue pair, and the answers of its controller.

use monotonic::Instant;
use mpath_sim::BlockOp;
use nvme_tcp::host::{
    CommandLimits, HostIdentity, HostQueue, IoCommand, NamespaceLimits, NoPayload, PayloadSink, PayloadSource,
    QueueConfig, STAGING_MIN, Tag,
};
use nvme_tcp::wire::{C2hData, Cqe, Digests, Framing, IcResp, Nqn, Pdu, Status};

use super::guest::{BLOCK_BYTES, BLOCKS};
use super::meter::Work;

/// Bytes of a capsule without data.
const CAPSULE_BYTES: usize = 72;

/// Bytes of the capsule of a request for one block. Data of a write are in the capsule.
pub(super) fn capsule_bytes(op: BlockOp) -> usize {
    CAPSULE_BYTES + if op == BlockOp::Write { BLOCK_BYTES as usize } else { 0 }
}

/// A queue pair that is connected.
pub(super) fn connected() -> HostQueue {
    let nqn = |name| Nqn::new(name).expect("a valid name");
    let mut queue = HostQueue::new(QueueConfig {
        qid: 1,
        entries: 128,
        host: HostIdentity { hostnqn: nqn("nqn.2014-08.org.example:host"), hostid: [1; 16] },
        subnqn: nqn("nqn.2014-08.org.example:disk"),
        cntlid: 0,
        digests: Digests::default(),
        max_transfer_bytes: 1 << 20,
        reports_max_transfer: true,
        command_limits: CommandLimits::NONE,
        in_capsule_bytes: 8192,
        namespaces: vec![Some(NamespaceLimits {
            nsid: 1,
            block_bytes: BLOCK_BYTES,
            namespace_blocks: BLOCKS,
            noiob_blocks: 0,
        })],
        authentication: None,
        is_encrypted: false,
    })
    .expect("a valid configuration");
    let accept = |_: &[u8]| Pdu::IcResp(IcResp { cpda: 0, digests: Digests::default(), maxh2cdata: 131_072 });
    let connect = |capsule: &[u8]| success(cid_of(capsule));
    for answer in [&accept as &dyn Fn(&[u8]) -> Pdu, &connect] {
        let mut sent = Vec::with_capacity(STAGING_MIN);
        queue.fill_tx(Instant::now(), &mut sent, &NoPayload, &mut Vec::new(), u32::MAX);
        let mut bytes = Vec::new();
        answer(&sent).emit(&Framing::default(), &[], &mut bytes);
        queue.receive(&bytes, &mut NoPayload).expect("the answer is right");
    }
    assert!(queue.is_ready());
    queue
}

/// The command identifier in a capsule.
fn cid_of(capsule: &[u8]) -> u16 {
    u16::from_le_bytes([capsule[10], capsule[11]])
}

fn success(cid: u16) -> Pdu {
    Pdu::CapsuleResp(Cqe::new(cid, 0, Status::SUCCESS, 0))
}

/// The answer of the controller to a request for one block: success, to a read with the data.
pub(super) fn answer(capsule: &[u8]) -> Vec<u8> {
    let (mut bytes, cid) = (Vec::new(), cid_of(capsule));
    if capsule.len() > CAPSULE_BYTES {
        success(cid).emit(&Framing::default(), &[], &mut bytes);
        return bytes;
    }
    let data = C2hData { cid, offset: 0, length: BLOCK_BYTES, last: true, success: true };
    Pdu::C2hData(data).emit(&Framing::default(), &[0xa5; BLOCK_BYTES as usize], &mut bytes);
    bytes
}

/// The memory of a request.
struct Buffer([u8; BLOCK_BYTES as usize]);

impl PayloadSource for Buffer {
    fn gather(&self, _: Tag, offset: u32, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[offset as usize..][..dst.len()]);
    }
}

impl PayloadSink for Buffer {
    fn scatter(&mut self, _: Tag, offset: u32, src: &[u8]) {
        self.0[offset as usize..][..src.len()].copy_from_slice(src);
    }
}

/// A request for one block through a queue pair.
pub(super) fn work(op: BlockOp) -> Work {
    let (mut queue, mut buffer, now) = (connected(), Buffer([0; BLOCK_BYTES as usize]), Instant::now());
    let (mut staging, mut plan) = (Vec::with_capacity(STAGING_MIN), Vec::with_capacity(1));
    Box::new(move |meter, requests| {
        for slba in 0..u64::from(requests) {
            let (slba, blocks) = (slba % BLOCKS, 1);
            let command = match op {
                BlockOp::Read => IoCommand::Read { slba, blocks },
                BlockOp::Write => IoCommand::Write { slba, blocks, fua: false },
            };
            staging.clear();
            plan.clear();
            meter.count(|| {
                queue.submit(Tag(1), 0, command).expect("there is room");
                queue.fill_tx(now, &mut staging, &buffer, &mut plan, u32::MAX);
            });
            let bytes = answer(&staging);
            let completion = meter.count(|| {
                queue.receive(&bytes, &mut buffer).expect("the answer is right");
                queue.poll_completion()
            });
            assert!(completion.is_some_and(|completion| completion.result.is_ok()));
        }
    })
}
