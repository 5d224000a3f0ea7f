//! Decides: a request of the guest counts in these figures of its disk.
//!
//! What the guest of a disk gets: its requests by operation, from the virtqueue to the answer. Paths have figures of their own,
//! which leave out what a request waits for before it has a path.

use std::fmt;

use monotonic::{Duration, Instant};

use crate::recent_latencies::{RecentLatencies, add_recent};
use crate::{ClassLatencies, DiskMinute, Io, IoError, LatencyCounts, Op, SlowRequest, Stages, TimeCounts};

/// Requests that took this long or longer are counted by stage. The stages of all others are not worth their cost.
pub(crate) const LONG: Duration = Duration::from_millis(10);

/// The requests of one operation that a guest got an answer to, errors included.
#[derive(Clone, Default)]
pub struct GuestIo {
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// The times from the virtqueue to the answer, since the start.
    pub latency: TimeCounts,
    /// Those of the last second. `None` without a request.
    pub latency_1s: Option<Box<LatencyCounts>>,
    /// Those of the last minute. `None` without a request.
    pub latency_60s: Option<Box<LatencyCounts>>,
}

impl GuestIo {
    /// The number of requests since the start.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.latency.counts().iter().sum()
    }
}

/// What the guest of one disk has got: a snapshot.
#[derive(Clone, Default)]
pub struct GuestStats {
    operations: [GuestIo; Op::ALL.len()],
    /// The times of all requests of 10 ms or more, by stage.
    pub long_stages: Stages,
    /// The age of the oldest request without an answer.
    pub oldest: Option<Duration>,
}

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for GuestStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestStats").finish_non_exhaustive()
    }
}

impl GuestStats {
    /// The requests of one operation.
    #[must_use]
    pub fn of(&self, op: Op) -> &GuestIo {
        &self.operations[op.index()]
    }

    /// Adds what another group of the disk has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.operations.iter_mut().zip(&other.operations) {
            mine.bytes += theirs.bytes;
            mine.latency.add(&theirs.latency);
            add_recent(&mut mine.latency_1s, theirs.latency_1s.as_deref());
            add_recent(&mut mine.latency_60s, theirs.latency_60s.as_deref());
        }
        self.long_stages += other.long_stages;
        self.oldest = self.oldest.max(other.oldest);
    }
}

/// The time since the start of a group. Most requests of a turn end at one time, and two times take long to subtract.
pub(crate) struct SinceStart {
    started: Instant,
    /// The last time that was asked for, and how long it is after the start.
    last: (Instant, Duration),
}

/// Empty, as above.
impl fmt::Debug for SinceStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinceStart").finish_non_exhaustive()
    }
}

impl SinceStart {
    pub(crate) fn new(now: Instant) -> Self {
        Self { started: now, last: (now, Duration::ZERO) }
    }

    /// For those who ask seldom.
    pub(crate) fn until(&self, now: Instant) -> Duration {
        now - self.started
    }

    /// For those who ask for each request.
    #[inline]
    pub(crate) fn at(&mut self, now: Instant) -> Duration {
        if self.last.0 != now {
            self.last = (now, self.until(now));
        }
        self.last.1
    }
}

/// Counts the requests of one disk in one group.
#[derive(Default)]
pub(crate) struct GuestCounts {
    stats: GuestStats,
    recent: [Option<Box<RecentLatencies>>; Op::ALL.len()],
    /// `long_stages` at the last [`GuestCounts::take`].
    taken_stages: Stages,
    /// The slowest request of [`LONG`] or longer since then.
    slowest: Option<SlowRequest>,
}

/// Empty, as above.
impl fmt::Debug for GuestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestCounts").finish_non_exhaustive()
    }
}

impl GuestCounts {
    /// Counts a request that is answered at `at`, the time since the start of the group.
    #[inline]
    pub(crate) fn answered(&mut self, at: Duration, io: &Io, result: Result<(), IoError>, latency: Duration) {
        let op = io.op.index();
        let stats = &mut self.stats.operations[op];
        stats.bytes += if result.is_ok() { u64::from(io.bytes) } else { 0 };
        stats.latency.record(latency.as_nanos());
        self.recent[op].get_or_insert_with(|| Box::new(RecentLatencies::EMPTY)).record(at, latency);
    }

    /// Counts a long request that ends. Returns whether it is the slowest since the last [`GuestCounts::take`].
    pub(crate) fn long_request(&mut self, request: &SlowRequest) -> bool {
        self.stats.long_stages += request.stages;
        let is_slowest = self.slowest.as_ref().is_none_or(|slowest| slowest.total < request.total);
        if is_slowest {
            self.slowest = Some(*request);
        }
        is_slowest
    }

    /// Adds the first sector of the slowest request.
    pub(crate) fn set_sector(&mut self, sector: Option<u64>) {
        if let Some(slowest) = &mut self.slowest {
            slowest.sector = sector;
        }
    }

    /// What has happened since the last [`GuestCounts::take`].
    pub(crate) fn untaken(&self) -> DiskMinute {
        let mut latencies = ClassLatencies::default();
        for (op, recent) in Op::ALL.into_iter().zip(&self.recent) {
            let of_op = recent.as_ref().and_then(|recent| recent.untaken());
            add_recent(&mut latencies[op.class().index()], of_op.as_deref());
        }
        let long_stages = self.stats.long_stages.since(self.taken_stages);
        DiskMinute { latencies, long_stages, slowest: self.slowest, oldest: None }
    }

    /// Begins the next minute.
    pub(crate) fn take(&mut self) {
        self.recent.iter_mut().flatten().for_each(|recent| recent.take());
        (self.taken_stages, self.slowest) = (self.stats.long_stages, None);
    }

    /// A snapshot at `at`, the time since the start of the group.
    pub(crate) fn stats(&self, at: Duration, oldest: Option<Duration>) -> GuestStats {
        let mut stats = GuestStats { oldest, ..self.stats.clone() };
        for (of, recent) in stats.operations.iter_mut().zip(&self.recent) {
            of.latency_1s = recent.as_ref().and_then(|recent| recent.last_second(at));
            of.latency_60s = recent.as_ref().and_then(|recent| recent.last_minute(at));
        }
        stats
    }
}
