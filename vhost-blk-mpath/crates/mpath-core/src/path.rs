//! Decides: a path takes requests of a disk (`takes_requests`).
//!
//! State of a path, which has one association with one controller at a time.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

use crate::failovers::FirstMove;
use crate::inject::PathInjections;
use crate::overdue_reads::ReadDeadlines;
use crate::path_error_rest::PathErrorRest;
use crate::quantiles::Quantiles;
use crate::recent_latencies::RecentLatencies;
use crate::requests::InFlightList;
use crate::silence::{LastLatency, SilenceWatch};
use crate::stats::ClassStats;
use crate::unflushed::{CachePeriod, Round};
use crate::window::Usage;
use crate::{AnaState, AnaStates, ClassLatencies, DiskId, Epoch, OpClass, Tag, Window};

/// The fewest reads by which a path is judged: one is no evidence.
const SAMPLES_MIN: u64 = 8;

/// Properties of a path that outlive its associations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Distance between the I/O thread's NUMA node and the path's network device, on the scale of ACPI's SLIT (10 is
    /// local, as in `/sys/devices/system/node/node*/distance`).
    pub numa_distance: u32,
}

impl Default for PathConfig {
    /// Local.
    fn default() -> Self {
        Self { numa_distance: 10 }
    }
}

/// Properties of a new association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Association {
    /// The number of the association. It is greater than that of every earlier association of the path, and of paths
    /// that had its id before.
    pub epoch: Epoch,
    /// The ANA states of the disks' namespaces.
    pub ana: AnaStates,
    /// The controller has a volatile write cache (Identify Controller, VWC bit 0): completed writes need a flush to be
    /// durable.
    pub volatile_write_cache: bool,
    /// Requests that the queue pair can take. It bounds the window of this path.
    pub queue_depth: u16,
}

#[derive(Debug)]
pub(crate) struct Path {
    /// A path has this id.
    pub(crate) added: bool,
    pub(crate) config: PathConfig,
    /// `None` while the path is down.
    pub(crate) association: Option<Association>,
    pub(crate) last_epoch: Option<Epoch>,
    pub(crate) usage: Usage,
    /// The path has room for another request below this number of requests: see [`Path::update_slots`].
    pub(crate) slots: u32,
    /// Usage by class, without flushes.
    pub(crate) by_class: [Usage; 3],
    /// State of the path for each disk.
    pub(crate) per_disk: Vec<PathDiskState>,
    /// Silence of the live association.
    pub(crate) watch: SilenceWatch,
    pub(crate) read_deadlines: ReadDeadlines,
    /// By class: the last request that the live association has answered, without reads and flushes.
    pub(crate) last: [Option<LastLatency>; 3],
    /// By class: when the latest answered request was bound.
    pub(crate) answered_to: [Option<Instant>; 3],
    /// The earliest time at which a command of the live association can reach the I/O timeout. `None`: there is no
    /// command.
    pub(crate) expires_at: Option<Instant>,
    /// `None` while no injection is in force.
    pub(crate) injections: Option<Box<PathInjections>>,
    /// The probe under way.
    pub(crate) probe: Option<Probe>,
    /// The path is drained: it gets only the flushes that it owes. This outlives associations.
    pub(crate) draining: bool,
    /// Requests in flight by class, oldest first, without flushes.
    pub(crate) in_flight: [InFlightList; 3],
    /// Requests in doubt, and the associations with the fences that they wait for.
    pub(crate) fenced: Vec<(Epoch, Tag)>,
    pub(crate) stats: [ClassStats; 3],
    /// `None` before the first request of the class that succeeds.
    pub(crate) recent_latencies: [Option<Box<RecentLatencies>>; 3],
    /// The median latency of reads here, hedges included, while reads are hedged.
    pub(crate) read_latencies: Quantiles,
    /// How often the path became suspect.
    pub(crate) suspicions: u64,
    /// Reads recalled from it.
    pub(crate) recalled: u64,
    /// Probes sent on the path.
    pub(crate) probes: u64,
    /// Hedges sent on the path, and those of them that answered first.
    pub(crate) hedges: u64,
    pub(crate) hedges_won: u64,
    /// Requests that have failed for good since the last success.
    pub(crate) failed_in_row: u32,
    /// Daemon flushes that are not answered.
    pub(crate) daemon_flushes: u32,
    pub(crate) first_move: FirstMove,
}

/// State of a path for one disk.
#[derive(Debug)]
pub(crate) struct PathDiskState {
    /// The rest after a path error. Most path errors concern one namespace.
    pub(crate) rest: PathErrorRest,
    /// Flushes with a queued command for this path.
    pub(crate) flushes: VecDeque<Tag>,
    /// The cache period of the live association, or of the last one.
    pub(crate) cache_period: CachePeriod,
    /// The time since which the first of these flushes waits for the path to be usable.
    pub(crate) unusable_since: Option<Instant>,
    /// The daemon flush under way: the association, and the round that the flush will cover.
    pub(crate) daemon_flush: Option<(Epoch, Round)>,
    /// The controller has asked for no other daemon flush before this time.
    pub(crate) daemon_flush_after: Option<Instant>,
    /// Daemon flushes in a row that the controller has not carried out.
    pub(crate) daemon_flush_retries: u32,
}

impl PathDiskState {
    fn new() -> Self {
        Self {
            rest: PathErrorRest::default(),
            flushes: VecDeque::new(),
            cache_period: Epoch(0).into(),
            unusable_since: None,
            daemon_flush: None,
            daemon_flush_after: None,
            daemon_flush_retries: 0,
        }
    }

    /// Whether a daemon flush may begin.
    pub(crate) fn may_begin_daemon_flush(&self, now: Instant) -> bool {
        self.daemon_flush.is_none() && self.daemon_flush_after.is_none_or(|after| after <= now)
    }
}

/// Whether a path may get requests of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The path is not live.
    Down,
    /// The ANA state of the namespace allows no I/O.
    NotAccessible(AnaState),
    /// The path rests after a path error.
    Resting {
        /// The end of the rest.
        until: Instant,
    },
    /// The path is drained.
    Draining,
    /// The path is suspect. It gets requests only without a usable path.
    Suspect(AnaState),
    /// The path is usable.
    Usable(AnaState),
}

/// A probe: a read of existing data that measures the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub(crate) began: Instant,
    /// The disk that the probe reads.
    pub(crate) disk: DiskId,
    pub(crate) bytes: u32,
    /// The injection of the path lets it fail.
    pub(crate) fails: bool,
    pub(crate) state: ProbeState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeState {
    /// Delayed or stalled by the injection of the path.
    Injected,
    /// Ready for the driver.
    Released,
    /// With the driver.
    Issued,
    /// Answered, with this success. The injection of the path delays or stalls the answer.
    Answered(bool),
}

impl Path {
    /// State of an id without a path, for this number of disks.
    pub(crate) fn vacant(suspect_timeout: Duration, disks: usize) -> Self {
        Self {
            added: false,
            config: PathConfig::default(),
            association: None,
            last_epoch: None,
            usage: Usage::default(),
            slots: 0,
            by_class: [Usage::default(); 3],
            per_disk: (0..disks).map(|_| PathDiskState::new()).collect(),
            watch: SilenceWatch::new(suspect_timeout),
            read_deadlines: ReadDeadlines::new(suspect_timeout),
            last: [None; 3],
            answered_to: [None; 3],
            expires_at: None,
            injections: None,
            probe: None,
            draining: false,
            in_flight: [InFlightList::default(); 3],
            fenced: Vec::new(),
            stats: std::array::from_fn(|_| ClassStats::new()),
            recent_latencies: [const { None }; 3],
            read_latencies: Quantiles::new(500, SAMPLES_MIN),
            suspicions: 0,
            recalled: 0,
            probes: 0,
            hedges: 0,
            hedges_won: 0,
            failed_in_row: 0,
            daemon_flushes: 0,
            first_move: FirstMove::default(),
        }
    }

    /// Forgets what the last association owed and what was known of it.
    pub(crate) fn reset_watch(&mut self, suspect_timeout: Duration) {
        self.watch = SilenceWatch::new(suspect_timeout);
        self.read_deadlines = ReadDeadlines::new(suspect_timeout);
        self.last = [None; 3];
        self.answered_to = [None; 3];
        self.expires_at = None;
    }

    /// Starts the I/O timeout, unless it runs already: the driver gets a command, or an injection stalls one.
    pub(crate) fn issued(&mut self, now: Instant, io_timeout: Duration) {
        self.expires_at.get_or_insert_with(|| now + io_timeout);
    }

    /// Clears `expires_at` if the path owes nothing.
    pub(crate) fn clear_expiry_if_idle(&mut self) {
        if !self.owes() {
            self.expires_at = None;
        }
    }

    /// Whether a command of the live association has no answer, or an injection keeps the answer.
    pub(crate) fn owes(&self) -> bool {
        self.watch.owes()
            || self.probe.is_some_and(|probe| probe.state == ProbeState::Issued)
            || self.daemon_flushes > 0
    }

    /// Updates the number of requests that the live path can take. The window counts only requests with a waiter. The queue
    /// pair also holds abandoned requests, a probe and daemon flushes.
    pub(crate) fn update_slots(&mut self, window: Window) {
        let depth = self.association.as_ref().map_or(0, |association| u32::from(association.queue_depth));
        let others = self.watch.abandoned() + u32::from(self.probe.is_some()) + self.daemon_flushes;
        self.slots = depth.saturating_sub(others).min(window.ios.max(1));
    }

    /// Whether the live path can take one more request now.
    #[inline]
    pub(crate) fn has_room(&self, window: Window, bytes: u32) -> bool {
        self.usage.ios < self.slots && self.usage.has_room_for(window, bytes)
    }

    /// Counts a request that succeeded; `at` is the time since the start of the group.
    #[inline]
    pub(crate) fn record_success(&mut self, class: OpClass, bytes: u32, latency: Duration, at: Duration) {
        self.stats[class.index()].record_success(bytes, latency);
        let recent = &mut self.recent_latencies[class.index()];
        recent.get_or_insert_with(|| Box::new(RecentLatencies::EMPTY)).record(at, latency);
    }

    /// The latencies by class since the last [`Path::take_minute`].
    pub(crate) fn untaken(&self) -> ClassLatencies {
        self.recent_latencies.each_ref().map(|recent| recent.as_ref()?.untaken())
    }

    /// Begins the next minute.
    pub(crate) fn take_minute(&mut self) {
        self.recent_latencies.iter_mut().flatten().for_each(|recent| recent.take());
    }

    /// The counters at `at`, the time since the start of the group.
    pub(crate) fn class_stats(&self, at: Duration) -> [ClassStats; 3] {
        let mut classes = self.stats.clone();
        for (class, latencies) in classes.iter_mut().zip(&self.recent_latencies) {
            class.latency_1s = latencies.as_ref().and_then(|latencies| latencies.last_second(at));
            class.latency_60s = latencies.as_ref().and_then(|latencies| latencies.last_minute(at));
            class.ios_1s = class.latency_1s.as_ref().map_or(0, |counts| counts.requests());
            class.ios_60s = class.latency_60s.as_ref().map_or(0, |counts| counts.requests());
        }
        classes
    }

    /// The ANA state in which the path may take I/O of the disk, or why it may not. Flushes also go to drained and suspect
    /// paths.
    pub(crate) fn takes_requests(&self, now: Instant, disk: DiskId) -> Result<AnaState, Standing> {
        let ana = self.association.as_ref().ok_or(Standing::Down)?.ana.of(disk);
        if !ana.is_selectable() {
            return Err(Standing::NotAccessible(ana));
        }
        let rest_ends = self.per_disk[disk.index()].rest.ends(now);
        rest_ends.map_or(Ok(ana), |until| Err(Standing::Resting { until }))
    }

    /// Whether the path may get requests of the disk now, or why not.
    pub(crate) fn standing(&self, now: Instant, disk: DiskId) -> Standing {
        match self.takes_requests(now, disk) {
            Err(standing) => standing,
            Ok(_) if self.draining => Standing::Draining,
            Ok(ana) if self.watch.is_suspect() => Standing::Suspect(ana),
            Ok(ana) => Standing::Usable(ana),
        }
    }

    /// Whether the disk's namespace accepts I/O on this path, apart from a rest.
    pub(crate) fn leads_to(&self, disk: DiskId) -> bool {
        self.association.as_ref().is_some_and(|live| live.ana.of(disk).is_selectable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many requests a path takes at once.
    fn slots(ios: u32, queue_depth: u16, daemon_flushes: u32) -> u32 {
        let window = Window { ios, bytes: 1 << 20 };
        let association =
            Association { epoch: Epoch(1), ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth };
        let mut path = Path::vacant(Duration::from_millis(300), 1);
        assert!(!path.has_room(window, 0), "a path that is down has no room");
        (path.association, path.daemon_flushes) = (Some(association), daemon_flushes);
        path.update_slots(window);
        while path.has_room(window, 512) {
            path.usage.take(512);
        }
        path.usage.ios
    }

    #[test]
    fn window_and_queue_pair_limit_requests() {
        assert_eq!(slots(2, 8, 0), 2);
        assert_eq!(slots(8, 3, 0), 3);
        assert_eq!(slots(8, 3, 1), 2);
        assert_eq!((slots(0, 8, 0), slots(0, 8, 8)), (1, 0), "an idle path takes one request");
    }
}
