//! One disk: its limits, its weight, and the turns of its virtqueues.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::level::{Level, Member, Tier};
use super::rule::Rule;
use super::{Balance, DEFAULT_WEIGHT, DiskLimits, Limits};
use crate::{DiskId, FlowId};

/// A disk that is *kept* sends nothing, as its limits are used up or it has no path. It leaves its level as a whole, and its flows keep
/// their places. Exceptions go all the same: requests that need no path, and flows whose limits were lifted.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) limits: Arc<DiskLimits>,
    /// As of which change of the limits they were asked, and until when they let nothing go.
    change: u64,
    closed_until: Option<Instant>,
    closed_since: Option<Instant>,
    throttled: Duration,
    /// It has no path.
    pub(super) blocked: bool,
    /// Among the disks.
    pub(super) member: Member,
    /// Of its flows.
    pub(super) level: Level,
    /// Requests that wait, and requests that were taken and are not over.
    pub(super) queued: usize,
    pub(super) outstanding: usize,
    /// Flows whose next request needs no path.
    pub(super) without_path: BTreeSet<u16>,
    /// Flows that limits do not keep.
    pub(super) lifted: BTreeSet<u16>,
}

impl Disk {
    pub(super) fn new(rule: &Rule, limits: Arc<DiskLimits>) -> Self {
        Self {
            limits,
            change: 0,
            closed_until: None,
            closed_since: None,
            throttled: Duration::ZERO,
            blocked: false,
            member: Member::new(DEFAULT_WEIGHT),
            level: Level::new(rule),
            queued: 0,
            outstanding: 0,
            without_path: BTreeSet::new(),
            lifted: BTreeSet::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.outstanding == 0
    }

    pub(super) fn is_kept(&self) -> bool {
        self.blocked || self.closed_until.is_some()
    }

    /// Whether it takes part in the turns of the disks.
    pub(super) fn has_turns(&self) -> bool {
        !self.is_kept() && self.level.waits()
    }

    /// Requests that wait for something else than their turn.
    pub(super) fn kept(&self) -> usize {
        if self.is_kept() { self.queued } else { 0 }
    }

    /// The next exception of a disk that is kept, by the ids of flows.
    pub(super) fn next_exception(&self, after: Option<FlowId>, has_more: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        if !self.is_kept() {
            return None;
        }
        let some = if self.closed_until.is_some() { &self.lifted } else { &self.without_path };
        let left = some.range((after.map_or(Unbounded, |flow| Excluded(flow.0)), Unbounded));
        let goes = |flow: &u16| (!self.blocked || self.without_path.contains(flow)) && has_more(FlowId(*flow));
        left.copied().find(goes).map(FlowId)
    }

    /// Asks the limits. Whether they keep the disk from now on, and did not before.
    #[inline]
    pub(super) fn closes(&mut self, now: Instant) -> bool {
        if !self.limits.are_set() || self.closed_until.is_some() {
            return false;
        }
        // First, so that no change goes unnoticed that comes meanwhile.
        self.change = self.limits.changes();
        self.closed_until = self.limits.closed_until(now);
        if self.closed_until.is_some() {
            self.closed_since.get_or_insert(now);
        }
        self.closed_until.is_some()
    }

    /// Whether limits kept the disk, and have to be asked again.
    #[inline]
    pub(super) fn opens(&mut self, now: Instant) -> bool {
        let Some(until) = self.closed_until else { return false };
        if now < until && self.change == self.limits.changes() {
            return false;
        }
        self.closed_until = None;
        if let Some(since) = self.closed_since.take() {
            self.throttled += now - since;
        }
        true
    }

    /// When limits let something go.
    pub(super) fn closed_until(&self) -> Option<Instant> {
        self.closed_until
    }

    pub(super) fn turns(&self, now: Instant, disk: DiskId, rule: &Rule) -> DiskTurns {
        DiskTurns {
            disk,
            tier: self.member.tier(rule, self.is_idle()),
            weight: self.member.weight(),
            limits: self.limits.get(),
            balance: self.limits.balance(now),
            throttled: self.throttled + self.closed_since.map_or(Duration::ZERO, |since| now - since),
        }
    }
}

/// Snapshot of one disk, as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct DiskTurns {
    /// Which disk.
    pub disk: DiskId,
    /// Where its next request belongs among the disks; of several groups, sparse if it is that in all of them.
    pub tier: Tier,
    /// Its part of the service beside others; [`DEFAULT_WEIGHT`] is usual.
    pub weight: u16,
    /// Its limits, and what is left of them.
    pub limits: Limits,
    /// See `limits`.
    pub balance: Balance,
    /// How long something waited because of them; of several groups, in the one where it was longest.
    pub throttled: Duration,
}
