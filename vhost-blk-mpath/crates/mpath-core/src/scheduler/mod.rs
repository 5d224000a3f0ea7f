//! Schedulers: the order in which disks and flows are served. Disks take turns by weight, and the virtqueues of a
//! disk take turns within the disk's service. Both levels run the same code ([`fair_queue`]) with the same
//! [`settings`].
//!
//! A flow is a virtqueue: first in, first out under every scheduler. A disk that is throttled by its limits, or has
//! no path, leaves its level as a whole ([`disk`]).
//!
//! The dispatcher walks the flows in order ([`Scheduler::candidate`]) and takes the first flow with a request that
//! finds a path. Flows without a path for their request keep their turns. A decision takes O(log n) comparisons for n
//! flows.

mod disk;
mod flow;
mod kind;
mod level;
#[cfg(test)]
mod limited;
mod limits;
#[cfg(test)]
mod properties;
mod rule;
mod stats;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::Arc;
use std::time::Instant;

use crate::{DiskId, FlowId, Io, Tag};
use disk::Disk;
pub use disk::DiskTurns;
pub use flow::FlowStats;
use flow::{Flow, Waiting};
pub use kind::{SchedulerChange, SchedulerKind, SchedulerSpec, UnknownScheduler};
pub use level::Tier;
use level::{Level, Member};
pub use limits::{Balance, DiskLimits, Limits};
use rule::Rule;
pub use stats::SchedulerStats;
pub(crate) use walk::Place;

/// The default weight of a disk.
pub const DEFAULT_WEIGHT: u16 = 100;

/// The requests of a group that wait for a path.
#[derive(Debug)]
pub(crate) struct Scheduler {
    spec: SchedulerSpec,
    rule: Rule,
    /// The turns of the disks.
    level: Level,
    disks: Vec<Disk>,
    flows: Vec<Flow>,
    len: usize,
    /// The queued requests that need no path.
    without_path: usize,
    /// The queued requests of paused disks.
    kept: usize,
    /// Flows that are exempt from limits.
    lifted: usize,
}

impl Scheduler {
    pub(crate) fn new(spec: SchedulerSpec, limits: impl Iterator<Item = Arc<DiskLimits>>) -> Self {
        let rule = Rule::new(&spec);
        Self {
            spec,
            rule,
            level: Level::new(&rule),
            disks: limits.map(|limits| Disk::new(&rule, limits)).collect(),
            flows: Vec::new(),
            len: 0,
            without_path: 0,
            kept: 0,
            lifted: 0,
        }
    }

    pub(crate) fn spec(&self) -> &SchedulerSpec {
        &self.spec
    }

    /// Queued requests.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether every queued request needs a path.
    pub(crate) fn all_need_paths(&self) -> bool {
        self.without_path == 0
    }

    /// The queued requests of one disk.
    pub(crate) fn len_of(&self, disk: DiskId) -> usize {
        self.disks[disk.index()].queued
    }

    /// The queued requests that wait only for their turn and room.
    pub(crate) fn ready(&self) -> usize {
        self.len - self.kept
    }

    /// Changes the scheduler or its parameters. The order within each flow stays. The same scheduler keeps its state.
    /// Another scheduler starts anew.
    pub(crate) fn set(&mut self, spec: SchedulerSpec) {
        let is_other = spec.kind() != self.spec.kind();
        (self.spec, self.rule) = (spec, Rule::new(&spec));
        if !is_other {
            return;
        }
        self.level = Level::new(&self.rule);
        for disk in &mut self.disks {
            disk.level = Level::new(&self.rule);
            let is_idle = disk.is_idle();
            renew(&self.rule, &mut disk.member, is_idle);
        }
        for id in 0..self.flows.len() {
            let flow = &mut self.flows[id];
            let is_idle = flow.is_idle();
            renew(&self.rule, &mut flow.member, is_idle);
            self.refile(FlowId(id as u16));
        }
    }

    pub(crate) fn set_weight(&mut self, disk: DiskId, weight: u16) {
        self.level.set_weight(disk.0, &mut self.disks[disk.index()].member, weight);
    }

    pub(crate) fn push_back(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let index = usize::from(io.flow.0);
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        let (flow, disk) = (&mut self.flows[index], &mut self.disks[io.disk.index()]);
        if flow.is_idle() {
            flow.disk = io.disk;
            flow.member.activate(&self.rule);
            if disk.is_idle() {
                disk.member.activate(&self.rule);
            }
        }
        assert_eq!(flow.disk, io.disk, "a flow belongs to one disk");
        flow.queue.push_back(Waiting { tag: io.tag, bytes: io.bytes, since: now, needs_path });
        self.pushed(io, needs_path);
    }

    /// Puts back a request that was taken.
    pub(crate) fn push_front(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let flow = &mut self.flows[usize::from(io.flow.0)];
        flow.queue.push_front(Waiting { tag: io.tag, bytes: io.bytes, since: now, needs_path });
        self.pushed(io, needs_path);
        self.finished(io.flow);
    }

    fn pushed(&mut self, io: &Io, needs_path: bool) {
        self.len += 1;
        self.without_path += usize::from(!needs_path);
        self.change(io.disk, |disk| disk.queued += 1);
        self.refile(io.flow);
    }

    /// Changes the state of a disk, and updates the count of requests of paused disks.
    fn change<T>(&mut self, disk: DiskId, change: impl FnOnce(&mut Disk) -> T) -> T {
        let of = &mut self.disks[disk.index()];
        self.kept -= of.kept();
        let result = change(of);
        self.kept += of.kept();
        result
    }

    /// Updates the turn of a flow after a change of its queue.
    fn refile(&mut self, id: FlowId) {
        let flow = &mut self.flows[usize::from(id.0)];
        let disk = &mut self.disks[flow.disk.index()];
        let next = flow.queue.front();
        if next.is_some_and(|next| !next.needs_path) {
            disk.without_path.insert(id.0);
        } else {
            disk.without_path.remove(&id.0);
        }
        let (level, waits) = (&mut disk.level, next.is_some());
        level.set_waits(&self.rule, id.0, &mut flow.member, waits);
        let disk = flow.disk;
        self.refile_disk(disk);
    }

    /// Updates the turn of a disk after a change of its queues or its pause.
    fn refile_disk(&mut self, id: DiskId) {
        let disk = &mut self.disks[id.index()];
        if disk.is_kept() {
            disk.level.interrupt();
        }
        let waits = disk.has_turns();
        self.level.set_waits(&self.rule, id.0, &mut disk.member, waits);
    }

    /// Takes the request that [`Scheduler::candidate`] has just returned. Flows that were passed keep their turns.
    pub(crate) fn take(&mut self, now: Instant, place: Place) {
        let id = place.flow();
        let flow = &mut self.flows[usize::from(id.0)];
        let sent = flow.queue.pop_front().expect("the candidate is still queued");
        flow.sent(now, sent);
        let of = flow.disk;
        self.len -= 1;
        self.without_path -= usize::from(!sent.needs_path);
        self.change(of, |disk| (disk.queued, disk.outstanding) = (disk.queued - 1, disk.outstanding + 1));
        let disk = &mut self.disks[of.index()];
        if disk.limits.are_set() {
            disk.limits.take(now, sent.bytes);
        }
        // A request without need of a path costs no service.
        if sent.needs_path {
            let (cost, flow) = (self.rule.cost(sent.bytes), &mut self.flows[usize::from(id.0)]);
            disk.level.sent(&self.rule, now, id.0, &mut flow.member, cost, !flow.queue.is_empty());
            let more = disk.has_turns();
            self.level.sent(&self.rule, now, of.0, &mut disk.member, cost, more);
        }
        self.refile(id);
    }

    /// Takes all requests of a disk in spite of turns and limits, because they will not be sent.
    pub(crate) fn take_all_of(&mut self, disk: DiskId) -> Vec<Tag> {
        let of_disk = |flow: &FlowId| self.flows[usize::from(flow.0)].disk == disk;
        let flows: Vec<FlowId> = (0..self.flows.len() as u16).map(FlowId).filter(of_disk).collect();
        flows.into_iter().flat_map(|flow| self.take_all_of_flow(flow)).collect()
    }

    /// Takes all requests of one flow in spite of turns and limits.
    pub(crate) fn take_all_of_flow(&mut self, id: FlowId) -> Vec<Tag> {
        let Some(flow) = self.flows.get_mut(usize::from(id.0)) else { return Vec::new() };
        let taken: Vec<Waiting> = flow.queue.drain(..).collect();
        flow.outstanding += taken.len() as u32;
        let (disk, count) = (flow.disk, taken.len());
        self.len -= count;
        self.without_path -= taken.iter().filter(|waiting| !waiting.needs_path).count();
        self.change(disk, |disk| (disk.queued, disk.outstanding) = (disk.queued - count, disk.outstanding + count));
        self.refile(id);
        taken.into_iter().map(|waiting| waiting.tag).collect()
    }

    /// A request that was taken has finished.
    pub(crate) fn finished(&mut self, id: FlowId) {
        let flow = &mut self.flows[usize::from(id.0)];
        assert!(flow.outstanding > 0, "a request finishes after it was taken");
        flow.outstanding -= 1;
        let disk = &mut self.disks[flow.disk.index()];
        disk.outstanding -= 1;
        if self.lifted > 0 && flow.is_idle() {
            self.lifted -= usize::from(disk.lifted.remove(&id.0));
        }
    }

    /// Sets whether a disk is without an eligible path.
    pub(crate) fn set_blocked(&mut self, disk: DiskId, blocked: bool) {
        self.change(disk, |disk| disk.blocked = blocked);
        self.refile_disk(disk);
    }

    /// Exempts the queued requests of a flow from limits.
    pub(crate) fn lift_limits_of(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get(usize::from(id.0)).filter(|flow| !flow.is_idle()) {
            self.lifted += usize::from(self.disks[flow.disk.index()].lifted.insert(id.0));
        }
    }

    /// When limits next let a request go if nothing happens before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.disks.iter().filter_map(Disk::closed_until).min()
    }

    /// Ends the throttling of disks that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for id in (0..self.disks.len() as u16).map(DiskId) {
            if self.change(id, |disk| disk.opens(now)) {
                self.refile_disk(id);
            }
        }
    }

    pub(crate) fn stats(&self, now: Instant) -> SchedulerStats {
        let flows = self.flows.iter().zip((0..).map(FlowId)).filter(|(flow, _)| flow.is_known());
        SchedulerStats {
            spec: self.spec,
            disks: self.disks.iter().zip((0..).map(DiskId)).map(|(disk, id)| disk.turns(now, id, &self.rule)).collect(),
            flows: flows.map(|(flow, id)| flow.stats(id, &self.rule)).collect(),
        }
    }
}

/// Resets a member for another scheduler.
fn renew(rule: &Rule, member: &mut Member, is_idle: bool) {
    *member = Member::new(member.weight());
    if !is_idle {
        member.activate(rule);
    }
}
