//! What failovers cost: the times until requests moved, and their waits for fences.
//!
//! The debug text of a [`crate::Group`] shows only what affects decisions, so it omits these.

use std::fmt;

use monotonic::{Duration, Instant};

use crate::{OpClass, Times};

/// How long failovers took. A failover begins when a request is bound to the path that will fail. It ends when the
/// request is bound again, to another path or to the same one. An operator's "failover took 80 ms" is this time.
#[derive(Clone, Debug)]
pub struct FailoverTimes {
    by_class: [Times; 3],
    first: Times,
}

impl Default for FailoverTimes {
    fn default() -> Self {
        Self { by_class: std::array::from_fn(|_| Times::latencies()), first: Times::latencies() }
    }
}

impl FailoverTimes {
    /// The times of one class.
    #[must_use]
    pub fn class(&self, class: OpClass) -> &Times {
        &self.by_class[class.index()]
    }

    /// The times of the first request that moved, one for each failure of a path.
    #[must_use]
    pub fn first(&self) -> &Times {
        &self.first
    }

    pub(crate) fn record(&mut self, class: OpClass, time: Duration) {
        self.by_class[class.index()].record(time);
    }

    pub(crate) fn record_first(&mut self, time: Duration) {
        self.first.record(time);
    }

    /// Adds the times of another group.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.by_class.iter_mut().zip(&other.by_class) {
            mine.add(theirs);
        }
        self.first.add(&other.first);
    }
}

/// The failover of a request that waits for another path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failover {
    /// When the failing path was given the request.
    pub(crate) since: Instant,
    /// The path answered with a path error, was lost, or is suspect. False if only one read was overdue. Also false for a write
    /// that waits for a fence, because new requests move long before that write.
    pub(crate) is_of_path: bool,
}

/// When the first request moved away from a path at its latest failure.
#[derive(Clone, Copy, Default)]
pub(crate) struct FirstMove(Option<Instant>);

impl fmt::Debug for FirstMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstMove").finish_non_exhaustive()
    }
}

impl FirstMove {
    /// Records that a request, bound to the path at `bound_at`, moves now. Returns whether this request is the first to
    /// move at the present failure: it was bound after the first move of the failure before.
    pub(crate) fn moves(&mut self, now: Instant, bound_at: Instant) -> bool {
        let is_first = self.0.is_none_or(|last| last < bound_at);
        if is_first {
            self.0 = Some(now);
        }
        is_first
    }
}

/// Waits of a disk's requests for fences, once they are over.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct FenceWaits {
    /// Requests that have waited.
    pub requests: u64,
    /// The sum of their waits.
    pub time: Duration,
}

impl fmt::Debug for FenceWaits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceWaits").finish_non_exhaustive()
    }
}

impl FenceWaits {
    pub(crate) fn add(&mut self, wait: Duration) {
        self.requests += 1;
        self.time += wait;
    }

    /// Adds the waits of the same disk in another group.
    pub(crate) fn merge(&mut self, other: Self) {
        self.requests += other.requests;
        self.time += other.time;
    }
}
