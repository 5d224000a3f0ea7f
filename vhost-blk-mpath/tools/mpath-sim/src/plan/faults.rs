//! The faults of a run, drawn at random.

use std::num::NonZeroU64;

use monotonic::Duration;
use mpath_core::{
    Direction, Distribution, InjectedError, Injection, IoError, Limits, OpClass, Outcome, PolicyKind, RetryCause,
};
use nvme_tcp::wire::{AnaState, Status};
use nvme_tcp_target::AnswerFault;

use crate::discovery_controllers::DiscoveryPlan;
use crate::fault::{Fault, PlannedFault};
use crate::rng::Rng;
use crate::target::{NamespaceReport, OddIdentity, R2tFault, StatusFault};
use crate::tls::TlsRefusal;

const MS: Duration = Duration::from_millis(1);

const STATES: [AnaState; 4] =
    [AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change, AnaState::PersistentLoss];

/// Draws the beginning and the duration of a fault before `quiet`. The duration is at most one of `longest`, which is drawn too.
pub(super) fn span(rng: &mut Rng, quiet: Duration, longest: &[Duration]) -> (Duration, Duration) {
    let begins = rng.up_to(quiet * 9 / 10);
    let longest = rng.pick(longest);
    (begins, rng.up_to(longest).min(quiet.saturating_sub(begins)))
}

/// The ends of a connection at which nothing arrives.
fn ends(rng: &mut Rng) -> [bool; 2] {
    rng.pick(&[[true, true], [true, true], [true, false], [false, true]])
}

/// Any fault of a path or of its node.
fn any_fault(rng: &mut Rng, path: usize, digests: bool) -> Fault {
    let statuses = [
        Status::INTERNAL_PATH_ERROR,
        Status::ANA_TRANSITION,
        Status::ABORTED_SQ_DELETION,
        Status::COMMAND_INTERRUPTED,
        Status::COMMAND_INTERRUPTED.with_crd(1),
        Status::NAMESPACE_NOT_READY.with_crd(3),
        Status::INTERNAL_ERROR.with_crd(2),
        Status::INTERNAL_ERROR.with_dnr(),
        Status::UNRECOVERED_READ_ERROR,
    ];
    match rng.below(if digests { 18 } else { 16 }) {
        0 | 1 => Fault::BlackHole { path, at: ends(rng) },
        2 => Fault::Delay { path, by: rng.pick(&[20 * MS, 300 * MS, 3000 * MS]) },
        3 => Fault::ResetAll { path },
        4 => Fault::ResetOne { path, choice: rng.next_u64() },
        5 => Fault::FreezeOne { path, choice: rng.next_u64(), at: ends(rng) },
        6 => Fault::PortDown { path },
        7 => Fault::PauseNode { node: path },
        8 => Fault::CrashNode { node: path },
        9 => Fault::HoldCommands { node: path, percent: rng.pick(&[5, 30, 100]) },
        10 => Fault::SlowNode { node: path, by: rng.pick(&[5 * MS, 100 * MS]) },
        11 => {
            let status_fault = StatusFault { percent: rng.pick(&[2, 20, 100]), status: rng.pick(&statuses) };
            Fault::FailCommands { node: path, status_fault }
        }
        12 => Fault::SetAna { node: path, disk: None, state: rng.pick(&STATES) },
        13 => Fault::SetPolicy(rng.pick(&PolicyKind::ALL)),
        14 => {
            let class = rng.pick(&[None, None, Some(OpClass::Read), Some(OpClass::Write), Some(OpClass::Other)]);
            Fault::SetInjection { path, class, injection: injection(rng) }
        }
        15 => Fault::RepeatResponses { node: path, percent: rng.pick(&[1, 10]) },
        _ => Fault::FlipBits { path, per_10k: rng.pick(&[1, 20, 500]) },
    }
}

/// An injection of one kind or two.
fn injection(rng: &mut Rng) -> Injection {
    let mut injection = Injection {
        direction: rng.pick(&[Direction::Request, Direction::Response]),
        distribution: rng.pick(&[
            Distribution::Uniform,
            Distribution::Normal,
            Distribution::Exponential,
            Distribution::Pareto,
        ]),
        stall: rng.percent(25),
        seed: rng.next_u64(),
        ..Injection::default()
    };
    for _ in 0..rng.pick(&[1, 2]) {
        match rng.below(4) {
            0 => injection.latency = rng.pick(&[MS, 30 * MS, 1000 * MS, 60_000 * MS]),
            1 => injection.jitter = rng.pick(&[MS, 30 * MS, 300 * MS]),
            2 => injection.rate = NonZeroU64::new(rng.pick(&[64 << 10, 1 << 20, 100 << 20])),
            _ => {
                let retry = Outcome::Retry { after: Duration::ZERO, cause: RetryCause::Internal };
                let outcome = rng.pick(&[Outcome::PathError, retry, Outcome::Failed(IoError::Controller)]);
                injection.error = Some(InjectedError { per_million: rng.pick(&[20_000, 200_000, 1_000_000]), outcome });
            }
        }
    }
    injection
}

fn kill(rng: &mut Rng) -> Fault {
    // At once, or almost at the latest time that the next daemon assumes.
    let exit = if rng.percent(70) { rng.up_to(MS) } else { rng.between(400 * MS, 490 * MS) };
    Fault::KillDaemon { resubmits: rng.percent(50), exit }
}

/// Any fault of one disk. If another disk is spared, the fault must not end an association.
fn any_fault_of_disk(rng: &mut Rng, node: usize, disk: usize, spared: bool) -> Fault {
    match rng.below(10) {
        0..=3 => Fault::SetAna { node, disk: Some(disk), state: rng.pick(&STATES) },
        4..=6 => Fault::ReportNamespace {
            node,
            disk,
            report: if spared {
                NamespaceReport::Nothing
            } else {
                rng.pick(&[NamespaceReport::Nothing, NamespaceReport::Another])
            },
        },
        7 | 8 => Fault::SetLimits { disk, limits: limits(rng) },
        _ => Fault::SetWeight { disk, weight: rng.pick(&[1, 10, 100, 1000]) },
    }
}

/// Limits of requests, of bytes, or of both.
fn limits(rng: &mut Rng) -> Limits {
    let iops = NonZeroU64::new(rng.pick(&[0, 10, 50, 500]));
    let bytes_per_s = NonZeroU64::new(rng.pick(&[0, 16 << 10, 1 << 20]));
    Limits { iops, bytes_per_s, burst: rng.pick(&[10 * MS, 100 * MS, 1000 * MS]) }
}

/// Faults of single disks until `quiet`. The paths of a spared disk all stay.
pub(super) fn faults_of_disks(
    rng: &mut Rng,
    paths: usize,
    disks: usize,
    spared: Option<usize>,
    quiet: Duration,
) -> Vec<PlannedFault> {
    let concerned: Vec<usize> = (0..disks).filter(|disk| Some(*disk) != spared).collect();
    let count = if spared.is_some() { rng.pick(&[6, 12]) } else { rng.pick(&[0, 2, 6]) * disks };
    // A namespace that appears after its path was connected may end the association.
    let first = if spared.is_some() { 1000 * MS } else { Duration::ZERO };
    let one = |_| {
        let begins = rng.between(first, quiet * 9 / 10);
        let longest = rng.pick(&[200 * MS, 1000 * MS, 4000 * MS, 9000 * MS]);
        let lasts = rng.between(longest / 4, longest).min(quiet.saturating_sub(begins));
        let (node, disk) = (rng.index(paths), rng.pick(&concerned));
        PlannedFault { fault: any_fault_of_disk(rng, node, disk, spared.is_some()), begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Faults of discovery controllers until `quiet`, and paths that the operator removes meanwhile. The first controller always
/// lists path 0.
pub(super) fn faults_of_discovery(rng: &mut Rng, plan: &DiscoveryPlan, quiet: Duration) -> Vec<PlannedFault> {
    let (controllers, paths) = (plan.lists.len(), plan.configured.len());
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[4, 8, 16]) {
        let (begins, lasts) = span(rng, quiet, &[50 * MS, 1000 * MS, 8000 * MS]);
        let mut add = |fault| planned.push(PlannedFault { fault, begins, lasts });
        match rng.below(8) {
            0 => add(Fault::RemovePath { path: rng.index(paths), at_once: rng.percent(50) }),
            1 | 2 => {
                let path = paths + rng.index(controllers);
                add(match rng.below(7) {
                    0 | 1 => Fault::PortDown { path },
                    2 => Fault::BlackHole { path, at: [true; 2] },
                    3 | 4 => Fault::SilentPort { path, percent: 100 },
                    5 => Fault::HostTimeout { path },
                    _ => Fault::Delay { path, by: rng.up_to(3000 * MS) },
                });
            }
            _ => {
                let (node, for_good) = (rng.index(paths), rng.percent(20));
                let listing =
                    (0..controllers).filter(|&controller| plan.lists[controller][node] && (controller, node) != (0, 0));
                listing.for_each(|controller| add(Fault::UnlistNode { controller, node, for_good }));
            }
        }
    }
    planned
}

/// Discovery controllers that are all away for long. The daemon is killed or replaced meanwhile.
pub(super) fn discovery_away(rng: &mut Rng, plan: &DiscoveryPlan, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    if rng.percent(50) {
        let begins = rng.between(quiet / 10, quiet / 2);
        let lasts = rng.between(quiet / 4, quiet.saturating_sub(begins));
        let mut add = |fault, begins, lasts| planned.push(PlannedFault { fault, begins, lasts });
        for path in (0..plan.lists.len()).map(|controller| plan.configured.len() + controller) {
            add(Fault::PortDown { path }, begins, lasts);
        }
        let fault = if rng.percent(50) {
            Fault::RestartDaemon
        } else {
            Fault::KillDaemon { resubmits: true, exit: rng.up_to(MS) }
        };
        add(fault, begins + rng.up_to(lasts), rng.up_to(500 * MS));
    }
    planned
}

/// Front-ends that hang up until `quiet`.
pub(super) fn hang_ups(rng: &mut Rng, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let fault = Fault::HangUp { disk: rng.index(disks), is_reset: rng.percent(50) };
        let (begins, lasts) = span(rng, quiet, &[MS, 200 * MS, 2000 * MS]);
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Virtqueues that stop and start while their front-end stays, until `quiet`.
pub(super) fn queue_stops(rng: &mut Rng, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let (begins, lasts) = span(rng, quiet, &[MS, 200 * MS, 2000 * MS]);
        PlannedFault { fault: Fault::StopQueues { disk: rng.index(disks) }, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Memory of guests that is truncated until `quiet`.
pub(super) fn truncations(rng: &mut Rng, disks: usize, spared: Option<usize>, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 0, 0, 0, 0, 1, 4]);
    let concerned: Vec<_> = (0..disks).filter(|disk| Some(*disk) != spared).collect();
    let one = |_| {
        let fault = Fault::TruncateMemory { disk: rng.pick(&concerned), choice: rng.next_u64() };
        let (begins, lasts) = span(rng, quiet, &[300 * MS, 1000 * MS, 4000 * MS]);
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Daemons that end in order.
pub(super) fn restarts(rng: &mut Rng, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 0, 1, 3]);
    let one =
        |_| PlannedFault { fault: Fault::RestartDaemon, begins: rng.up_to(quiet * 9 / 10), lasts: Duration::ZERO };
    (0..count).map(one).collect()
}

/// Connections that nodes close in order until `quiet`, often while they hold commands, and connections that are never read.
pub(super) fn closures(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 1, 4]) {
        let (path, longest) = (rng.index(paths), rng.pick(&[200 * MS, 2000 * MS, 9000 * MS]));
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        if rng.percent(50) {
            let hold = Fault::HoldCommands { node: path, percent: rng.pick(&[0, 30, 100]) };
            planned.push(PlannedFault { fault: hold, begins: begins.saturating_sub(200 * MS), lasts: 200 * MS });
            let fault = Fault::CloseInOrder { node: path, admin: rng.percent(50) };
            planned.push(PlannedFault { fault, begins, lasts });
        } else {
            let fault = Fault::SilentPort { path, percent: rng.pick(&[50, 100]) };
            planned.push(PlannedFault { fault, begins, lasts });
        }
    }
    planned
}

/// Paths that the operator resets until `quiet`, often while their nodes hold commands. Some controllers end meanwhile.
pub(super) fn drains(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[4, 8, 16]) {
        let (path, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let mut add = |fault, begins: Duration, lasts: Duration| {
            planned.push(PlannedFault { fault, begins, lasts: lasts.min(quiet.saturating_sub(begins)) });
        };
        let held = rng.pick(&[20 * MS, 200 * MS]);
        add(Fault::HoldCommands { node: path, percent: rng.pick(&[2, 10, 50]) }, begins, held);
        let begins = begins + held / 2;
        add(Fault::ResetByOperator { path }, begins, Duration::ZERO);
        if rng.percent(20) {
            add(Fault::ResetOne { path, choice: rng.next_u64() }, begins.saturating_sub(rng.up_to(MS)), Duration::ZERO);
        }
        let latest = rng.pick(&[20 * MS, 500 * MS, 4000 * MS]);
        let begins = begins + rng.up_to(latest);
        let lasts = rng.pick(&[200 * MS, 3000 * MS]);
        match rng.below(8) {
            0 | 1 => add(Fault::CloseInOrder { node: path, admin: true }, begins, lasts),
            2 => add(Fault::PauseNode { node: path }, begins, lasts),
            3 => add(Fault::ResetOne { path, choice: rng.next_u64() }, begins, Duration::ZERO),
            4 => add(Fault::CloseInOrder { node: path, admin: false }, begins, lasts),
            _ => {}
        }
    }
    planned
}

/// Protocol errors of nodes until `quiet`.
pub(super) fn protocol_faults(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 2, 6]);
    let one = |_| {
        let node = rng.index(paths);
        let fault = if rng.percent(40) {
            let fault = rng.pick(&[AnswerFault::Short, AnswerFault::Twice]);
            Fault::WrongAnswers { node, fault, count: rng.pick(&[1, 3]) }
        } else {
            Fault::SpoilR2ts { node, percent: rng.pick(&[5, 50, 100]), fault: rng.pick(&R2tFault::ALL) }
        };
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.up_to(2000 * MS).min(quiet.saturating_sub(begins));
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Nodes that refuse writes whose data are on their way, and stop reading, until `quiet`.
pub(super) fn deaf_nodes(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 1, 2, 4]);
    let one = |_| {
        let fault = R2tFault::RefuseAndStopReading;
        let fault = Fault::SpoilR2ts { node: rng.index(paths), percent: rng.pick(&[50, 100]), fault };
        let (begins, lasts) = span(rng, quiet, &[300 * MS, 2000 * MS]);
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Nodes that grant fewer I/O queues until `quiet`.
pub(super) fn fewer_queues(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let fault = Fault::GrantQueues { path: rng.index(paths), most: rng.pick(&[1, 1, 2]) };
        let (begins, lasts) = span(rng, quiet, &[1000 * MS, 4000 * MS, 9000 * MS]);
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Nodes that name their namespaces oddly until `quiet`, sometimes another one.
pub(super) fn odd_identities(rng: &mut Rng, paths: usize, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let refusals = [Status::INVALID_FIELD.with_dnr(), Status::INTERNAL_ERROR];
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 1, 4]) {
        let path = rng.index(paths);
        let odd = match rng.below(4) {
            0 => OddIdentity::Refused(rng.pick(&refusals)),
            1 => OddIdentity::Nameless,
            2 => OddIdentity::UuidAlone,
            _ => OddIdentity::NguidAlone,
        };
        let (begins, lasts) = span(rng, quiet, &[50 * MS, 1000 * MS, 4000 * MS]);
        if rng.percent(25) {
            let fault = Fault::ReportNamespace { node: path, disk: rng.index(disks), report: NamespaceReport::Another };
            planned.push(PlannedFault { fault, begins, lasts });
        }
        planned.push(PlannedFault { fault: Fault::NameOddly { path, odd }, begins, lasts });
    }
    planned
}

/// Nodes that refuse TLS until `quiet`, and records that are changed on their way.
pub(super) fn faults_of_tls(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[2, 4, 8]);
    let one = |_| {
        let path = rng.index(paths);
        let fault = if rng.percent(50) {
            Fault::RefuseTls { path, refusal: rng.pick(&TlsRefusal::ALL) }
        } else {
            Fault::FlipBits { path, per_10k: rng.pick(&[100, 500, 3000]) }
        };
        let (begins, lasts) = span(rng, quiet, &[300 * MS, 2000 * MS, 5000 * MS]);
        PlannedFault { fault, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// Faults of paths, of nodes and of the daemon until `quiet`.
pub(super) fn faults(rng: &mut Rng, paths: usize, quiet: Duration, digests: bool) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[3, 8, 16, 24]) {
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.pick(&[5 * MS, 200 * MS, 1000 * MS, 4000 * MS]);
        let lasts = rng.between(lasts / 4, lasts);
        let path = rng.index(paths);
        match rng.below(10) {
            // A node holds commands while their path breaks: fences exist for this case.
            0 | 1 => {
                let hold = Fault::HoldCommands { node: path, percent: rng.pick(&[30, 100]) };
                planned.push(PlannedFault { fault: hold, begins, lasts });
                let breaks = match rng.below(6) {
                    0 => Fault::ResetAll { path },
                    1 => Fault::ResetOne { path, choice: rng.next_u64() },
                    2 => Fault::PortDown { path },
                    3 | 4 => Fault::HostTimeout { path },
                    _ => Fault::BlackHole { path, at: ends(rng) },
                };
                planned.push(PlannedFault { fault: breaks, begins: begins + lasts / 2, lasts });
            }
            // All paths at once.
            2 => {
                for path in 0..paths {
                    let fault = if rng.percent(50) {
                        Fault::PortDown { path }
                    } else {
                        Fault::BlackHole { path, at: ends(rng) }
                    };
                    planned.push(PlannedFault { fault, begins: begins + rng.up_to(50 * MS), lasts });
                }
            }
            _ => planned.push(PlannedFault { fault: any_fault(rng, path, digests), begins, lasts }),
        }
    }
    if rng.percent(25) {
        let (path, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::RemovePath { path, at_once: rng.percent(50) };
        planned.push(PlannedFault { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    for _ in 0..rng.pick(&[0, 0, 1, 4]) {
        let (path, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::DisablePath { path, drains_only: rng.percent(30) };
        planned.push(PlannedFault { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    if rng.percent(20) {
        let (node, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::LoseCommands { node, percent: rng.pick(&[1, 10]) };
        planned.push(PlannedFault { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    if rng.percent(25) {
        let begins = rng.up_to(quiet * 9 / 10);
        planned.push(PlannedFault { fault: kill(rng), begins, lasts: rng.up_to(500 * MS) });
        if rng.percent(50) {
            // Often before the next daemon serves.
            let later = rng.pick(&[2000 * MS, 8000 * MS]);
            let begins = (begins + rng.up_to(later)).min(quiet * 9 / 10);
            planned.push(PlannedFault { fault: kill(rng), begins, lasts: rng.up_to(500 * MS) });
        }
    }
    for one in &mut planned {
        one.lasts = one.lasts.min(quiet.saturating_sub(one.begins));
    }
    planned
}

/// Any status of any kind, with and without DNR, in answer to some commands of a node, until `quiet`.
pub(super) fn statuses(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let count = rng.pick(&[0, 2, 6]);
    let frequent =
        [Status::INTERNAL_ERROR, Status::WRITE_FAULT, Status::INVALID_NAMESPACE, Status::COMMAND_INTERRUPTED];
    let one = |_| {
        let vendor = Status::new(rng.pick(&[3, 7]), rng.range(0xc0, 0xff) as u8);
        let status = match rng.below(10) {
            0 => vendor,
            1..=4 => rng.pick(&frequent),
            _ => rng.pick(Status::ERRORS),
        };
        let status = if rng.percent(30) { status.with_dnr() } else { status };
        let status = if rng.percent(10) { status.with_crd(1) } else { status };
        let status_fault = StatusFault { percent: rng.pick(&[2, 20, 40, 100]), status };
        let (begins, lasts) = span(rng, quiet, &[1000 * MS, 4000 * MS, 9000 * MS]);
        PlannedFault { fault: Fault::FailCommands { node: rng.index(paths), status_fault }, begins, lasts }
    };
    (0..count).map(one).collect()
}

/// A power loss of all nodes, which takes a shared cache too.
pub(super) fn power_loss(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<PlannedFault> {
    let begins = rng.up_to(quiet * 9 / 10);
    let lasts = (1000 * MS).min(quiet.saturating_sub(begins));
    let nodes = if rng.percent(40) { 0..paths } else { 0..0 };
    nodes.map(|node| PlannedFault { fault: Fault::CrashNode { node }, begins, lasts }).collect()
}

/// Outages of all paths until `quiet`, in which front-ends stop their virtqueues, or hang up and connect again and again.
pub(super) fn stops_in_outages(rng: &mut Rng, paths: usize, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 1, 2]) {
        let (begins, lasts) = (rng.up_to(quiet * 6 / 10), rng.between(1000 * MS, 6000 * MS));
        planned.extend((0..paths).map(|path| PlannedFault {
            fault: Fault::PortDown { path },
            begins: begins + rng.up_to(20 * MS),
            lasts,
        }));
        let disk = rng.index(disks);
        let many = if rng.percent(50) { rng.range(3, 8) } else { 1 };
        let is_reset = rng.percent(50);
        for nth in 0..many as u32 {
            let fault = if many > 1 { Fault::HangUp { disk, is_reset } } else { Fault::StopQueues { disk } };
            let begins = begins + lasts * (nth + 1) / (many as u32 + 1) + rng.up_to(50 * MS);
            planned.push(PlannedFault { fault, begins, lasts: rng.up_to(100 * MS) });
        }
    }
    for one in &mut planned {
        one.lasts = one.lasts.min(quiet.saturating_sub(one.begins));
    }
    planned
}

/// Faults of which the second begins soon after the first, until `quiet`. Two faults that are drawn alone rarely meet.
pub(super) fn pairs(rng: &mut Rng, paths: usize, disks: usize, quiet: Duration) -> Vec<PlannedFault> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 1, 2]) {
        let (path, disk) = (rng.index(paths), rng.index(disks));
        let stop = Fault::StopQueues { disk };
        let killed = Fault::KillDaemon { resubmits: true, exit: rng.up_to(MS) };
        let hold = Fault::HoldCommands { node: path, percent: 100 };
        let fails = StatusFault { percent: 20, status: Status::INTERNAL_PATH_ERROR };
        let lost = AnaState::PersistentLoss;
        let truncated = Fault::TruncateMemory { disk, choice: rng.next_u64() };
        // Both faults with their durations, and the longest time between their beginnings.
        let (first, lasts, delay, second, second_lasts) = rng.pick(&[
            // The second fault begins within the inherited fence.
            (killed, 10 * MS, 1000 * MS, Fault::RestartDaemon, MS),
            (killed, 10 * MS, 1000 * MS, stop, 500 * MS),
            (Fault::FailCommands { node: path, status_fault: fails }, 2000 * MS, 1000 * MS, Fault::RestartDaemon, MS),
            // Held commands fill the queue pairs.
            (hold, 3000 * MS, 500 * MS, Fault::RestartDaemon, MS),
            (
                Fault::DisablePath { path, drains_only: false },
                2000 * MS,
                500 * MS,
                Fault::SetAna { node: path, disk: None, state: lost },
                1000 * MS,
            ),
            // Flushes wait in virtqueues while their writes are lost.
            (stop, 500 * MS, 100 * MS, Fault::CrashNode { node: path }, 1000 * MS),
            // Requests are given up while they are in doubt.
            (hold, 3000 * MS, 500 * MS, truncated, 300 * MS),
        ]);
        let begins = rng.up_to(quiet * 8 / 10);
        for (fault, begins, lasts) in [(first, begins, lasts), (second, begins + rng.up_to(delay), second_lasts)] {
            planned.push(PlannedFault { fault, begins, lasts: lasts.min(quiet.saturating_sub(begins)) });
        }
    }
    planned
}
