//! The cases: which work is counted.

use std::hint::black_box;

use monotonic::Duration;
use mpath_core::{PolicyKind, SchedulerKind, Times};
use mpath_sim::BlockOp;
use nvme_tcp::wire::{C2hData, Cqe, NvmCommand, Pdu, Sgl, Status};

use super::core::{Core, Part, Setup};
use super::io_thread::IoThread;
use super::meter::{Case, Work};
use super::{codec, guest, queue_pair};

/// All cases that have a baseline.
pub(super) fn all() -> Vec<Case> {
    let ring = |name, op, are_packed| Case::new(name, move || guest::walk(op, are_packed));
    let core = |name, part| Case::new(name, move || Core::work(Setup { part, ..DAEMON }));
    let record =
        |name, step| Case::new(name, move || Core::work(Setup { flows: 1, depth: 1, answers: 1, step, ..DAEMON }));
    let turns = |name, op, are_packed, depth| Case::new(name, move || IoThread::work(op, are_packed, depth));
    let read =
        || Pdu::CapsuleCmd(NvmCommand::Read { slba: 8, blocks: 1 }.to_sqe(7, 1, Sgl::Transport { length: 4096 }));
    let write = || {
        let command = NvmCommand::Write { slba: 8, blocks: 1, fua: false };
        Pdu::CapsuleCmd(command.to_sqe(7, 1, Sgl::InCapsule { offset: 0, length: 4096 }))
    };
    let response = || Pdu::CapsuleResp(Cqe::new(7, 0, Status::SUCCESS, 0));
    let data = || Pdu::C2hData(C2hData { cid: 7, offset: 0, length: 4096, last: true, success: false });
    let mut cases = vec![
        ring("ring: a read, split", BlockOp::Read, false),
        ring("ring: a read, packed", BlockOp::Read, true),
        ring("ring: a write, split", BlockOp::Write, false),
        ring("ring: a write, packed", BlockOp::Write, true),
        core("core: submit", Part::Submit),
        core("core: schedule and choose a path", Part::Bind),
        core("core: complete", Part::Complete),
        core("core: finish", Part::Finish),
        Case::new("statistics: a latency", statistics),
        record("records: a read, quick", |read| if read < 16 { MS } else { 10 * US }),
        record("records: a read, slower than all before", |read| 10 * US + read * US),
        Case::new("codec: encode a read", move || codec::encode(read(), 0)),
        Case::new("codec: encode a write of 4 KiB", move || codec::encode(write(), 4096)),
        Case::new("codec: decode a response", move || codec::decode(response(), 0)),
        Case::new("codec: decode a C2HData header", move || codec::decode(data(), 4096)),
        Case::new("queue pair: a read", || queue_pair::work(BlockOp::Read)),
        Case::new("queue pair: a write of 4 KiB", || queue_pair::work(BlockOp::Write)),
        turns("I/O thread: a read at depth 1", BlockOp::Read, false, 1),
        turns("I/O thread: a read at depth 32", BlockOp::Read, false, 32),
        turns("I/O thread: a read at depth 32, packed", BlockOp::Read, true, 32),
        turns("I/O thread: a write at depth 1", BlockOp::Write, false, 1),
        turns("I/O thread: a write at depth 32", BlockOp::Write, false, 32),
    ];
    for (flows, depth, paths) in [(1, 32, 1), (1, 32, 2), (1, 32, 8), (8, 4, 1), (8, 4, 2), (8, 4, 8)] {
        cases.extend([1, 16].map(|answers| whole_core(Setup { paths, flows, depth, answers, ..DAEMON }, "")));
    }
    cases.extend([1, 16].map(|answers| whole_core(Setup { slots: 7, answers, ..DAEMON }, ", full windows")));
    cases.extend(SchedulerKind::ALL.map(|kind| scheduler(kind, 8)));
    for paths in [2, 8] {
        cases.extend(PolicyKind::ALL.map(|policy| {
            let setup = Setup { policy, paths, scheduler: SchedulerKind::Fifo, ..DAEMON };
            Case::new(format!("policy: {policy}, {paths} paths"), move || Core::work(setup))
        }));
    }
    cases
}

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);

/// The policy and the scheduler are the daemon's own, by default.
const DAEMON: Setup = Setup {
    policy: PolicyKind::Bdp,
    scheduler: SchedulerKind::BurstCredit,
    paths: 2,
    slots: 128,
    flows: 8,
    depth: 4,
    answers: 1,
    step: |_| Duration::from_micros(10),
    part: Part::All,
};

/// A read through the whole core.
fn whole_core(setup: Setup, more: &str) -> Case {
    let of = |count: usize, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (flows, paths) = (of(setup.flows.into(), "flow"), of(setup.paths, "path"));
    let answers = of(setup.answers as usize, "answer");
    Case::new(format!("core: a read, {flows}, {paths}, {answers}{more}"), move || Core::work(setup))
}

/// A read under a scheduler, on one path.
pub(super) fn scheduler(scheduler: SchedulerKind, flows: u16) -> Case {
    let setup = Setup { policy: PolicyKind::Numa, scheduler, paths: 1, slots: 13, flows, ..DAEMON };
    let case = Case::new(format!("scheduler: {scheduler}, {flows} flows"), move || Core::work(setup));
    Case { times: case.times.max(4 * u32::from(flows)), ..case }
}

/// A latency in the histogram since the start.
fn statistics() -> Work {
    let mut times = Times::latencies();
    Box::new(move |meter, count| {
        for nth in 0..count {
            let latency = black_box(50 * US + nth * US);
            meter.count(|| times.record(latency));
        }
    })
}
