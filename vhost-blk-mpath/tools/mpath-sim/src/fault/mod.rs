//! What can go wrong, and what undoes it.

mod draw;
mod memory;

use std::time::Duration;

use mpath_core::{DiskId, Injection, Limits, OpClass, PathId, PolicyKind};
use mpath_host::DesiredState;
use nvme_tcp::target::AnswerFault;
use nvme_tcp::wire::AnaState;

pub(crate) use self::draw::{
    endings, faults, faults_of_discovery, faults_of_disks, hang_ups, hostilities, restarts, stops, truncations,
};
use crate::clock::Event;
use crate::host::Message;
use crate::net::Side;
use crate::target::{Failing, R2tFault, Shown};
use crate::world::World;

/// A fault, or a change by the operator. Paths and nodes are numbered alike. Links are numbered: first those of paths, then those of
/// discovery controllers.
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
    /// A node ends its associations in order, or only their I/O connections, and so every one that it ends for a while.
    Finish { node: usize, admin: bool },
    /// All connections of a path are reset. A percentage of those that follow are accepted and never read.
    Silent { path: usize, percent: u64 },
    /// All connections of a path are reset, and its listener is closed.
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
    /// A node loses commands, or the answers to them, and answers all others.
    Lose { node: usize, percent: u64 },
    /// A node sends responses twice.
    Repeat { node: usize, percent: u64 },
    /// A node answers a number of its next commands wrongly.
    Answer { node: usize, fault: AnswerFault, count: u32 },
    /// A node spoils its R2Ts.
    R2ts { node: usize, percent: u64, fault: R2tFault },
    /// The ANA state of all disks at a node, or of one.
    Ana { node: usize, disk: Option<usize>, state: AnaState },
    /// What a node says of a disk's namespace.
    Show { node: usize, disk: usize, shown: Shown },
    /// The namespace of a disk has grown, and a node tells of it, for good.
    Grow { node: usize, disk: usize },
    /// Bits are flipped on the way.
    Corrupt { path: usize, per_10k: u64 },
    /// The daemon is killed, and another one started in its place. Requests under way are resubmitted, or not; the kernel
    /// takes a while to close the sockets.
    Kill { resubmits: bool, exit: Duration },
    /// The daemon is ended in order, and another one started in its place.
    Restart,
    /// The front-end of a disk hangs up, with its guest or not.
    HangUp { disk: usize, is_reset: bool },
    /// The front-end of a disk stops its virtqueues, and has them run again later.
    StopQueues { disk: usize },
    /// Memory of the guest of a disk is cut off. The daemon hangs up if it comes across that, and the guest is reset.
    Truncate { disk: usize, choice: u64 },
    /// The operator removes a path, at once or else when it owes nothing, and adds it again later.
    Remove { path: usize, at_once: bool },
    /// The operator disables a path, or only drains it, and enables it later.
    Disable { path: usize, drains_only: bool },
    /// The operator changes the policy, for good.
    Policy(PolicyKind),
    /// The operator impairs a path.
    Inject { path: usize, class: Option<OpClass>, injection: Injection },
    /// The operator limits a disk.
    Limit { disk: usize, limits: Limits },
    /// The operator changes the weight of a disk, for good.
    Weight { disk: usize, weight: u16 },
    /// A discovery controller lists a node no more, until the end of the fault or for good.
    Unlist { controller: usize, node: usize, for_good: bool },
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
            Fault::Finish { node, admin } => {
                let (target, mut ctx) = self.target();
                target.finish(&mut ctx, node, admin);
            }
            Fault::Silent { path, percent } => {
                self.net.links[path].silent_percent = percent;
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
            Fault::Lose { node, percent } => self.target.nodes[node].lost_percent = percent,
            Fault::Repeat { node, percent } => self.target.nodes[node].repeated_percent = percent,
            Fault::Answer { node, fault, count } => self.target.answer_wrongly(node, fault, count),
            Fault::R2ts { node, percent, fault } => self.target.nodes[node].r2ts = Some((percent, fault)),
            Fault::Ana { node, disk, state } => {
                let (target, mut ctx) = self.target();
                target.set_ana(&mut ctx, node, disk, state);
            }
            Fault::Show { node, disk, shown } => {
                let (target, mut ctx) = self.target();
                target.show(&mut ctx, node, disk, shown);
            }
            Fault::Grow { node, disk } => {
                let (target, mut ctx) = self.target();
                target.grow(&mut ctx, node, disk);
            }
            Fault::Corrupt { path, per_10k } => {
                self.check.corrupted(true);
                self.net.links[path].corrupted = per_10k;
            }
            Fault::Kill { resubmits, exit } => self.kill_daemon(resubmits, exit),
            Fault::Restart => self.stop_daemon(),
            Fault::HangUp { disk, is_reset } => self.hang_up(disk, is_reset),
            Fault::StopQueues { disk } => self.stop_queues(disk),
            Fault::Truncate { disk, choice } => self.cut_off(disk, choice),
            Fault::Remove { path, at_once } => self.order(path, DesiredState::Removed { at_once }),
            Fault::Disable { path, drains_only } => {
                self.order(path, if drains_only { DesiredState::Drained } else { DesiredState::Disabled });
            }
            Fault::Policy(policy) => self.post_all(|| Message::SetPolicy(Box::new(policy.into()))),
            Fault::Inject { path, class, injection } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::SetInjection { path, class, injection });
            }
            Fault::Limit { disk, limits } => self.limit(disk, limits),
            Fault::Unlist { controller, node, .. } => self.list(controller, node, false),
            Fault::Weight { disk, weight } => {
                let disk = DiskId(disk as u16);
                self.post_all(|| Message::SetWeight { disk, weight });
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
            Fault::ResetAll { .. }
            | Fault::ResetOne { .. }
            | Fault::Restart
            | Fault::Grow { .. }
            | Fault::Policy(_)
            | Fault::Weight { .. }
            | Fault::Unlist { for_good: true, .. } => {}
            Fault::FreezeOne { path, .. } => {
                for id in self.net.of_path(path) {
                    self.net.freeze(id, [false; 2]);
                }
                self.net.resume(&mut self.clock);
            }
            Fault::Finish { node, .. } => self.target.nodes[node].finishes = false,
            Fault::Silent { path, .. } => self.net.links[path].silent_percent = 0,
            Fault::PortDown { path } => self.net.links[path].refused = false,
            Fault::Pause { node } => {
                let (target, mut ctx) = self.target();
                target.resume(&mut ctx, node);
            }
            Fault::Crash { node } => {
                self.net.links[node].refused = false;
                self.target.nodes[node].is_down = false;
            }
            Fault::Hold { node, .. } => self.target.nodes[node].held_percent = 0,
            Fault::Slow { node, .. } => self.target.nodes[node].extra_service = Duration::ZERO,
            Fault::Fail { node, .. } => self.target.nodes[node].failing = None,
            Fault::Lose { node, .. } => self.target.nodes[node].lost_percent = 0,
            Fault::Repeat { node, .. } => self.target.nodes[node].repeated_percent = 0,
            Fault::Answer { node, fault, .. } => self.target.answer_wrongly(node, fault, 0),
            Fault::R2ts { node, .. } => self.target.nodes[node].r2ts = None,
            Fault::Ana { node, disk, .. } => {
                let (target, mut ctx) = self.target();
                target.set_ana(&mut ctx, node, disk, AnaState::Optimized);
            }
            Fault::Show { node, disk, .. } => {
                let (target, mut ctx) = self.target();
                target.show(&mut ctx, node, disk, Shown::Itself);
            }
            Fault::Corrupt { path, .. } => {
                self.check.corrupted(false);
                self.net.links[path].corrupted = 0;
            }
            Fault::Kill { .. } => self.start_daemon(),
            Fault::HangUp { disk, .. } => self.connect(disk),
            Fault::StopQueues { disk } => self.start_queues(disk),
            Fault::Truncate { disk, .. } => self.reset_cut_off(disk),
            // If it is not gone yet it is now.
            Fault::Remove { path, .. } => {
                self.order(path, DesiredState::Removed { at_once: true });
                self.order(path, DesiredState::Enabled);
            }
            Fault::Disable { path, .. } => self.order(path, DesiredState::Enabled),
            Fault::Inject { path, .. } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::ClearInjection(path));
            }
            Fault::Limit { disk, .. } => self.limit(disk, Limits::default()),
            Fault::Unlist { controller, node, .. } => self.list(controller, node, true),
        }
    }

    fn list(&mut self, controller: usize, node: usize, is_listed: bool) {
        if let Some((controllers, mut ctx)) = self.controllers() {
            controllers.list(&mut ctx, controller, node, is_listed);
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
