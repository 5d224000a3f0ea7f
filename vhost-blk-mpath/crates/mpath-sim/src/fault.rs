//! What can go wrong, and what undoes it.

use std::num::NonZeroU64;
use std::time::Duration;

use mpath_core::{Direction, Distribution, InjectedError, Injection, IoError, OpClass, Outcome, PathId, PolicyKind};
use nvme_tcp::wire::{AnaState, Status};

use crate::clock::Event;
use crate::host::Message;
use crate::net::Side;
use crate::plan::Planned;
use crate::rng::Rng;
use crate::target::Failing;
use crate::world::World;

/// A fault, or a change by the operator. Paths and nodes are numbered alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing arrives any more at these ends of a path: target, host, or both.
    Hole { path: usize, at: [bool; 2] },
    /// Every packet takes this much longer.
    Late { path: usize, by: Duration },
    /// All connections of a path are reset.
    ResetAll { path: usize },
    /// The host's kernel gives up all connections of a path, and the target hears nothing of it.
    CutOff { path: usize },
    /// One connection of a path is reset.
    ResetOne { path: usize, choice: u64 },
    /// One connection of a path moves nothing to these ends.
    FreezeOne { path: usize, choice: u64, at: [bool; 2] },
    /// All connections of a path are reset, and nobody listens.
    PortDown { path: usize },
    /// A node's processor stands still.
    Pause { node: usize },
    /// A node loses power and with it its cache.
    Crash { node: usize },
    /// A node holds many commands for seconds.
    Hold { node: usize, percent: u64 },
    /// A node is slow.
    Slow { node: usize, by: Duration },
    /// A node answers with errors.
    Fail { node: usize, failing: Failing },
    /// A node sends responses twice.
    Repeat { node: usize, percent: u64 },
    /// The ANA state of a node.
    Ana { node: usize, state: AnaState },
    /// Bits are flipped on the way.
    Corrupt { path: usize, per_10k: u64 },
    /// The daemon is killed, and another one started in its place. What was under way is asked again, or is not; the kernel
    /// takes a while to close the sockets.
    Kill { resubmits: bool, exit: Duration },
    /// The operator removes a path at once, and adds it again later.
    Remove { path: usize },
    /// The operator changes the policy, for good.
    Policy(PolicyKind),
    /// The operator impairs a path.
    Inject { path: usize, class: Option<OpClass>, injection: Injection },
}

const MS: Duration = Duration::from_millis(1);

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
    let states = [AnaState::NonOptimized, AnaState::Inaccessible, AnaState::Change, AnaState::PersistentLoss];
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
        12 => Fault::Ana { node: path, state: rng.pick(&states) },
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

/// Everything that befalls a run until `quiet`.
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
        planned.push(Planned { fault: Fault::Remove { path }, begins, lasts: rng.up_to(4000 * MS) });
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

impl World {
    /// A fault begins.
    pub(crate) fn begin(&mut self, fault: Fault) {
        self.say(|| format!("begins: {fault:?}"));
        match fault {
            Fault::Hole { path, at } => self.net.links[path].hole = at,
            Fault::Late { path, by } => self.net.links[path].extra_latency = by,
            Fault::ResetAll { path } => self.reset_path(path),
            Fault::CutOff { path } => {
                self.net.links[path].hole[Side::Target as usize] = true;
                for id in self.net.of_path(path) {
                    self.clock.after(Duration::ZERO, Event::Reset(id, Side::Host));
                }
            }
            Fault::ResetOne { path, choice } => {
                if let Some(id) = self.choose(path, choice) {
                    self.net.reset(&mut self.clock, id);
                }
            }
            Fault::FreezeOne { path, choice, at } => {
                if let Some(id) = self.choose(path, choice) {
                    self.net.freeze(id, at);
                }
            }
            Fault::PortDown { path } => {
                self.net.links[path].refused = true;
                self.reset_path(path);
            }
            Fault::Pause { node } => self.target.nodes[node].paused = true,
            Fault::Crash { node } => {
                self.net.links[node].refused = true;
                let (target, mut ctx) = self.target();
                target.crash(&mut ctx, node);
            }
            Fault::Hold { node, percent } => self.target.nodes[node].held_percent = percent,
            Fault::Slow { node, by } => self.target.nodes[node].extra_service = by,
            Fault::Fail { node, failing } => self.target.nodes[node].failing = Some(failing),
            Fault::Repeat { node, percent } => self.target.nodes[node].repeated_percent = percent,
            Fault::Ana { node, state } => {
                let (target, mut ctx) = self.target();
                target.set_ana(&mut ctx, node, state);
            }
            Fault::Corrupt { path, per_10k } => self.net.links[path].corrupted = per_10k,
            Fault::Kill { resubmits, exit } => self.kill_daemon(resubmits, exit),
            Fault::Remove { path } => self.want_path(path, false),
            Fault::Policy(policy) => self.post_all(|| Message::SetPolicy(policy)),
            Fault::Inject { path, class, injection } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::SetInjection { path, class, injection });
            }
        }
    }

    /// A fault ends, at the latest when the run becomes quiet. What an overlapping one began ends with it.
    pub(crate) fn end(&mut self, fault: Fault) {
        self.say(|| format!("ends: {fault:?}"));
        match fault {
            Fault::Hole { path, .. } | Fault::CutOff { path } => {
                self.net.links[path].hole = [false; 2];
                self.net.resume(&mut self.clock);
            }
            Fault::Late { path, .. } => self.net.links[path].extra_latency = Duration::ZERO,
            Fault::ResetAll { .. } | Fault::ResetOne { .. } | Fault::Policy(_) => {}
            Fault::FreezeOne { path, .. } => {
                for id in self.net.of_path(path) {
                    self.net.freeze(id, [false; 2]);
                }
                self.net.resume(&mut self.clock);
            }
            Fault::PortDown { path } => self.net.links[path].refused = false,
            Fault::Pause { node } => {
                let (target, mut ctx) = self.target();
                target.resume(&mut ctx, node);
            }
            Fault::Crash { node } => self.net.links[node].refused = false,
            Fault::Hold { node, .. } => self.target.nodes[node].held_percent = 0,
            Fault::Slow { node, .. } => self.target.nodes[node].extra_service = Duration::ZERO,
            Fault::Fail { node, .. } => self.target.nodes[node].failing = None,
            Fault::Repeat { node, .. } => self.target.nodes[node].repeated_percent = 0,
            Fault::Ana { node, .. } => {
                let (target, mut ctx) = self.target();
                target.set_ana(&mut ctx, node, AnaState::Optimized);
            }
            Fault::Corrupt { path, .. } => self.net.links[path].corrupted = 0,
            Fault::Kill { .. } => self.start_daemon(),
            Fault::Remove { path } => self.want_path(path, true),
            Fault::Inject { path, .. } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::ClearInjection(path));
            }
        }
    }

    fn reset_path(&mut self, path: usize) {
        self.net.of_path(path).into_iter().for_each(|id| self.net.reset(&mut self.clock, id));
    }

    fn choose(&self, path: usize, choice: u64) -> Option<crate::net::ConnId> {
        let all = self.net.of_path(path);
        (!all.is_empty()).then(|| all[(choice % all.len() as u64) as usize])
    }
}

/// A hole keeps bytes from the end it names.
const _: () = assert!(Side::Host as usize == 0 && Side::Target as usize == 1);
