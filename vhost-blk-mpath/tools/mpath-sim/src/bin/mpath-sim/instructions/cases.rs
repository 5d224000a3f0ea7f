//! The cases: which work is counted.

use std::hint::black_box;

use monotonic::Duration;
use mpath_core::{PolicyKind, SchedulerKind, Times};
use nvme_tcp::wire::{C2hData, Cqe, NvmCommand, Pdu, Sgl, Status};

use super::core::{Core, Part, Setup};
use super::io_thread::IoThread;
use super::meter::{Case, Work};
use super::{codec, guest, queue_pair};

/// All cases that have a baseline.
pub(super) fn all() -> Vec<Case> {
    let ring = |name, are_packed| Case::new(name, move || guest::walk(are_packed));
    let core = |name, part| Case::new(name, move || Core::work(Setup { part, ..DAEMON }));
    let record = |name, step| Case::new(name, move || Core::work(Setup { flows: 1, depth: 1, step, ..DAEMON }));
    let turns = |name, depth| Case::new(name, move || IoThread::work(depth));
    let read =
        || Pdu::CapsuleCmd(NvmCommand::Read { slba: 8, blocks: 1 }.to_sqe(7, 1, Sgl::Transport { length: 4096 }));
    let write = || {
        let command = NvmCommand::Write { slba: 8, blocks: 1, fua: false };
        Pdu::CapsuleCmd(command.to_sqe(7, 1, Sgl::InCapsule { offset: 0, length: 4096 }))
    };
    let response = || Pdu::CapsuleResp(Cqe::new(7, 0, Status::SUCCESS, 0));
    let data = || Pdu::C2hData(C2hData { cid: 7, offset: 0, length: 4096, last: true, success: false });
    let mut cases = vec![
        ring("ring: a read, split", false),
        ring("ring: a read, packed", true),
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
        Case::new("queue pair: a read", queue_pair::work),
        turns("I/O thread: a read at depth 1", 1),
        turns("I/O thread: a read at depth 32", 32),
    ];
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
    step: |_| Duration::from_micros(10),
    part: Part::All,
};

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
