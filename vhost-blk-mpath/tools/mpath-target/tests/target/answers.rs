//! Answer faults of single commands, seen by a host that accepts any answer.

use std::time::{Duration, Instant};

use mpath_target::{NamespaceConfig, TargetServer};
use nvme_tcp::host::ControllerConfig;
use nvme_tcp::wire::{Cqe, H2cData, Nqn, NvmCommand, Pdu, R2t, Sgl, Status};

use crate::common::raw::{RawAdmin, RawQueue};
use crate::common::{NQN, connect, eventually, host_config, pattern, set, target};

const MIB: u64 = 1 << 20;
const BLOCK: u32 = 512;
/// More data than fit a capsule.
const LARGE: u32 = 64 << 10;
/// How long to wait for an answer that must not arrive.
const WHILE: Duration = Duration::from_millis(50);

/// A target with two ports and two namespaces. Tests inject faults on the first port and check on the second.
fn start() -> (TargetServer, RawAdmin, RawQueue) {
    let server = target(2, &[NamespaceConfig::memory(MIB), NamespaceConfig::memory(MIB)]);
    let admin = RawAdmin::connect(server.addrs()[0], nqn());
    let queue = admin.io_queue(nqn());
    (server, admin, queue)
}

fn nqn() -> Nqn {
    Nqn::new(NQN).unwrap()
}

fn read(queue: &mut RawQueue, nsid: u32, bytes: u32) -> u16 {
    let read = NvmCommand::Read { slba: 0, blocks: bytes / BLOCK };
    queue.submit(|cid| read.to_sqe(cid, nsid, Sgl::Transport { length: bytes }), &[])
}

/// A write to namespace 1 with its data in the capsule.
fn write(queue: &mut RawQueue, data: &[u8]) -> u16 {
    let length = data.len() as u32;
    let write = NvmCommand::Write { slba: 0, blocks: length / BLOCK, fua: false };
    queue.submit(|cid| write.to_sqe(cid, 1, Sgl::InCapsule { offset: 0, length }), data)
}

/// A write to namespace 1 whose data wait for an R2T.
fn write_by_r2t(queue: &mut RawQueue) -> u16 {
    let write = NvmCommand::Write { slba: 0, blocks: LARGE / BLOCK, fua: false };
    queue.submit(|cid| write.to_sqe(cid, 1, Sgl::Transport { length: LARGE }), &[])
}

fn flush(queue: &mut RawQueue) -> u16 {
    queue.submit(|cid| NvmCommand::Flush.to_sqe(cid, 1, Sgl::NONE), &[])
}

/// The next answer, which must be success: its CID, and the bytes of data before it.
fn answer(queue: &mut RawQueue) -> (u16, usize) {
    let mut bytes = 0;
    loop {
        match queue.receive() {
            (Pdu::C2hData(_), data) => bytes += data.len(),
            (Pdu::CapsuleResp(cqe), _) => return (succeeded(cqe), bytes),
            (pdu, _) => panic!("{pdu:?}"),
        }
    }
}

fn succeeded(cqe: Cqe) -> u16 {
    assert_eq!(cqe.status(), Status::SUCCESS);
    cqe.cid.get()
}

/// The first block of namespace 1, read through the second port.
fn stored(server: &TargetServer) -> Vec<u8> {
    let config = ControllerConfig { nsids: vec![1], ..host_config() };
    connect(server.addrs()[1], config).1.read(0, 1).unwrap()
}

fn pending_faults(server: &TargetServer) -> Vec<String> {
    server.status()[0].answers.clone()
}

#[test]
fn a_swallowed_command_is_not_executed_and_others_are_answered() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["swallow=2"]);
    write(&mut queue, &pattern(1, 512));
    read(&mut queue, 1, 512);
    let after = read(&mut queue, 1, 512);
    assert_eq!(answer(&mut queue), (after, 512));
    assert!(queue.is_silent(WHILE));
    assert_eq!((stored(&server), pending_faults(&server)), (vec![0; 512], vec![]));
}

#[test]
fn only_commands_of_the_given_operation_and_namespace_are_swallowed() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["swallow=1:read:2"]);
    for nsid in [1, 1] {
        let cid = read(&mut queue, nsid, 512);
        assert_eq!(answer(&mut queue).0, cid);
    }
    let cid = flush(&mut queue);
    assert_eq!(answer(&mut queue).0, cid);
    assert_eq!(pending_faults(&server), ["swallow=1:read:2"]);
    read(&mut queue, 2, 512);
    let after = read(&mut queue, 2, 512);
    assert_eq!(answer(&mut queue), (after, 512));
}

#[test]
fn a_write_whose_answer_is_lost_is_executed() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["lose-answer=1:write"]);
    write(&mut queue, &pattern(1, 512));
    eventually("the write is executed", || stored(&server) == pattern(1, 512));
    let after = flush(&mut queue);
    assert_eq!(answer(&mut queue).0, after);
    assert!(queue.is_silent(WHILE));
}

#[test]
fn an_early_answer_precedes_the_r2t_and_the_write_is_executed_afterwards() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["answer-early=1"]);
    let cid = write_by_r2t(&mut queue);
    let (Pdu::R2t(R2t { ttag, .. }), _) = queue.receive() else { panic!("no R2T") };
    let (Pdu::CapsuleResp(cqe), _) = queue.receive() else { panic!("no answer") };
    assert_eq!(succeeded(cqe), cid);
    assert_eq!(stored(&server), vec![0; 512]);
    let data = pattern(1, LARGE as usize);
    queue.send(Pdu::H2cData(H2cData { cid, ttag, offset: 0, length: LARGE, last: true }), &data);
    eventually("the write is executed", || stored(&server) == data[..512]);
    // The target must not answer a second time.
    let after = flush(&mut queue);
    assert_eq!(answer(&mut queue).0, after);
}

#[test]
fn a_command_is_answered_twice() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["answer-twice=1"]);
    let cid = read(&mut queue, 1, 512);
    assert_eq!([answer(&mut queue), answer(&mut queue)], [(cid, 512), (cid, 0)]);
    assert!(queue.is_silent(WHILE));
}

#[test]
fn a_late_answer_does_not_delay_others() {
    let (server, _admin, mut queue) = start();
    let time = Duration::from_millis(200);
    set(&server, 0, &["answer-late=1:200ms:read"]);
    let start = Instant::now();
    let late = read(&mut queue, 1, 512);
    let other = read(&mut queue, 1, 512);
    assert_eq!(answer(&mut queue), (other, 512));
    assert_eq!(answer(&mut queue), (late, 512));
    assert!(start.elapsed() >= time);
}

#[test]
fn a_short_read_succeeds_with_half_of_its_data() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["short-read=1"]);
    let cid = write(&mut queue, &pattern(1, 512));
    assert_eq!(answer(&mut queue).0, cid, "no write is meant");
    let cid = read(&mut queue, 1, LARGE);
    assert_eq!(answer(&mut queue), (cid, LARGE as usize / 2));
    let cid = read(&mut queue, 1, LARGE);
    assert_eq!(answer(&mut queue), (cid, LARGE as usize));
}

#[test]
fn a_count_of_zero_ends_a_fault_and_an_unknown_namespace_is_refused() {
    let (server, _admin, mut queue) = start();
    set(&server, 0, &["swallow=9", "answer-late=1:1s"]);
    assert_eq!(pending_faults(&server), ["swallow=9", "answer-late=1:1000000000ns"]);
    set(&server, 0, &["swallow=0", "answer-late=0:0s"]);
    let cid = flush(&mut queue);
    assert_eq!(answer(&mut queue).0, cid);
    let error = server.apply(0, &["swallow=1:read:3".parse().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("namespace 3"), "{error}");
}
