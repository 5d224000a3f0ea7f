//! Decides: a request counts against the limits of its disk (`take`).
//!
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

mod candidates;
mod disk;
mod fair_queue;
mod flow;
mod kind;
mod limits;
mod settings;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use monotonic::Instant;

use crate::history::Pauses;
use crate::{DiskId, FlowId, Io, Tag};
pub(crate) use candidates::Place;
pub use disk::DiskSchedulerStats;
use disk::ScheduledDisk;
pub use fair_queue::Tier;
use fair_queue::{FairQueue, Member};
pub use flow::FlowStats;
use flow::{Flow, WaitingRequest};
pub use kind::{SchedulerChange, SchedulerKind, SchedulerSpec, UnknownScheduler};
pub use limits::{Balance, DiskLimits, Limits};
use settings::Settings;
pub use stats::SchedulerStats;

/// The default weight of a disk.
pub const DEFAULT_WEIGHT: u16 = 100;

/// The requests of a group that wait for a path.
#[derive(Clone, Debug)]
pub(crate) struct Scheduler {
    spec: SchedulerSpec,
    settings: Settings,
    /// The turns of the disks.
    turns: FairQueue,
    disks: Vec<ScheduledDisk>,
    flows: Vec<Flow>,
    len: usize,
    /// The queued requests that need no path.
    needs_no_path: usize,
    /// The queued requests of paused disks.
    paused: usize,
    /// Disks that limits throttle.
    throttled: usize,
    /// Flows that are exempt from limits.
    exempt: usize,
}

impl Scheduler {
    pub(crate) fn new(spec: SchedulerSpec, limits: impl Iterator<Item = Arc<DiskLimits>>) -> Self {
        let settings = Settings::new(&spec);
        Self {
            spec,
            settings,
            turns: FairQueue::new(&settings),
            disks: limits.map(|limits| ScheduledDisk::new(&settings, limits)).collect(),
            flows: Vec::new(),
            len: 0,
            needs_no_path: 0,
            paused: 0,
            throttled: 0,
            exempt: 0,
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
        self.needs_no_path == 0
    }

    /// How long limits, or the lack of a path, have paused a disk so far.
    #[inline]
    pub(crate) fn pauses(&self, now: Instant, disk: DiskId) -> Pauses {
        self.disks[disk.index()].pauses(now)
    }

    /// The queued requests of one disk.
    pub(crate) fn len_of(&self, disk: DiskId) -> usize {
        self.disks[disk.index()].queued
    }

    /// Whether all queued requests of a disk are in their first attempt, of these classes, and need a path.
    #[inline]
    pub(crate) fn are_all_of(&self, disk: DiskId, classes: [bool; 3]) -> bool {
        let disk = &self.disks[disk.index()];
        let of = |class: usize| if classes[class] { disk.first_attempts[class] } else { 0 };
        disk.queued == of(0) + of(1) + of(2)
    }

    /// The queued requests that wait only for their turn and room.
    pub(crate) fn ready(&self) -> usize {
        self.len - self.paused
    }

    /// Changes the scheduler or its parameters. The order within each flow stays. The same scheduler keeps its state.
    /// Another scheduler starts anew.
    pub(crate) fn set(&mut self, spec: SchedulerSpec) {
        let is_other = spec.kind() != self.spec.kind();
        (self.spec, self.settings) = (spec, Settings::new(&spec));
        if !is_other {
            return;
        }
        self.turns = FairQueue::new(&self.settings);
        for disk in &mut self.disks {
            disk.turns = FairQueue::new(&self.settings);
            let is_idle = disk.is_idle();
            reset(&self.settings, &mut disk.member, is_idle);
        }
        for id in 0..self.flows.len() {
            let flow = &mut self.flows[id];
            let is_idle = flow.is_idle();
            reset(&self.settings, &mut flow.member, is_idle);
            self.update_turn(FlowId(id as u16));
        }
    }

    pub(crate) fn set_weight(&mut self, disk: DiskId, weight: u16) {
        self.turns.set_weight(disk.0, &mut self.disks[disk.index()].member, weight);
    }

    pub(crate) fn push_back(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let index = usize::from(io.flow.0);
        if index >= self.flows.len() {
            self.flows.resize_with(index + 1, Flow::default);
        }
        let (flow, disk) = (&mut self.flows[index], &mut self.disks[io.disk.index()]);
        if flow.is_idle() {
            flow.disk = io.disk;
            flow.member.activate(&self.settings);
            if disk.is_idle() {
                disk.member.activate(&self.settings);
            }
        }
        assert_eq!(flow.disk, io.disk, "a flow belongs to one disk");
        let is_first = flow.queue.is_empty();
        let first_attempt = needs_path.then_some(io.op.class());
        flow.queue.push_back(WaitingRequest { tag: io.tag, bytes: io.bytes, since: now, needs_path, first_attempt });
        disk.first_attempts[io.op.class().index()] += usize::from(needs_path);
        self.count_pushed(io, needs_path);
        if is_first {
            self.update_turn(io.flow);
        }
    }

    /// Puts back a request that was taken.
    pub(crate) fn push_front(&mut self, now: Instant, io: &Io, needs_path: bool) {
        let flow = &mut self.flows[usize::from(io.flow.0)];
        let waiting = WaitingRequest { tag: io.tag, bytes: io.bytes, since: now, needs_path, first_attempt: None };
        flow.queue.push_front(waiting);
        self.count_pushed(io, needs_path);
        self.update_turn(io.flow);
        self.finished(io.flow);
    }

    fn count_pushed(&mut self, io: &Io, needs_path: bool) {
        self.len += 1;
        self.needs_no_path += usize::from(!needs_path);
        let disk = &mut self.disks[io.disk.index()];
        disk.queued += 1;
        self.paused += usize::from(disk.is_paused());
    }

    /// Changes the state of a disk, and updates the counts of throttled disks and of requests of paused disks.
    fn change<T>(&mut self, disk: DiskId, change: impl FnOnce(&mut ScheduledDisk) -> T) -> T {
        let of = &mut self.disks[disk.index()];
        self.paused -= of.paused();
        self.throttled -= usize::from(of.throttled_until().is_some());
        let result = change(of);
        self.paused += of.paused();
        self.throttled += usize::from(of.throttled_until().is_some());
        result
    }

    /// Updates the turn of a flow after a change of its queue.
    fn update_turn(&mut self, id: FlowId) {
        let flow = &mut self.flows[usize::from(id.0)];
        let (of, waits) = (flow.disk, !flow.queue.is_empty());
        let disk = &mut self.disks[of.index()];
        disk.note_next(id, flow.queue.front());
        disk.turns.set_waits(&self.settings, id.0, &mut flow.member, waits);
        self.update_turn_of_disk(of);
    }

    /// Updates the turn of a disk after a change of its queues or its pause.
    fn update_turn_of_disk(&mut self, id: DiskId) {
        let disk = &mut self.disks[id.index()];
        if disk.is_paused() {
            disk.turns.interrupt();
        }
        if self.disks.len() > 1 {
            let disk = &mut self.disks[id.index()];
            let waits = disk.has_turns();
            self.turns.set_waits(&self.settings, id.0, &mut disk.member, waits);
        }
    }

    /// Takes the request that [`Scheduler::candidate`] has just returned. Flows that were passed keep their turns.
    pub(crate) fn take(&mut self, now: Instant, place: Place) {
        let id = place.flow;
        let flow = &mut self.flows[usize::from(id.0)];
        let sent = flow.queue.pop_front().expect("the candidate is still queued");
        flow.sent(now, sent);
        let of = flow.disk;
        let has_others = self.disks.len() > 1;
        let disk = &mut self.disks[of.index()];
        self.len -= 1;
        self.needs_no_path -= usize::from(!sent.needs_path);
        self.paused -= usize::from(disk.is_paused());
        (disk.queued, disk.outstanding) = (disk.queued - 1, disk.outstanding + 1);
        if let Some(class) = sent.first_attempt {
            disk.first_attempts[class.index()] -= 1;
        }
        if disk.limits.are_set() {
            disk.limits.take(now, sent.bytes);
        }
        // A request without need of a path costs no service.
        if !sent.needs_path {
            self.update_turn(id);
            return;
        }
        disk.note_next(id, flow.queue.front());
        let cost = self.settings.cost(sent.bytes);
        disk.turns.sent(&self.settings, now, id.0, &mut flow.member, cost, !flow.queue.is_empty());
        if disk.is_paused() {
            disk.turns.interrupt();
        }
        if has_others {
            let more = disk.has_turns();
            self.turns.sent(&self.settings, now, of.0, &mut disk.member, cost, more);
        } else {
            disk.member.spend(cost);
        }
    }

    /// Takes all requests of a disk in spite of turns and limits, because they will not be sent.
    pub(crate) fn take_all_of(&mut self, disk: DiskId) -> Vec<Tag> {
        let per_disk = |flow: &FlowId| self.flows[usize::from(flow.0)].disk == disk;
        let flows: Vec<FlowId> = (0..self.flows.len() as u16).map(FlowId).filter(per_disk).collect();
        flows.into_iter().flat_map(|flow| self.take_all_of_flow(flow)).collect()
    }

    /// Takes all requests of one flow in spite of turns and limits.
    pub(crate) fn take_all_of_flow(&mut self, id: FlowId) -> Vec<Tag> {
        let Some(flow) = self.flows.get_mut(usize::from(id.0)) else { return Vec::new() };
        let taken: Vec<WaitingRequest> = flow.queue.drain(..).collect();
        flow.outstanding += taken.len() as u32;
        let (disk, count) = (flow.disk, taken.len());
        self.len -= count;
        self.needs_no_path -= taken.iter().filter(|waiting| !waiting.needs_path).count();
        self.change(disk, |disk| (disk.queued, disk.outstanding) = (disk.queued - count, disk.outstanding + count));
        for class in taken.iter().filter_map(|waiting| waiting.first_attempt) {
            self.disks[disk.index()].first_attempts[class.index()] -= 1;
        }
        self.update_turn(id);
        taken.into_iter().map(|waiting| waiting.tag).collect()
    }

    /// Takes note that a request that was taken has finished.
    pub(crate) fn finished(&mut self, id: FlowId) {
        let flow = &mut self.flows[usize::from(id.0)];
        assert!(flow.outstanding > 0, "a request finishes after it was taken");
        flow.outstanding -= 1;
        let disk = &mut self.disks[flow.disk.index()];
        disk.outstanding -= 1;
        if self.exempt > 0 && flow.is_idle() {
            self.exempt -= usize::from(disk.exempt.remove(&id.0));
        }
    }

    /// Sets whether a disk is without an eligible path.
    pub(crate) fn set_blocked(&mut self, now: Instant, disk: DiskId, is_blocked: bool) {
        self.change(disk, |disk| disk.set_blocked(now, is_blocked));
        self.update_turn_of_disk(disk);
    }

    /// Exempts the queued requests of a flow from limits.
    pub(crate) fn lift_limits_of(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get(usize::from(id.0)).filter(|flow| !flow.is_idle()) {
            self.exempt += usize::from(self.disks[flow.disk.index()].exempt.insert(id.0));
        }
    }

    /// The flows of a disk that were used.
    pub(crate) fn flows_of(&self, disk: DiskId) -> impl Iterator<Item = FlowId> + '_ {
        let flows = self.flows.iter().zip((0..).map(FlowId));
        flows.filter(move |(flow, _)| flow.is_known() && flow.disk == disk).map(|(_, id)| id)
    }

    /// The waiting requests of a flow, the first in the queue first.
    pub(crate) fn queued_in(&self, flow: FlowId) -> impl ExactSizeIterator<Item = Tag> + '_ {
        self.flows[usize::from(flow.0)].queue.iter().map(|waiting| waiting.tag)
    }

    /// Until when limits let nothing of a flow go.
    pub(crate) fn flow_throttled_until(&self, disk: DiskId, flow: FlowId) -> Option<Instant> {
        let disk = &self.disks[disk.index()];
        disk.throttled_until().filter(|_| !disk.exempt.contains(&flow.0))
    }

    /// Until when limits let nothing of a disk go. The disk may not have been asked yet.
    pub(crate) fn throttled_until(&self, now: Instant, disk: DiskId) -> Option<Instant> {
        let disk = &self.disks[disk.index()];
        disk.throttled_until().or_else(|| disk.limits.throttled_until(now))
    }

    /// When limits next let a request go if nothing happens before.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        if self.throttled == 0 {
            return None;
        }
        self.disks.iter().filter_map(ScheduledDisk::throttled_until).min()
    }

    /// Whether limits throttle a disk.
    #[inline]
    pub(crate) fn throttles(&self) -> bool {
        self.throttled > 0
    }

    /// Ends the throttling of disks that is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        for id in (0..self.disks.len() as u16).map(DiskId) {
            if self.change(id, |disk| disk.end_throttling(now)) {
                self.update_turn_of_disk(id);
            }
        }
    }

    pub(crate) fn stats(&self, now: Instant) -> SchedulerStats {
        let flows = self.flows.iter().zip((0..).map(FlowId)).filter(|(flow, _)| flow.is_known());
        SchedulerStats {
            spec: self.spec,
            disks: self
                .disks
                .iter()
                .zip((0..).map(DiskId))
                .map(|(disk, id)| disk.stats(now, id, &self.settings))
                .collect(),
            flows: flows.map(|(flow, id)| flow.stats(id, &self.settings)).collect(),
        }
    }
}

/// Resets a member for another scheduler.
fn reset(settings: &Settings, member: &mut Member, is_idle: bool) {
    *member = Member::new(member.weight());
    if !is_idle {
        member.activate(settings);
    }
}
