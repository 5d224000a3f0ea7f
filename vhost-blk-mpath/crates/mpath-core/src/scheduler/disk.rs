//! One disk in the scheduler: its limits, its weight, and the turns of its virtqueues.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use monotonic::{Duration, Instant};

use super::fair_queue::{FairQueue, Member, Tier};
use super::flow::WaitingRequest;
use super::settings::Settings;
use super::{Balance, DEFAULT_WEIGHT, DiskLimits, Limits};
use crate::history::{PauseClock, Pauses};
use crate::{DiskId, FlowId};

/// A disk is *paused* while its limits are used up or it has no path. It then leaves the turns of the disks as a
/// whole, and its flows keep their places. Exceptions still go: requests that need no path, and flows that are exempt
/// from limits.
#[derive(Clone, Debug)]
pub(super) struct ScheduledDisk {
    pub(super) limits: Arc<DiskLimits>,
    /// The count of changes of the limits when they were last asked, and the time until which they let nothing go.
    change: u64,
    throttled_until: Option<Instant>,
    throttled_since: Option<Instant>,
    throttled: Duration,
    /// The disk has no eligible path.
    pub(super) is_blocked: bool,
    pause_clock: PauseClock,
    /// Its turn among the disks.
    pub(super) member: Member,
    /// The turns of its flows.
    pub(super) turns: FairQueue,
    /// Requests that wait, and requests that were taken and have not finished.
    pub(super) queued: usize,
    pub(super) outstanding: usize,
    /// By class, the waiting requests that may go to any eligible path: each needs a path, and is in its first attempt.
    pub(super) first_attempts: [usize; 3],
    /// Flows with a next request that needs no path.
    pub(super) needs_no_path: BTreeSet<u16>,
    /// Flows that are exempt from limits.
    pub(super) exempt: BTreeSet<u16>,
}

impl ScheduledDisk {
    pub(super) fn new(settings: &Settings, limits: Arc<DiskLimits>) -> Self {
        Self {
            limits,
            change: 0,
            throttled_until: None,
            throttled_since: None,
            throttled: Duration::ZERO,
            is_blocked: false,
            pause_clock: PauseClock::default(),
            member: Member::new(DEFAULT_WEIGHT),
            turns: FairQueue::new(settings),
            queued: 0,
            outstanding: 0,
            first_attempts: [0; 3],
            needs_no_path: BTreeSet::new(),
            exempt: BTreeSet::new(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queued == 0 && self.outstanding == 0
    }

    /// Notes whether the next request of a flow needs a path.
    pub(super) fn note_next(&mut self, flow: FlowId, next: Option<&WaitingRequest>) {
        if next.is_some_and(|next| !next.needs_path) {
            self.needs_no_path.insert(flow.0);
        } else if !self.needs_no_path.is_empty() {
            self.needs_no_path.remove(&flow.0);
        }
    }

    pub(super) fn set_blocked(&mut self, now: Instant, is_blocked: bool) {
        self.is_blocked = is_blocked;
        self.pause_clock.set_blocked(now, is_blocked);
    }

    /// How long the disk was paused so far.
    #[inline]
    pub(super) fn pauses(&self, now: Instant) -> Pauses {
        if self.is_paused() { self.pause_clock.until(now, self.throttled_since) } else { self.pause_clock.ended() }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_blocked || self.throttled_until.is_some()
    }

    /// Whether the disk takes part in the turns of the disks.
    pub(super) fn has_turns(&self) -> bool {
        !self.is_paused() && self.turns.waits()
    }

    /// The queued requests, if the disk is paused.
    pub(super) fn paused(&self) -> usize {
        if self.is_paused() { self.queued } else { 0 }
    }

    /// The next flow, by id, that may go although the disk is paused.
    pub(super) fn next_exception(&self, after: Option<FlowId>, has_more: impl Fn(FlowId) -> bool) -> Option<FlowId> {
        if !self.is_paused() {
            return None;
        }
        let some = if self.throttled_until.is_some() { &self.exempt } else { &self.needs_no_path };
        let left = some.range((after.map_or(Unbounded, |flow| Excluded(flow.0)), Unbounded));
        let goes = |flow: &u16| (!self.is_blocked || self.needs_no_path.contains(flow)) && has_more(FlowId(*flow));
        left.copied().find(goes).map(FlowId)
    }

    /// Asks the limits. Returns whether they begin to throttle the disk.
    #[inline]
    pub(super) fn begin_throttling(&mut self, now: Instant) -> bool {
        if !self.limits.are_set() || self.throttled_until.is_some() {
            return false;
        }
        // Read first, so that no later change goes unnoticed.
        self.change = self.limits.changes();
        self.throttled_until = self.limits.throttled_until(now);
        if self.throttled_until.is_some() {
            self.throttled_since.get_or_insert(now);
        }
        self.throttled_until.is_some()
    }

    /// Ends the throttling if it is due or the limits have changed. Returns whether it ended.
    #[inline]
    pub(super) fn end_throttling(&mut self, now: Instant) -> bool {
        let Some(until) = self.throttled_until else { return false };
        if now < until && self.change == self.limits.changes() {
            return false;
        }
        self.throttled_until = None;
        if let Some(since) = self.throttled_since.take() {
            self.throttled += now - since;
            self.pause_clock.throttled(now - since);
        }
        true
    }

    /// When limits next let a request go.
    pub(super) fn throttled_until(&self) -> Option<Instant> {
        self.throttled_until
    }

    pub(super) fn stats(&self, now: Instant, disk: DiskId, settings: &Settings) -> DiskSchedulerStats {
        DiskSchedulerStats {
            disk,
            tier: self.member.tier(settings, self.is_idle()),
            weight: self.member.weight(),
            limits: self.limits.get(),
            balance: self.limits.balance(now),
            throttled: self.throttled + self.throttled_since.map_or(Duration::ZERO, |since| now - since),
        }
    }
}

/// Scheduler statistics of one disk.
#[derive(Clone, Debug)]
pub struct DiskSchedulerStats {
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
