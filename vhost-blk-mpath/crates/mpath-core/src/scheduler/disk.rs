//! One disk in the scheduler: its limits, its weight, and the turns of its virtqueues.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::level::{Level, Member, Tier};
use super::rule::Rule;
use super::{Balance, DEFAULT_WEIGHT, DiskLimits, Limits};
use crate::{DiskId, FlowId};

/// A disk is *paused* while its limits are used up or it has no path. It then leaves the turns of the disks as a
/// whole, and its flows keep their places. Exceptions still go: requests that need no path, and flows that are exempt
/// from limits.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) limits: Arc<DiskLimits>,
    /// The change of the limits at which they were asked, and the time until which they let nothing go.
    change: u64,
    closed_until: Option<Instant>,
    closed_since: Option<Instant>,
    throttled: Duration,
    /// The disk has no eligible path.
    pub(super) blocked: bool,
    /// Its turn among the disks.
    pub(super) member: Member,
    /// The turns of its flows.
    pub(super) level: Level,
    /// Requests that wait, and requests that were taken and have not finished.
    pub(super) queued: usize,
    pub(super) outstanding: usize,
    /// Flows with a next request that needs no path.
    pub(super) without_path: BTreeSet<u16>,
    /// Flows that are exempt from limits.
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

    /// Whether the disk takes part in the turns of the disks.
    pub(super) fn has_turns(&self) -> bool {
        !self.is_kept() && self.level.waits()
    }

    /// The queued requests, if the disk is paused.
    pub(super) fn kept(&self) -> usize {
        if self.is_kept() { self.queued } else { 0 }
    }

    /// The next flow, by id, that may go although the disk is paused.
    pub(super) fn next_exception(&self, after: Option<FlowId>, has_more: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        if !self.is_kept() {
            return None;
        }
        let some = if self.closed_until.is_some() { &self.lifted } else { &self.without_path };
        let left = some.range((after.map_or(Unbounded, |flow| Excluded(flow.0)), Unbounded));
        let goes = |flow: &u16| (!self.blocked || self.without_path.contains(flow)) && has_more(FlowId(*flow));
        left.copied().find(goes).map(FlowId)
    }

    /// Asks the limits. Returns whether they begin to throttle the disk.
    #[inline]
    pub(super) fn closes(&mut self, now: Instant) -> bool {
        if !self.limits.are_set() || self.closed_until.is_some() {
            return false;
        }
        // Read first, so that no later change goes unnoticed.
        self.change = self.limits.changes();
        self.closed_until = self.limits.closed_until(now);
        if self.closed_until.is_some() {
            self.closed_since.get_or_insert(now);
        }
        self.closed_until.is_some()
    }

    /// Ends the throttling if it is due or the limits have changed. Returns whether it ended.
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

    /// When limits next let a request go.
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

/// Scheduler statistics of one disk.
#[derive(Clone, Debug)]
pub struct DiskTurns {
    /// The disk.
    pub disk: DiskId,
    /// The tier of its next request among the disks. For several groups: sparse if it is sparse in all.
    pub tier: Tier,
    /// Its weight among the disks; [`DEFAULT_WEIGHT`] by default.
    pub weight: u16,
    /// The limits of the disk.
    pub limits: Limits,
    /// The balance of the limits.
    pub balance: Balance,
    /// How long the limits have throttled the disk. For several groups: the longest of them.
    pub throttled: Duration,
}
