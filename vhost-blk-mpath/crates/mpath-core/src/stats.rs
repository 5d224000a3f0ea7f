//! Statistics for the operator. Policies keep their own estimates and never read these.

use std::fmt;

use monotonic::Duration;

use crate::recent_latencies::add_recent;
use crate::{
    AnaStates, ClassPolicies, FailoverTimes, FenceWaits, GuestStats, LatencyCounts, OpClass, PathEstimate, PathId,
    SchedulerStats, Times,
};

/// Counters of one path and one operation class, of one group or merged over several.
#[derive(Clone)]
pub struct ClassStats {
    /// Requests that succeeded on the path.
    pub ios: u64,
    /// Requests that succeeded in the last second.
    pub ios_1s: u64,
    /// Requests that succeeded in the last minute.
    pub ios_60s: u64,
    /// Bytes of the requests in `ios`.
    pub bytes: u64,
    /// Requests bound to the path now, including those that an injection keeps.
    pub in_flight: u64,
    /// Attempts that did not succeed, even if another attempt saved the request. Recalled ones do not count: see
    /// [`PathStats::recalled`].
    pub errors: u64,
    /// The attempts in `errors` that were followed by another attempt.
    pub retries: u64,
    /// Latencies of the requests in `ios`, from bind to completion. Injected delays count; waiting for a path does not.
    pub latency: Times,
    /// Latencies of the requests of the last second. `None` without a request.
    pub latency_1s: Option<Box<LatencyCounts>>,
    /// Latencies of the requests of the last minute. `None` without a request.
    pub latency_60s: Option<Box<LatencyCounts>>,
}

/// Omits the counters: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for ClassStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassStats").field("in_flight", &self.in_flight).finish_non_exhaustive()
    }
}

impl Default for ClassStats {
    fn default() -> Self {
        Self::new()
    }
}

impl ClassStats {
    /// All zero.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ios: 0,
            ios_1s: 0,
            ios_60s: 0,
            bytes: 0,
            in_flight: 0,
            errors: 0,
            retries: 0,
            latency: Times::latencies(),
            latency_1s: None,
            latency_60s: None,
        }
    }

    pub(crate) fn record_success(&mut self, bytes: u32, latency: Duration) {
        self.ios += 1;
        self.bytes += u64::from(bytes);
        self.latency.record(latency);
    }

    /// Adds the counters of another group.
    pub fn merge(&mut self, other: &Self) {
        self.ios += other.ios;
        self.ios_1s += other.ios_1s;
        self.ios_60s += other.ios_60s;
        self.bytes += other.bytes;
        self.in_flight += other.in_flight;
        self.errors += other.errors;
        self.retries += other.retries;
        self.latency.add(&other.latency);
        add_recent(&mut self.latency_1s, other.latency_1s.as_deref());
        add_recent(&mut self.latency_60s, other.latency_60s.as_deref());
    }
}

/// Snapshot of one path.
#[derive(Clone, Debug)]
pub struct PathStats {
    /// The path.
    pub path: PathId,
    /// The ANA states of the disks' namespaces; `None` while the path is down.
    pub ana: Option<AnaStates>,
    /// The path rests after a path error.
    pub resting: bool,
    /// The path is suspect: it owes answers and has been silent for too long. It is used only if no better path
    /// exists.
    pub suspect: bool,
    /// How often it became suspect.
    pub suspicions: u64,
    /// Requests recalled from the path and sent elsewhere, because the path was suspect or a read was overdue.
    pub recalled: u64,
    /// Probes sent on the path. No other counter counts them.
    pub probes: u64,
    /// Hedges sent on the path: second copies of reads on other paths. No other counter counts them.
    pub hedges: u64,
    /// Hedges that answered first. The read then counts on no path.
    pub hedges_won: u64,
    /// Injections in force.
    pub injections: usize,
    /// Requests in doubt from a former association of this path, which wait for its fence.
    pub fenced: u64,
    /// The path is drained in every group.
    pub draining: bool,
    /// Flush commands that the path has not answered yet, sent or not.
    pub flushes_open: u64,
    /// Counters by operation class, in the order of [`OpClass::ALL`].
    pub classes: [ClassStats; 3],
    /// The estimates of the path by the policy of each class, in the same order.
    pub estimates: [PathEstimate; 3],
}

impl PathStats {
    /// The counters of one class.
    #[must_use]
    pub fn class(&self, class: OpClass) -> &ClassStats {
        &self.classes[class.index()]
    }

    /// Whether a drained path has nothing in flight and owes no flush. Without unflushed writes on the path, this
    /// remains true.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.is_idle()
    }

    /// Whether nothing waits for this path. A path that is down can then be [removed](crate::Group::remove_path).
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.fenced == 0 && self.is_idle()
    }

    fn is_idle(&self) -> bool {
        self.flushes_open == 0 && self.classes.iter().all(|class| class.in_flight == 0)
    }

    /// Adds the counters of the same path in another group.
    pub fn merge(&mut self, other: &Self) {
        self.fenced += other.fenced;
        self.draining &= other.draining;
        self.flushes_open += other.flushes_open;
        self.resting |= other.resting;
        self.suspect |= other.suspect;
        self.suspicions += other.suspicions;
        self.recalled += other.recalled;
        self.probes += other.probes;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.estimates.iter_mut().zip(&other.estimates) {
            mine.merge(theirs);
        }
    }
}

/// Counts of hedges since the start of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeCounts {
    /// Reads submitted while hedging was set. The budget is a share of them.
    pub reads: u64,
    /// Hedges sent.
    pub sent: u64,
    /// Hedges that answered first.
    pub won: u64,
}

impl HedgeCounts {
    /// Adds the counts of another group.
    fn merge(&mut self, other: Self) {
        self.reads += other.reads;
        self.sent += other.sent;
        self.won += other.won;
    }
}

/// Snapshot of a group.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// The policies in force.
    pub policy: ClassPolicies,
    /// Requests that wait for a path.
    pub queued: u64,
    /// Requests that wait for the time of a retry.
    pub backoff: u64,
    /// How long failovers took.
    pub failover_times: FailoverTimes,
    /// What the guests have got, by disk.
    pub guests: Vec<GuestStats>,
    /// The waits for fences, by disk.
    pub fence_waits: Vec<FenceWaits>,
    /// The scheduler and its flows.
    pub scheduler: SchedulerStats,
    /// Counts of hedges.
    pub hedging: HedgeCounts,
    /// The paths, in the order of their ids.
    pub paths: Vec<PathStats>,
}

impl GroupStats {
    /// The statistics of one path, if the group has the path.
    #[must_use]
    pub fn path(&self, path: PathId) -> Option<&PathStats> {
        self.paths.binary_search_by_key(&path, |stats| stats.path).ok().map(|index| &self.paths[index])
    }

    /// Adds the counters of another group of the same disk.
    pub fn merge(&mut self, other: &Self) {
        self.queued += other.queued;
        self.backoff += other.backoff;
        self.failover_times.merge(&other.failover_times);
        for (mine, theirs) in self.guests.iter_mut().zip(&other.guests) {
            mine.merge(theirs);
        }
        for (mine, theirs) in self.fence_waits.iter_mut().zip(&other.fence_waits) {
            mine.merge(*theirs);
        }
        self.scheduler.merge(&other.scheduler);
        self.hedging.merge(other.hedging);
        for theirs in &other.paths {
            match self.paths.binary_search_by_key(&theirs.path, |mine| mine.path) {
                Ok(index) => self.paths[index].merge(theirs),
                Err(index) => self.paths.insert(index, theirs.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recent_latencies::RecentLatencies;

    #[test]
    fn counters_of_two_groups_add_up() {
        let (mut a, mut b) = (ClassStats::new(), ClassStats::new());
        a.record_success(4096, Duration::from_micros(200));
        b.record_success(512, Duration::from_millis(30));
        (b.in_flight, b.errors, b.retries) = (3, 2, 1);
        a.merge(&b);
        a.merge(&ClassStats { in_flight: 4, errors: 3, retries: 2, ..ClassStats::new() });
        assert_eq!((a.ios, a.bytes), (2, 4096 + 512));
        assert_eq!((a.in_flight, a.errors, a.retries), (7, 5, 3));
        assert_eq!((a.latency.ns().len(), a.latency.counted().sum()), (2, Duration::from_micros(30_200)));
    }

    #[test]
    fn recent_latencies_of_two_groups_add_up() {
        let of = |latencies: &[u64]| {
            let mut recent = RecentLatencies::EMPTY;
            for ms in latencies {
                recent.record(Duration::ZERO, Duration::from_millis(*ms));
            }
            recent.last_second(Duration::ZERO)
        };
        let longest = |latencies: &[&[u64]]| {
            let mut sum = ClassStats::new();
            for recent in latencies {
                let latency_1s = of(recent);
                sum.merge(&ClassStats { latency_60s: latency_1s.clone(), latency_1s, ..ClassStats::new() });
            }
            assert_eq!(sum.latency_1s, sum.latency_60s);
            sum.latency_1s.map(|recent| [0.5, 1.0].map(|quantile| recent.quantile(quantile).unwrap().as_millis()))
        };
        assert_eq!(longest(&[&[], &[]]), None);
        assert_eq!(longest(&[&[], &[1, 1], &[]]), Some([1, 1]));
        assert_eq!(longest(&[&[1, 1], &[8]]), Some([1, 8]));
    }
}
