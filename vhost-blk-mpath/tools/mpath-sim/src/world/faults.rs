//! The beginning and the end of each fault.

use monotonic::Duration;
use mpath_core::{DiskId, Limits, PathId};
use mpath_lifecycle::DesiredState;
use nvme_tcp::wire::AnaState;

use super::World;
use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::fault::Fault;
use crate::host::Message;
use crate::target::NamespaceReport;

impl World {
    /// A fault begins.
    pub(super) fn begin_fault(&mut self, fault: Fault) {
        self.ctx.say(|| format!("begins: {fault:?}"));
        match fault {
            Fault::BlackHole { path, at } => self.ctx.net.links[path].black_hole = at,
            Fault::Delay { path, by } => self.ctx.net.links[path].extra_latency = by,
            Fault::ResetAll { path } => self.reset_path(path),
            Fault::HostTimeout { path } => {
                self.ctx.net.links[path].black_hole[Side::Target as usize] = true;
                for id in self.ctx.net.connections_of_path(path) {
                    self.ctx.clock.after(Duration::ZERO, Event::Reset(id, Side::Host));
                }
            }
            Fault::ResetOne { path, choice } => {
                if let Some(id) = self.choose(path, choice) {
                    self.ctx.net.reset(&mut self.ctx.clock, id);
                }
            }
            Fault::FreezeOne { path, choice, at } => {
                if let Some(id) = self.choose(path, choice) {
                    self.ctx.net.freeze(id, at);
                }
            }
            Fault::PortDown { path } => {
                self.ctx.net.links[path].refused = true;
                self.reset_path(path);
            }
            Fault::CloseInOrder { node, admin } => {
                let (target, ctx) = self.target();
                target.close_in_order(ctx, node, admin);
            }
            Fault::SilentPort { path, percent } => {
                self.ctx.net.links[path].silent_percent = percent;
                self.reset_path(path);
            }
            Fault::RefuseTls { path, refusal } => {
                self.target.nodes[path].tls_refusal = Some(refusal);
                self.reset_path(path);
            }
            Fault::PauseNode { node } => self.target.nodes[node].paused = true,
            Fault::CrashNode { node } => {
                self.ctx.net.links[node].refused = true;
                let (target, ctx) = self.target();
                target.crash(ctx, node);
            }
            Fault::HoldCommands { node, percent } => self.target.nodes[node].held_percent = percent,
            Fault::SlowNode { node, by } => self.target.nodes[node].extra_service = by,
            Fault::FailCommands { node, status_fault } => self.target.nodes[node].status_fault = Some(status_fault),
            Fault::LoseCommands { node, percent } => self.target.nodes[node].lost_percent = percent,
            Fault::RepeatResponses { node, percent } => self.target.nodes[node].repeated_percent = percent,
            Fault::WrongAnswers { node, fault, count } => self.target.answer_wrongly(node, fault, count),
            Fault::SpoilR2ts { node, percent, fault } => self.target.nodes[node].r2t_fault = Some((percent, fault)),
            Fault::SetAna { node, disk, state } => {
                let (target, ctx) = self.target();
                target.set_ana(ctx, node, disk, state);
            }
            Fault::ReportNamespace { node, disk, report } => {
                let (target, ctx) = self.target();
                target.report_namespace(ctx, node, disk, report);
            }
            Fault::NameOddly { path, odd } => {
                self.target.nodes[path].odd_identity = Some(odd);
                self.reset_path(path);
            }
            Fault::GrantQueues { path, most } => {
                self.target.nodes[path].io_queues = Some(most);
                self.reset_path(path);
            }
            Fault::GrowNamespace { node, disk } => {
                let (target, ctx) = self.target();
                target.grow(ctx, node, disk);
            }
            Fault::FlipBits { path, per_10k } => {
                // With TLS, a flipped bit ends its connection, and alters no answer.
                if self.plan.host.tls.is_none() {
                    self.ctx.checker.corrupted(true);
                }
                self.ctx.net.links[path].flips_per_10k = per_10k;
            }
            Fault::KillDaemon { resubmits, exit } => self.kill_daemon(resubmits, exit),
            Fault::RestartDaemon => self.stop_daemon(),
            Fault::ReplaceDisks { to_other_socket } => self.remove_disks(to_other_socket),
            Fault::HangUp { disk, is_reset } => self.hang_up(disk, is_reset),
            Fault::StopQueues { disk } => self.stop_queues(disk),
            Fault::Migrate { disk, .. } => self.begin_migration(disk),
            Fault::TruncateMemory { disk, choice } => self.truncate_memory(disk, choice),
            Fault::RemovePath { path, at_once } => self.order(path, DesiredState::Removed { at_once }),
            Fault::ResetByOperator { path } => {
                if let Some((daemon, ctx)) = self.daemon() {
                    daemon.reset(ctx, path);
                }
            }
            Fault::DisablePath { path, drains_only } => {
                self.order(path, if drains_only { DesiredState::Drained } else { DesiredState::Disabled });
            }
            Fault::SetPolicy(policy) => self.post_all(|| Message::SetPolicy(Box::new(policy.into()))),
            Fault::SetInjection { path, class, injection } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::SetInjection { path, class, injection });
            }
            Fault::SetLimits { disk, limits } => self.set_limits(disk, limits),
            Fault::UnlistNode { controller, node, .. } => self.list(controller, node, false),
            Fault::SetWeight { disk, weight } => {
                let disk = DiskId(disk as u16);
                self.post_all(|| Message::SetWeight { disk, weight });
            }
        }
    }

    /// A fault ends, at the latest when the run becomes quiet. An overlapping fault of its kind ends with it.
    pub(super) fn end_fault(&mut self, fault: Fault) {
        self.ctx.say(|| format!("ends: {fault:?}"));
        match fault {
            Fault::BlackHole { path, .. } | Fault::HostTimeout { path } => {
                self.ctx.net.links[path].black_hole = [false; 2];
                self.ctx.net.resume(&mut self.ctx.clock);
            }
            Fault::Delay { path, .. } => self.ctx.net.links[path].extra_latency = Duration::ZERO,
            Fault::ResetAll { .. }
            | Fault::ResetOne { .. }
            | Fault::RestartDaemon
            | Fault::ResetByOperator { .. }
            | Fault::GrowNamespace { .. }
            | Fault::SetPolicy(_)
            | Fault::SetWeight { .. }
            | Fault::UnlistNode { for_good: true, .. } => {}
            Fault::FreezeOne { path, .. } => {
                for id in self.ctx.net.connections_of_path(path) {
                    self.ctx.net.freeze(id, [false; 2]);
                }
                self.ctx.net.resume(&mut self.ctx.clock);
            }
            Fault::CloseInOrder { node, .. } => self.target.nodes[node].closes_in_order = false,
            Fault::SilentPort { path, .. } => self.ctx.net.links[path].silent_percent = 0,
            Fault::PortDown { path } => self.ctx.net.links[path].refused = false,
            Fault::RefuseTls { path, .. } => self.target.nodes[path].tls_refusal = None,
            Fault::PauseNode { node } => {
                let (target, ctx) = self.target();
                target.resume(ctx, node);
            }
            Fault::CrashNode { node } => {
                self.ctx.net.links[node].refused = false;
                self.target.nodes[node].is_down = false;
            }
            Fault::HoldCommands { node, .. } => self.target.nodes[node].held_percent = 0,
            Fault::SlowNode { node, .. } => self.target.nodes[node].extra_service = Duration::ZERO,
            Fault::FailCommands { node, .. } => self.target.nodes[node].status_fault = None,
            Fault::LoseCommands { node, .. } => self.target.nodes[node].lost_percent = 0,
            Fault::RepeatResponses { node, .. } => self.target.nodes[node].repeated_percent = 0,
            Fault::WrongAnswers { node, fault, .. } => self.target.answer_wrongly(node, fault, 0),
            Fault::SpoilR2ts { node, .. } => self.target.nodes[node].r2t_fault = None,
            Fault::SetAna { node, disk, .. } => {
                let (target, ctx) = self.target();
                target.set_ana(ctx, node, disk, AnaState::Optimized);
            }
            Fault::ReportNamespace { node, disk, .. } => {
                let (target, ctx) = self.target();
                target.report_namespace(ctx, node, disk, NamespaceReport::Itself);
            }
            Fault::GrantQueues { path, .. } => self.target.nodes[path].io_queues = None,
            Fault::NameOddly { path, .. } => self.target.nodes[path].odd_identity = None,
            Fault::FlipBits { path, .. } => {
                if self.plan.host.tls.is_none() {
                    self.ctx.checker.corrupted(false);
                }
                self.ctx.net.links[path].flips_per_10k = 0;
            }
            Fault::KillDaemon { .. } => self.start_daemon(),
            Fault::ReplaceDisks { .. } => self.add_disks(),
            Fault::HangUp { disk, .. } => self.connect(disk),
            Fault::StopQueues { disk } => self.start_queues(disk),
            Fault::Migrate { disk, is_cancelled } => self.end_migration(disk, is_cancelled),
            Fault::TruncateMemory { disk, .. } => self.reset_truncated(disk),
            // The path may still wait to be removed.
            Fault::RemovePath { path, .. } => {
                self.order(path, DesiredState::Removed { at_once: true });
                self.order(path, DesiredState::Enabled);
            }
            Fault::DisablePath { path, .. } => self.order(path, DesiredState::Enabled),
            Fault::SetInjection { path, .. } => {
                let path = PathId(path as u16);
                self.post_all(|| Message::ClearInjection(path));
            }
            Fault::SetLimits { disk, .. } => self.set_limits(disk, Limits::default()),
            Fault::UnlistNode { controller, node, .. } => self.list(controller, node, true),
        }
    }

    /// Sets whether a discovery controller lists a node.
    fn list(&mut self, controller: usize, node: usize, is_listed: bool) {
        if let Some((controllers, ctx)) = self.controllers() {
            controllers.list(ctx, controller, node, is_listed);
        }
    }

    fn reset_path(&mut self, path: usize) {
        self.ctx.net.connections_of_path(path).into_iter().for_each(|id| self.ctx.net.reset(&mut self.ctx.clock, id));
    }

    /// One of the connections of a path.
    fn choose(&self, path: usize, choice: u64) -> Option<ConnId> {
        let all = self.ctx.net.connections_of_path(path);
        (!all.is_empty()).then(|| all[(choice % all.len() as u64) as usize])
    }
}
