//! What the scheduler knows of each disk: its weight, which its flows share, and its limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::census::{Census, Seen};
use super::{Balance, DEFAULT_WEIGHT, DiskLimits, Limits};
use crate::DiskId;

/// The largest share there is: see [`Disks::share`].
pub(super) const WHOLE: u32 = 1 << 16;

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
    /// As of which change of the limits flows were parked.
    change: u64,
    /// Flows that the limits keep, since when there are some, and how long there were before.
    parked: u32,
    parked_since: Option<Instant>,
    throttled: Duration,
    weight: u16,
    /// Among the disks.
    seen: Seen,
    /// Flows that sent something lately.
    flows: Census,
    /// See [`Disks::share`].
    share: u32,
}

/// By id.
#[derive(Debug)]
pub(super) struct Disks {
    disks: Vec<Disk>,
    /// Of the disks that sent something lately.
    weights: Census,
}

impl Disks {
    pub(super) fn new(now: Instant, limits: impl Iterator<Item = Arc<DiskLimits>>) -> Self {
        let new = |limits| Disk {
            limits,
            change: 0,
            parked: 0,
            parked_since: None,
            throttled: Duration::ZERO,
            weight: DEFAULT_WEIGHT,
            seen: Seen::default(),
            flows: Census::new(now),
            share: WHOLE,
        };
        Self { disks: limits.map(new).collect(), weights: Census::new(now) }
    }

    pub(super) fn set_weight(&mut self, now: Instant, disk: DiskId, weight: u16) {
        self.disks[disk.index()].weight = weight.max(1);
        self.divide(now);
    }

    /// A flow of the disk is active.
    pub(super) fn mark(&mut self, now: Instant, disk: DiskId, seen: &mut Seen) {
        let of = &mut self.disks[disk.index()];
        self.weights.mark(now, &mut of.seen, of.weight.into());
        if of.flows.mark(now, seen, 1) {
            self.divide(now);
        }
    }

    /// Divides the weights anew.
    fn divide(&mut self, now: Instant) {
        // 65535 × 65536 at the most.
        let mut of_flow = |disk: &mut Disk| u64::from(disk.weight) * u64::from(WHOLE) / disk.flows.sum(now);
        let heaviest = self.disks.iter_mut().map(&mut of_flow).max().unwrap_or(1).max(1);
        for disk in &mut self.disks {
            disk.share = ((of_flow(disk) * u64::from(WHOLE) / heaviest) as u32).max(1);
        }
    }

    /// What each flow of the disk may have of what all flows do.
    pub(super) fn part(&mut self, now: Instant, disk: DiskId) -> Part {
        let of = &mut self.disks[disk.index()];
        Part { weight: of.weight.into(), weights: self.weights.sum(now), flows: of.flows.sum(now) }
    }

    /// What each flow of the disk is given in its turn, as a part of [`WHOLE`], which is what the heaviest flow is given.
    pub(super) fn share(&self, disk: DiskId) -> u32 {
        self.disks[disk.index()].share
    }

    /// Until when the limits of the disk forbid to send anything.
    #[inline]
    pub(super) fn closed_until(&self, now: Instant, disk: DiskId) -> Option<Instant> {
        let limits = &self.disks[disk.index()].limits;
        if limits.are_set() { limits.closed_until(now) } else { None }
    }

    #[inline]
    pub(super) fn sent(&self, now: Instant, disk: DiskId, bytes: u32) {
        let limits = &self.disks[disk.index()].limits;
        if limits.are_set() {
            limits.take(now, bytes);
        }
    }

    /// The limits keep one more flow.
    pub(super) fn parked(&mut self, now: Instant, disk: DiskId) {
        let of = &mut self.disks[disk.index()];
        if of.parked == 0 {
            of.parked_since = Some(now);
            of.change = of.limits.changes();
        }
        of.parked += 1;
    }

    /// One less.
    pub(super) fn unparked(&mut self, now: Instant, disk: DiskId) {
        let of = &mut self.disks[disk.index()];
        of.parked -= 1;
        if of.parked == 0
            && let Some(since) = of.parked_since.take()
        {
            of.throttled += now - since;
        }
    }

    /// Whether limits have been changed that keep flows.
    pub(super) fn limits_changed(&self) -> bool {
        self.disks.iter().any(|disk| disk.parked > 0 && disk.change != disk.limits.changes())
    }

    pub(super) fn stats(&self, now: Instant) -> Vec<DiskTurns> {
        let of = |(disk, id): (&Disk, u16)| DiskTurns {
            disk: DiskId(id),
            weight: disk.weight,
            limits: disk.limits.get(),
            balance: disk.limits.balance(now),
            throttled: disk.throttled + disk.parked_since.map_or(Duration::ZERO, |since| now - since),
        };
        self.disks.iter().zip(0..).map(of).collect()
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
