//! Which faults befall a run.

use std::num::NonZeroU64;
use std::time::Duration;

use mpath_core::{Direction, Distribution, InjectedError, Injection, IoError, Limits, OpClass, Outcome, PolicyKind};
use nvme_tcp::target::AnswerFault;
use nvme_tcp::wire::{AnaState, Status};

use super::Fault;
use crate::controllers::ControllersPlan;
use crate::plan::Planned;
use crate::rng::Rng;
use crate::target::{Failing, R2tFault, Shown};

const MS: Duration = Duration::from_millis(1);

const STATES: [AnaState; 4] =
    [AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change, AnaState::PersistentLoss];

fn ends(rng: &mut Rng) -> [bool; 2] {
    rng.pick(&[[true, true], [true, true], [true, false], [false, true]])
}

fn any(rng: &mut Rng, path: usize, digests: bool) -> Fault {
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
        0 | 1 => Fault::Hole { path, at: ends(rng) },
        2 => Fault::Late { path, by: rng.pick(&[20 * MS, 300 * MS, 3000 * MS]) },
        3 => Fault::ResetAll { path },
        4 => Fault::ResetOne { path, choice: rng.next_u64() },
        5 => Fault::FreezeOne { path, choice: rng.next_u64(), at: ends(rng) },
        6 => Fault::PortDown { path },
        7 => Fault::Pause { node: path },
        8 => Fault::Crash { node: path },
        9 => Fault::Hold { node: path, percent: rng.pick(&[5, 30, 100]) },
        10 => Fault::Slow { node: path, by: rng.pick(&[5 * MS, 100 * MS]) },
        11 => {
            let failing = Failing { percent: rng.pick(&[2, 20, 100]), status: rng.pick(&statuses) };
            Fault::Fail { node: path, failing }
        }
        12 => Fault::Ana { node: path, disk: None, state: rng.pick(&STATES) },
        13 => Fault::Policy(rng.pick(&PolicyKind::ALL)),
        14 => {
            let class = rng.pick(&[None, None, Some(OpClass::Read), Some(OpClass::Write), Some(OpClass::Other)]);
            Fault::Inject { path, class, injection: injection(rng) }
        }
        15 => Fault::Repeat { node: path, percent: rng.pick(&[1, 10]) },
        _ => Fault::Corrupt { path, per_10k: rng.pick(&[1, 20, 500]) },
    }
}

/// One kind, or two.
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
                let retry = Outcome::Retry { after: Duration::ZERO };
                let outcome = rng.pick(&[Outcome::PathError, retry, Outcome::Failed(IoError::Io)]);
                injection.error = Some(InjectedError { per_million: rng.pick(&[20_000, 200_000, 1_000_000]), outcome });
            }
        }
    }
    injection
}

fn kill(rng: &mut Rng) -> Fault {
    // At once, or almost as late as a daemon counts on.
    let exit = if rng.percent(70) { rng.up_to(MS) } else { rng.between(400 * MS, 490 * MS) };
    Fault::Kill { resubmits: rng.percent(50), exit }
}

/// What concerns one disk; with one that is spared, nothing that ends an association.
fn any_of_disk(rng: &mut Rng, node: usize, disk: usize, spared: bool) -> Fault {
    match rng.below(10) {
        0..=3 => Fault::Ana { node, disk: Some(disk), state: rng.pick(&STATES) },
        4..=6 => Fault::Show {
            node,
            disk,
            shown: if spared { Shown::Nothing } else { rng.pick(&[Shown::Nothing, Shown::Another]) },
        },
        7 | 8 => Fault::Limit { disk, limits: limits(rng) },
        _ => Fault::Weight { disk, weight: rng.pick(&[1, 10, 100, 1000]) },
    }
}

/// Limits of requests, of bytes, or of both.
fn limits(rng: &mut Rng) -> Limits {
    let iops = NonZeroU64::new(rng.pick(&[0, 10, 50, 500]));
    let bytes_per_s = NonZeroU64::new(rng.pick(&[0, 16 << 10, 1 << 20]));
    Limits { iops, bytes_per_s, burst: rng.pick(&[10 * MS, 100 * MS, 1000 * MS]) }
}

/// Faults of single disks until `quiet`. They spare one disk, whose paths all stay.
pub(crate) fn faults_of_disks(
    rng: &mut Rng,
    paths: usize,
    disks: usize,
    spared: Option<usize>,
    quiet: Duration,
) -> Vec<Planned> {
    let concerned: Vec<usize> = (0..disks).filter(|disk| Some(*disk) != spared).collect();
    let many = if spared.is_some() { rng.pick(&[6, 12]) } else { rng.pick(&[0, 2, 6]) * disks };
    // A namespace that was not there when a path was connected would end its association when it is.
    let first = if spared.is_some() { 1000 * MS } else { Duration::ZERO };
    let one = |_| {
        let begins = rng.between(first, quiet * 9 / 10);
        let longest = rng.pick(&[200 * MS, 1000 * MS, 4000 * MS, 9000 * MS]);
        let lasts = rng.between(longest / 4, longest).min(quiet.saturating_sub(begins));
        let (node, disk) = (rng.index(paths), rng.pick(&concerned));
        Planned { fault: any_of_disk(rng, node, disk, spared.is_some()), begins, lasts }
    };
    (0..many).map(one).collect()
}

/// Faults of discovery controllers until `quiet`, and paths that the operator removes meanwhile. The first controller always
/// lists path 0.
pub(crate) fn faults_of_discovery(rng: &mut Rng, plan: &ControllersPlan, quiet: Duration) -> Vec<Planned> {
    let (many, paths) = (plan.lists.len(), plan.configured.len());
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[4, 8, 16]) {
        let begins = rng.up_to(quiet * 9 / 10);
        let longest = rng.pick(&[50 * MS, 1000 * MS, 8000 * MS]);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        let mut add = |fault| planned.push(Planned { fault, begins, lasts });
        match rng.below(8) {
            0 => add(Fault::Remove { path: rng.index(paths), at_once: rng.percent(50) }),
            1 | 2 => {
                let path = paths + rng.index(many);
                add(match rng.below(7) {
                    0 | 1 => Fault::PortDown { path },
                    2 | 3 => Fault::Hole { path, at: [true; 2] },
                    4 => Fault::Silent { path, percent: 50 },
                    5 => Fault::CutOff { path },
                    _ => Fault::Late { path, by: rng.up_to(3000 * MS) },
                });
            }
            _ => {
                let (node, for_good) = (rng.index(paths), rng.percent(20));
                let listing =
                    (0..many).filter(|&controller| plan.lists[controller][node] && (controller, node) != (0, 0));
                listing.for_each(|controller| add(Fault::Unlist { controller, node, for_good }));
            }
        }
    }
    planned
}

/// Front-ends that hang up until `quiet`.
pub(crate) fn hang_ups(rng: &mut Rng, disks: usize, quiet: Duration) -> Vec<Planned> {
    let many = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let fault = Fault::HangUp { disk: rng.index(disks), is_reset: rng.percent(50) };
        let begins = rng.up_to(quiet * 9 / 10);
        let longest = rng.pick(&[MS, 200 * MS, 2000 * MS]);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        Planned { fault, begins, lasts }
    };
    (0..many).map(one).collect()
}

/// Virtqueues that stop and start while their front-end stays, until `quiet`.
pub(crate) fn stops(rng: &mut Rng, disks: usize, quiet: Duration) -> Vec<Planned> {
    let many = rng.pick(&[0, 0, 1, 4]);
    let one = |_| {
        let begins = rng.up_to(quiet * 9 / 10);
        let longest = rng.pick(&[MS, 200 * MS, 2000 * MS]);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        Planned { fault: Fault::StopQueues { disk: rng.index(disks) }, begins, lasts }
    };
    (0..many).map(one).collect()
}

/// Memory of guests that is cut off until `quiet`.
pub(crate) fn truncations(rng: &mut Rng, disks: usize, spared: Option<usize>, quiet: Duration) -> Vec<Planned> {
    let many = rng.pick(&[0, 0, 0, 0, 0, 0, 1, 4]);
    let concerned: Vec<_> = (0..disks).filter(|disk| Some(*disk) != spared).collect();
    let one = |_| {
        let fault = Fault::Truncate { disk: rng.pick(&concerned), choice: rng.next_u64() };
        let begins = rng.up_to(quiet * 9 / 10);
        let longest = rng.pick(&[300 * MS, 1000 * MS, 4000 * MS]);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        Planned { fault, begins, lasts }
    };
    (0..many).map(one).collect()
}

/// Daemons that are replaced in order.
pub(crate) fn restarts(rng: &mut Rng, quiet: Duration) -> Vec<Planned> {
    let many = rng.pick(&[0, 0, 0, 1, 3]);
    let one = |_| Planned { fault: Fault::Restart, begins: rng.up_to(quiet * 9 / 10), lasts: Duration::ZERO };
    (0..many).map(one).collect()
}

/// Connections that nodes end in order until `quiet`, often while they hold commands, and connections that are accepted and never read.
pub(crate) fn endings(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<Planned> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[0, 0, 1, 4]) {
        let (path, longest) = (rng.index(paths), rng.pick(&[200 * MS, 2000 * MS, 9000 * MS]));
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.up_to(longest).min(quiet.saturating_sub(begins));
        if rng.percent(50) {
            let hold = Fault::Hold { node: path, percent: rng.pick(&[0, 30, 100]) };
            planned.push(Planned { fault: hold, begins: begins.saturating_sub(200 * MS), lasts: 200 * MS });
            let fault = Fault::Finish { node: path, admin: rng.percent(50) };
            planned.push(Planned { fault, begins, lasts });
        } else {
            let fault = Fault::Silent { path, percent: rng.pick(&[50, 100]) };
            planned.push(Planned { fault, begins, lasts });
        }
    }
    planned
}

/// What hostile nodes do until `quiet`.
pub(crate) fn hostilities(rng: &mut Rng, paths: usize, quiet: Duration) -> Vec<Planned> {
    let many = rng.pick(&[0, 0, 2, 6]);
    let one = |_| {
        let node = rng.index(paths);
        let fault = if rng.percent(40) {
            let fault = rng.pick(&[AnswerFault::Short, AnswerFault::Twice]);
            Fault::Answer { node, fault, count: rng.pick(&[1, 3]) }
        } else {
            Fault::R2ts { node, percent: rng.pick(&[5, 50, 100]), fault: rng.pick(&R2tFault::ALL) }
        };
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.up_to(2000 * MS).min(quiet.saturating_sub(begins));
        Planned { fault, begins, lasts }
    };
    (0..many).map(one).collect()
}

/// Everything that befalls a run until `quiet`, but for what concerns single disks.
pub(crate) fn faults(rng: &mut Rng, paths: usize, quiet: Duration, digests: bool) -> Vec<Planned> {
    let mut planned = Vec::new();
    for _ in 0..rng.pick(&[3, 8, 16, 24]) {
        let begins = rng.up_to(quiet * 9 / 10);
        let lasts = rng.pick(&[5 * MS, 200 * MS, 1000 * MS, 4000 * MS]);
        let lasts = rng.between(lasts / 4, lasts);
        let path = rng.index(paths);
        match rng.below(10) {
            // A command held by its node while the path breaks: what fences are for.
            0 | 1 => {
                let hold = Fault::Hold { node: path, percent: rng.pick(&[30, 100]) };
                planned.push(Planned { fault: hold, begins, lasts });
                let breaks = match rng.below(6) {
                    0 => Fault::ResetAll { path },
                    1 => Fault::ResetOne { path, choice: rng.next_u64() },
                    2 => Fault::PortDown { path },
                    3 | 4 => Fault::CutOff { path },
                    _ => Fault::Hole { path, at: ends(rng) },
                };
                planned.push(Planned { fault: breaks, begins: begins + lasts / 2, lasts });
            }
            // All paths at once.
            2 => {
                for path in 0..paths {
                    let fault =
                        if rng.percent(50) { Fault::PortDown { path } } else { Fault::Hole { path, at: ends(rng) } };
                    planned.push(Planned { fault, begins: begins + rng.up_to(50 * MS), lasts });
                }
            }
            _ => planned.push(Planned { fault: any(rng, path, digests), begins, lasts }),
        }
    }
    if rng.percent(25) {
        let (path, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::Remove { path, at_once: rng.percent(50) };
        planned.push(Planned { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    for _ in 0..rng.pick(&[0, 0, 1, 4]) {
        let (path, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::Disable { path, drains_only: rng.percent(30) };
        planned.push(Planned { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    if rng.percent(20) {
        let (node, begins) = (rng.index(paths), rng.up_to(quiet * 9 / 10));
        let fault = Fault::Lose { node, percent: rng.pick(&[1, 10]) };
        planned.push(Planned { fault, begins, lasts: rng.up_to(4000 * MS) });
    }
    if rng.percent(25) {
        let begins = rng.up_to(quiet * 9 / 10);
        planned.push(Planned { fault: kill(rng), begins, lasts: rng.up_to(500 * MS) });
        if rng.percent(50) {
            // Often before the next daemon serves.
            let later = rng.pick(&[2000 * MS, 8000 * MS]);
            let begins = (begins + rng.up_to(later)).min(quiet * 9 / 10);
            planned.push(Planned { fault: kill(rng), begins, lasts: rng.up_to(500 * MS) });
        }
    }
    for one in &mut planned {
        one.lasts = one.lasts.min(quiet.saturating_sub(one.begins));
    }
    planned
}
