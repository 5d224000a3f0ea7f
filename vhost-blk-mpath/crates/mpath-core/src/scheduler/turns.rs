//! What the scheduler knows of each disk: its weight, which its flows share, and what keeps them: limits, or that it has no path.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::census::{Census, Seen};
use super::{Balance, DEFAULT_WEIGHT, DiskLimits, Limits, Tier, pass};
use crate::{DiskId, FlowId};

/// The largest share there is: see [`Disks::share`].
pub(super) const WHOLE: u32 = 1 << 20;

/// Of what all the flows that sent something lately can have, the part of one of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Its disk's weight, and that of all disks together.
    weight: u64,
    weights: u64,
    /// The disk's flows.
    flows: u64,
}

impl Part {
    #[cfg(test)]
    pub(super) const ALL: Self = Self { weight: 1, weights: 1, flows: 1 };

    pub(super) fn of(self, work: u64) -> u64 {
        let part = u128::from(work) * u128::from(self.weight) / u128::from(self.weights * self.flows);
        // A disk may have been given more weight since it was counted.
        part.min(work.into()) as u64
    }
}

#[derive(Debug)]
struct Disk {
    limits: Arc<DiskLimits>,
    /// As of which change of the limits flows were parked, and until when they forbid to send anything.
    change: u64,
    closed_until: Option<Instant>,
    /// Since when limits keep something, and how long they did before.
    closed_since: Option<Instant>,
    throttled: Duration,
    /// When the first request of its first tier went past flows of its second one that limits have kept, and that have had no turn since.
    passed_since: Option<Instant>,
    /// It has no path.
    blocked: bool,
    /// Flows that are kept as there is no path, in the order in which they would have had their turns.
    parked: Vec<FlowId>,
    /// Requests that wait.
    queued: usize,
    /// Flows with some that belong to the normal tier.
    in_normal: usize,
    weight: u16,
    /// Among the disks.
    seen: Seen,
    /// Flows that sent something lately.
    flows: Census,
    /// See [`Disks::share`].
    share: u32,
    /// The weight of each of its flows.
    weight_each: u64,
    /// When one of its flows was the last to have waited for too long.
    hurried_at: Option<Instant>,
}

impl Disk {
    /// Requests that wait for something else than their turn.
    fn kept(&self) -> usize {
        if self.blocked || self.closed_until.is_some() { self.queued } else { 0 }
    }
}

/// What keeps a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    Limits,
    /// There is no path.
    Path,
}

/// By id.
#[derive(Debug)]
pub(super) struct Disks {
    all: Vec<Disk>,
    /// See [`Disk::kept`], of all of them.
    kept: usize,
    /// Of the disks that sent something lately.
    weights: Census,
}

impl Disks {
    pub(super) fn new(now: Instant, limits: impl Iterator<Item = Arc<DiskLimits>>) -> Self {
        let new = |limits| Disk {
            limits,
            change: 0,
            closed_until: None,
            closed_since: None,
            throttled: Duration::ZERO,
            passed_since: None,
            blocked: false,
            parked: Vec::new(),
            queued: 0,
            in_normal: 0,
            weight: DEFAULT_WEIGHT,
            seen: Seen::default(),
            flows: Census::new(now),
            share: WHOLE,
            weight_each: u64::from(DEFAULT_WEIGHT) * u64::from(WHOLE),
            hurried_at: None,
        };
        Self { all: limits.map(new).collect(), kept: 0, weights: Census::new(now) }
    }

    pub(super) fn set_weight(&mut self, now: Instant, disk: DiskId, weight: u16) {
        self.all[disk.index()].weight = weight.max(1);
        self.divide(now);
    }

    /// A flow of the disk is active.
    pub(super) fn mark(&mut self, now: Instant, disk: DiskId, seen: &mut Seen) {
        let of = &mut self.all[disk.index()];
        self.weights.mark(now, &mut of.seen, of.weight.into());
        if of.flows.mark(now, seen, 1) {
            self.divide(now);
        }
    }

    /// Divides the weights anew.
    fn divide(&mut self, now: Instant) {
        // 2^36 at the most. Disks that have sent nothing lately are not compared with.
        let of_flow = |disk: &mut Disk| u64::from(disk.weight) * u64::from(WHOLE) / disk.flows.sum(now);
        let active = self.all.iter_mut().filter_map(|disk| disk.flows.any(now).then(|| of_flow(disk)));
        let heaviest = active.max().unwrap_or(1).max(1);
        for disk in &mut self.all {
            disk.weight_each = of_flow(disk).max(1);
            disk.share = (disk.weight_each * u64::from(WHOLE) / heaviest).clamp(1, WHOLE.into()) as u32;
        }
    }

    /// What each flow of the disk may have of what all flows do.
    pub(super) fn part(&mut self, now: Instant, disk: DiskId) -> Part {
        let of = &mut self.all[disk.index()];
        Part { weight: of.weight.into(), weights: self.weights.sum(now), flows: of.flows.sum(now) }
    }

    /// What each flow of the disk is given in its turn, as a part of [`WHOLE`], which is what the heaviest flow is given.
    pub(super) fn share(&self, disk: DiskId) -> u32 {
        self.all[disk.index()].share
    }

    /// The weight of each flow of the disk, in parts of [`WHOLE`], whoever else there is.
    pub(super) fn weight_each(&self, disk: DiskId) -> u64 {
        self.all[disk.index()].weight_each
    }

    /// A flow of the disk has waited for too long. Whether it has a turn for that: beside other disks one at a time, as that goes by no weight.
    pub(super) fn hurry(&mut self, now: Instant, disk: DiskId) -> bool {
        if self.others_wait(disk) && self.all[disk.index()].hurried_at == Some(now) {
            return false;
        }
        self.all[disk.index()].hurried_at = Some(now);
        true
    }

    /// What the disk's next request has to wait for beside its turn; `needs_path`: for a path too; `unlimited`: only for that.
    #[inline]
    pub(super) fn keeps(&mut self, now: Instant, disk: DiskId, needs_path: bool, unlimited: bool) -> Option<Keeper> {
        let of = &mut self.all[disk.index()];
        if of.blocked && needs_path {
            return Some(Keeper::Path);
        }
        if unlimited || !of.limits.are_set() {
            return None;
        }
        // First, so that no change goes unnoticed that comes meanwhile.
        of.change = of.limits.changes();
        let until = of.limits.closed_until(now)?;
        self.change(disk, |of| {
            of.closed_until = Some(of.closed_until.map_or(until, |at| at.min(until)));
            of.closed_since.get_or_insert(now);
        });
        Some(Keeper::Limits)
    }

    /// Changes what is kept of a disk.
    fn change<T>(&mut self, disk: DiskId, change: impl FnOnce(&mut Disk) -> T) -> T {
        let of = &mut self.all[disk.index()];
        self.kept -= of.kept();
        let result = change(of);
        self.kept += of.kept();
        result
    }

    #[inline]
    pub(super) fn sent(&self, now: Instant, disk: DiskId, bytes: u32) {
        let limits = &self.all[disk.index()].limits;
        if limits.are_set() {
            limits.take(now, bytes);
        }
    }

    pub(super) fn park(&mut self, disk: DiskId, flow: FlowId) {
        self.all[disk.index()].parked.push(flow);
    }

    /// Limits do not keep the disk any more, or are asked again.
    pub(super) fn open(&mut self, now: Instant, disk: DiskId) {
        self.change(disk, |of| {
            of.closed_until = None;
            if let Some(since) = of.closed_since.take() {
                of.throttled += now - since;
            }
        });
    }

    /// What was kept as there was no path.
    pub(super) fn unpark(&mut self, disk: DiskId) -> Vec<FlowId> {
        std::mem::take(&mut self.all[disk.index()].parked)
    }

    /// A disk that limits keep no longer, or perhaps no longer.
    pub(super) fn opened(&self, now: Instant) -> Option<DiskId> {
        let opened = |disk: &Disk| {
            let changed = || disk.change != disk.limits.changes();
            disk.closed_until.is_some_and(|at| at <= now || changed())
        };
        self.all.iter().position(opened).map(|at| DiskId(at as u16))
    }

    /// When limits let something go.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.all.iter().filter_map(|disk| disk.closed_until).min()
    }

    /// Whether this is news.
    pub(super) fn set_blocked(&mut self, disk: DiskId, blocked: bool) -> bool {
        let news = self.change(disk, |of| std::mem::replace(&mut of.blocked, blocked)) != blocked;
        if news {
            // Nobody of it had a turn.
            self.all[disk.index()].passed_since = None;
        }
        news
    }

    /// A request of a tier of the disk goes; `second_is_kept`: limits have kept flows of the second one.
    pub(super) fn pass(&mut self, now: Instant, disk: DiskId, tier: Tier, second_is_kept: bool) {
        pass(&mut self.all[disk.index()].passed_since, now, tier, second_is_kept);
    }

    /// Another flow of the disk waits in the normal tier, or one less.
    pub(super) fn count_in_normal(&mut self, disk: DiskId, more: bool) {
        let count = &mut self.all[disk.index()].in_normal;
        *count = if more { *count + 1 } else { *count - 1 };
    }

    pub(super) fn waits_in_normal(&self, disk: DiskId) -> bool {
        self.all[disk.index()].in_normal > 0
    }

    pub(super) fn passed_since(&self, disk: DiskId) -> Option<Instant> {
        self.all[disk.index()].passed_since
    }

    /// The disk has limits.
    pub(super) fn are_limited(&self, disk: DiskId) -> bool {
        self.all[disk.index()].limits.are_set()
    }

    /// Something waits, for its turn or for limits, of a disk other than that.
    pub(super) fn others_wait(&self, disk: DiskId) -> bool {
        self.all.iter().enumerate().any(|(id, of)| id != disk.index() && !of.blocked && of.queued > 0)
    }

    pub(super) fn is_blocked(&self, disk: DiskId) -> bool {
        self.all[disk.index()].blocked
    }

    /// Requests of the disk that wait.
    pub(super) fn queued_of(&self, disk: DiskId) -> usize {
        self.all[disk.index()].queued
    }

    /// Requests that wait for something else than their turn.
    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    /// Limits keep something, and nothing else does.
    pub(super) fn limits_keep_any(&self) -> bool {
        self.kept > 0 && self.all.iter().any(|of| !of.blocked && of.kept() > 0)
    }

    pub(super) fn pushed(&mut self, disk: DiskId) {
        self.change(disk, |of| of.queued += 1);
    }

    pub(super) fn taken(&mut self, disk: DiskId, count: usize) {
        self.change(disk, |of| of.queued -= count);
    }

    pub(super) fn stats(&self, now: Instant) -> Vec<DiskTurns> {
        let of = |(disk, id): (&Disk, u16)| DiskTurns {
            disk: DiskId(id),
            weight: disk.weight,
            limits: disk.limits.get(),
            balance: disk.limits.balance(now),
            throttled: disk.throttled + disk.closed_since.map_or(Duration::ZERO, |since| now - since),
        };
        self.all.iter().zip(0..).map(of).collect()
    }
}

/// Snapshot of one disk, as the scheduler sees it.
#[derive(Clone, Debug)]
pub struct DiskTurns {
    /// Which disk.
    pub disk: DiskId,
    /// Its part of the service beside others; [`DEFAULT_WEIGHT`] is usual.
    pub weight: u16,
    /// Its limits, and what is left of them.
    pub limits: Limits,
    /// See `limits`.
    pub balance: Balance,
    /// How long something waited because of them; of several groups, in the one where it was longest.
    pub throttled: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flows_of_a_disk_share_its_weight() {
        let now = Instant::now();
        let mut disks = Disks::new(now, [Arc::default(), Arc::default()].into_iter());
        assert_eq!((disks.share(DiskId(0)), disks.share(DiskId(1))), (WHOLE, WHOLE));
        let mut flows = [Seen::default(); 4];
        for seen in &mut flows {
            disks.mark(now, DiskId(0), seen);
        }
        disks.mark(now, DiskId(1), &mut Seen::default());
        assert_eq!((disks.share(DiskId(0)), disks.share(DiskId(1))), (WHOLE / 4, WHOLE));
        let each = 100 * u64::from(WHOLE);
        assert_eq!(
            (disks.weight_each(DiskId(0)), disks.weight_each(DiskId(1))),
            (each / 4, each),
            "whoever else there is"
        );
        disks.set_weight(now, DiskId(0), 800);
        assert_eq!((disks.share(DiskId(0)), disks.share(DiskId(1))), (WHOLE, WHOLE / 2));
        assert_eq!((disks.part(now, DiskId(0)).of(900), disks.part(now, DiskId(1)).of(900)), (900, 450), "as counted");
        // Lately is not for ever.
        let later = now + Duration::from_secs(3);
        disks.mark(later, DiskId(0), &mut flows[0]);
        disks.mark(later, DiskId(1), &mut Seen::default());
        assert_eq!((disks.part(later, DiskId(0)).of(900), disks.part(later, DiskId(1)).of(900)), (800, 100));
        assert_eq!((disks.share(DiskId(0)), disks.share(DiskId(1))), (WHOLE, WHOLE / 8));
    }
}
