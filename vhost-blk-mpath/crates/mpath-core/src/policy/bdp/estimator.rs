//! Decides: a window is this large (`window`).
//!
//! The estimate of one path for one class of requests, and the window that follows from it.
//!
//! ```text
//!            3 loaded buckets that do not grow          every PERIOD, if busy
//!   Search ─────────────────────────────────→ Cruise ───────────────────────→  Cut
//!    ↑ │ ↖─────────── a slowdown ──────────────┘  ↖─ queue found and removed ──┤
//!    │ └────────────────── every PERIOD, if never loaded ─────────────────────→│
//!    └──────────────────── no queue: the path's limit is not known ────────────┘
//! ```
//! * **Search**: the window doubles with each bucket until the path delivers no more. A *bucket* is a run of answers
//!   that gives one measured rate. While the guest does not fill the window, the rate is a lower bound, and the path
//!   counts as one that takes all it gets.
//! * **Cruise**: the window is the bandwidth-delay product. Every eighth bucket it is a quarter larger, to see
//!   whether the path can deliver more.
//! * **Cut**: until some requests are answered, the window is a quarter smaller, so that no request queues behind another. Only then
//!   the path's own latency shows. While requests still queue, the window is halved again. A path that is not loaded
//!   may still carry all that the guest sends, with queued requests. A lower latency with fewer requests tells the
//!   two cases apart.

use std::fmt;

use monotonic::{Duration, Instant};

use super::latency::{LatencyFilter, Mean};
use super::rate::{Delivered, RateFilter};
use super::sizes::Sizes;
use super::slowdown::SlowdownAlarm;
use super::window_cut::{Step, WindowCut};

/// The shortest time between two cuts: the longer of `PERIOD` and `PERIOD_LATENCIES` latencies of the path.
const PERIOD: Duration = Duration::from_secs(4);
const PERIOD_LATENCIES: f64 = 200.0;
/// How long mean latencies count, as a multiple of that time.
const MEMORY: f64 = 2.5;
/// A path below `BELOW_RATE` of its rate has no queue. If it still takes more than `ABOVE_EXPECTATION` times the
/// expectation, its window is cut, unless the last cut is younger than `CUT_REST` and `CUT_REST_LATENCIES`.
const BELOW_RATE: f64 = 0.8;
const ABOVE_EXPECTATION: f64 = 1.25;
const CUT_REST: Duration = Duration::from_millis(250);
const CUT_REST_LATENCIES: f64 = 20.0;
/// Unloaded buckets before the first cut of a search.
const UNLOADED: u32 = 8;
/// The loaded buckets without growth that end the search, and the factor that counts as growth.
const STALLS: u32 = 3;
const GROWTH: f64 = 1.25;
/// Every `UP_EVERY` buckets the window is larger for `UP_BUCKETS`. It stays larger after a gain of at least
/// `UP_GAIN`.
const UP_EVERY: u32 = 8;
const UP_BUCKETS: u32 = 2;
const UP_GAIN: f64 = 1.1;
/// A path that takes less than this part of its former latency starts anew.
const MUCH_SHORTER: f64 = 0.25;
/// Gains of the window: in a search, in a larger window, and in the first step of a cut (`DOWN` with a known limit,
/// `HALF` without).
const SEARCH_GAIN: f64 = 2.0;
const UP: f64 = 1.25;
const DOWN: f64 = 0.75;
const HALF: f64 = 0.5;
/// The window in requests before the first estimate.
const FIRST_WINDOW: f64 = 4.0;
/// The extra room of a window, in request sizes: rounding would otherwise leave it one request short.
const SLACK: f64 = 0.05;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Search {
        stalls: u32,
        unloaded: u32,
    },
    /// `up`: the buckets that are left with the larger window.
    Cruise {
        buckets: u32,
        up: u32,
    },
    WindowCut(WindowCut),
}

impl Phase {
    const SEARCH: Self = Self::Search { stalls: 0, unloaded: 0 };
    const CRUISE: Self = Self::Cruise { buckets: 0, up: 0 };
}

/// The estimator of one path and class.
#[derive(Clone, Debug)]
pub(super) struct Estimator {
    phase: Phase,
    rate: RateFilter,
    latency: LatencyFilter,
    slowdown: SlowdownAlarm,
    sizes: Sizes,
    /// Requests that were bound earlier do not count: the path has changed since.
    since: Option<Instant>,
    last_cut_at: Option<Instant>,
    /// The estimates: delay in s, rate in bytes per second. `None`: unknown.
    known: Option<(f64, f64)>,
    version: Version,
}

/// The number of changes of an estimate, over all of its restarts.
#[derive(Clone, Copy)]
struct Version(u64);

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Version").finish_non_exhaustive()
    }
}

impl Default for Estimator {
    fn default() -> Self {
        Self {
            phase: Phase::SEARCH,
            rate: RateFilter::default(),
            latency: LatencyFilter::default(),
            slowdown: SlowdownAlarm::default(),
            sizes: Sizes::default(),
            since: None,
            last_cut_at: None,
            known: None,
            version: Version(1),
        }
    }
}

impl Estimator {
    /// Forgets everything except the sizes. `mean` is the first estimate, if known.
    pub(super) fn restart(&mut self, now: Instant, mean: Option<Mean>) {
        let version = Version(self.version.0 + 1);
        *self = Self { sizes: self.sizes, since: Some(now), version, ..Self::default() };
        if let Some(mean) = mean {
            self.latency.replace(now, mean);
            self.estimate();
        }
    }

    /// A probe of an unused path shows `latency` for a request of the mean size. If this is about as long as the known
    /// latency, or longer, the known rate stays. If it is much shorter, the estimate starts anew.
    pub(super) fn probe_latency_changed(&mut self, now: Instant, latency: f64) {
        match self.path_latency() {
            Some(before) if latency > MUCH_SHORTER * before => {
                self.latency.replace(now, Mean { latency, size: self.size() });
                self.estimate();
            }
            _ => self.restart(now, None),
        }
    }

    /// Delay in s, and the least rate in bytes per second; infinite if none was measured.
    pub(super) fn known(&self) -> Option<(f64, f64)> {
        self.known
    }

    /// The highest measured rate in bytes per second; infinite if none was measured.
    pub(super) fn rate(&self) -> f64 {
        self.rate.max().unwrap_or(f64::INFINITY)
    }

    /// Whether this rate is the limit of the path.
    pub(super) fn limit_is_known(&self) -> bool {
        match self.phase {
            Phase::Search { stalls, .. } => stalls + 1 >= STALLS,
            Phase::Cruise { .. } => true,
            Phase::WindowCut(cut) => cut.limited,
        }
    }

    /// The mean size of its requests, bytes.
    pub(super) fn size(&self) -> f64 {
        self.sizes.mean()
    }

    /// The latency, in s, of a request of the mean size that is alone on the path.
    pub(super) fn path_latency(&self) -> Option<f64> {
        self.known.map(|(delay, rate)| delay + self.size() / rate)
    }

    /// While this number is the same, so are the estimates and the window.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.0
    }

    /// Takes note of another gain for [`Estimator::window`].
    pub(super) fn gain_changed(&mut self) {
        self.version.0 += 1;
    }

    /// The bytes that may be in flight, without the oldest request.
    ///
    /// A link that serves one request after the other is busy while a delay's worth of bytes is behind the request
    /// that is answered next. The size of that request does not matter. So a window in bytes suits mixed sizes.
    /// `unit` is the mean size of the guest's requests: the first requests of one path say little about later ones.
    pub(super) fn window(&self, cruise_gain: f64, unit: f64) -> f64 {
        let Some((delay, rate)) = self.known.filter(|(_, rate)| rate.is_finite()) else {
            return (FIRST_WINDOW - 1.0) * unit;
        };
        let product = rate * delay;
        let slack = SLACK * unit;
        match self.phase {
            Phase::Search { .. } => {
                let window = SEARCH_GAIN * product + slack + 0.5 * (product + unit);
                window.max((FIRST_WINDOW - 1.0) * unit)
            }
            Phase::Cruise { up: 0, .. } => cruise_gain * product + slack,
            Phase::Cruise { .. } => UP.max(cruise_gain) * product + slack,
            // No second request on a path that one request fills.
            Phase::WindowCut(cut) if cut.gain * product < 0.5 * unit => 0.0,
            Phase::WindowCut(cut) => cut.gain * product + slack,
        }
    }

    /// Counts a request of `bytes` that is bound behind `ahead` bytes in flight. `full`: it fills the window.
    pub(super) fn bound(&mut self, bytes: f64, ahead: f64, full: bool) {
        if let Phase::WindowCut(cut) = &mut self.phase {
            cut.bound(ahead);
        }
        self.sizes.add(bytes);
        if full {
            self.rate.filled();
        }
    }

    /// Takes the answer to a request of `bytes` after `latency`, with `left` bytes still in flight. `cruise_gain` is
    /// that of [`Estimator::window`]. Returns whether the path has changed.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        bytes: f64,
        latency: Duration,
        left: f64,
        cruise_gain: f64,
    ) -> bool {
        let bound_at = now.checked_sub(latency).unwrap_or(now);
        if self.since.is_some_and(|since| bound_at < since) {
            return false;
        }
        let latency = latency.as_secs_f64();
        if let Some((delay, rate)) = self.known.filter(|_| !self.latency.is_young()) {
            let expected = delay + (left + bytes).max(self.sizes.in_service() + self.size()) / rate;
            if self.slowdown.answered(latency, expected) {
                self.restart(now, Some(Mean { latency, size: bytes }));
                return true;
            }
        }
        if self.latency.answered(now, latency, bytes) {
            let memory = period(self.path_latency()).mul_f64(MEMORY);
            self.latency.end_slot(now, self.rate(), memory);
            self.estimate();
        }
        self.cut_answered(now, bound_at, latency, bytes);
        let searching = matches!(self.phase, Phase::Search { .. });
        // A bucket lasts for the estimated latency, which may be far too long.
        let may_end = self.rate.answered(now, bytes, latency, searching);
        let path_latency = || self.path_latency().unwrap_or(latency);
        let delivered = may_end.then(path_latency).and_then(|latency| self.rate.end_bucket(now, latency, searching));
        let changed = delivered.is_some_and(|delivered| self.bucket(now, delivered, cruise_gain));
        if delivered.is_some() || self.known.is_none_or(|_| self.latency.is_young()) {
            self.estimate();
        }
        changed
    }

    /// Handles the end of a bucket. Returns whether the path has changed.
    fn bucket(&mut self, now: Instant, delivered: Delivered, cruise_gain: f64) -> bool {
        let path_latency = self.path_latency().unwrap_or(delivered.latency);
        let before = self.rate.max();
        let is_cutting = matches!(self.phase, Phase::WindowCut(_));
        let searching = matches!(self.phase, Phase::Search { .. });
        if delivered.loaded && !is_cutting || searching || before.is_none_or(|rate| delivered.rate >= rate) {
            self.rate.remember(now, delivered.rate, path_latency);
        }
        let mean = Mean { latency: delivered.latency, size: delivered.size };
        let rested = |time| self.last_cut_at.is_none_or(|at| now - at >= time);
        let unexplained = self.known.is_some_and(|(delay, rate)| {
            delivered.rate < BELOW_RATE * rate
                && delivered.latency > ABOVE_EXPECTATION * (delay + delivered.size / rate)
        });
        let soon = CUT_REST.max(Duration::from_secs_f64((CUT_REST_LATENCIES * path_latency).min(1000.0)));
        let due = rested(period(self.path_latency()));
        let recheck = unexplained && rested(soon);
        match &mut self.phase {
            Phase::Search { stalls, unloaded } => {
                let grew = before.is_none_or(|rate| delivered.rate >= GROWTH * rate);
                *stalls = if delivered.loaded && !grew { *stalls + 1 } else { 0 };
                *unloaded = if delivered.loaded || grew { 0 } else { *unloaded + 1 };
                if *stalls >= STALLS {
                    // The path has never been without a queue: its own latency is unknown.
                    self.phase = Phase::WindowCut(WindowCut::new(now, HALF, true, mean, delivered.rate));
                } else if *unloaded >= UNLOADED && due || recheck && !delivered.loaded {
                    self.phase = Phase::WindowCut(WindowCut::new(now, HALF, false, mean, delivered.rate));
                }
            }
            Phase::Cruise { buckets, up } => {
                let grew = before.is_some_and(|rate| delivered.rate >= UP_GAIN * rate);
                *buckets += 1;
                // The first of two buckets mostly holds answers to earlier requests.
                let again = *up > 0 && delivered.loaded && grew || *buckets % UP_EVERY == 0;
                *up = if again { UP_BUCKETS } else { up.saturating_sub(1) };
                let busy = delivered.loaded || before.is_some_and(|rate| delivered.rate > 0.9 * rate);
                if busy && due || recheck {
                    self.phase = Phase::WindowCut(WindowCut::new(now, DOWN, true, mean, delivered.rate));
                }
            }
            Phase::WindowCut(_) => {}
        }
        self.estimate();
        if searching {
            return false;
        }
        let Some((delay, rate)) = self.known else { return false };
        let window = self.window(UP.max(cruise_gain), self.size());
        let expected = delay + (window + self.sizes.in_service() + self.size()) / rate;
        if self.slowdown.bucket(delivered.latency, expected) {
            self.restart(now, Some(Mean { latency: delivered.latency, size: delivered.size }));
            return true;
        }
        false
    }

    fn cut_answered(&mut self, now: Instant, bound_at: Instant, latency: f64, bytes: f64) {
        let rate = self.rate();
        let Phase::WindowCut(cut) = &mut self.phase else { return };
        let Some(step) = cut.answered(now, bound_at, latency, bytes, rate) else { return };
        self.phase = match step {
            Step::Continue(cut) => Phase::WindowCut(cut),
            Step::Done { mean, limited } => {
                self.latency.replace(now, mean);
                self.last_cut_at = Some(now);
                if limited { Phase::CRUISE } else { Phase::SEARCH }
            }
        };
        self.rate.restart();
        self.estimate();
    }

    fn estimate(&mut self) {
        self.version.0 += 1;
        let rate = self.rate();
        self.known = self.latency.best(rate).map(|mean| {
            // A path that carries one request in this time has at least this rate, however seldom the guest asks.
            let rate = rate.max(mean.size / mean.latency.max(f64::MIN_POSITIVE));
            (mean.delay(rate), rate)
        });
    }
}

/// The time between two cuts of a path with this latency (s).
fn period(path_latency: Option<f64>) -> Duration {
    let latency = path_latency.unwrap_or(0.0);
    PERIOD.max(Duration::from_secs_f64((PERIOD_LATENCIES * latency).min(1000.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: f64 = 4096.0;

    /// A link that always has as many requests as its window takes, at most `depth`.
    struct Link {
        now: Instant,
        estimator: Estimator,
        gain: f64,
        delay: f64,
        rate: f64,
        depth: usize,
        /// When each request was bound, and when it is answered.
        in_flight: std::collections::VecDeque<(Instant, Instant)>,
        free: Instant,
    }

    impl Link {
        fn new(delay: f64, rate: f64, depth: usize) -> Self {
            let now = Instant::now();
            let in_flight = std::collections::VecDeque::new();
            Self { now, estimator: Estimator::default(), gain: 1.05, delay, rate, depth, in_flight, free: now }
        }

        fn delay(&self) -> f64 {
            self.estimator.known().expect("measured").0
        }

        /// Runs the link for `time`. Returns whether a change was noticed.
        fn run(&mut self, time: Duration) -> bool {
            let end = self.now + time;
            let mut changed = false;
            while self.now < end {
                while self.in_flight.len() < self.depth {
                    let ahead = self.in_flight.len() as f64 * BYTES;
                    let room = self.estimator.window(self.gain, BYTES) - (ahead - BYTES);
                    if !self.in_flight.is_empty() && room <= 0.0 {
                        break;
                    }
                    self.estimator.bound(BYTES, ahead, !self.in_flight.is_empty() && room <= BYTES);
                    self.free = self.free.max(self.now) + Duration::from_secs_f64(BYTES / self.rate);
                    self.in_flight.push_back((self.now, self.free + Duration::from_secs_f64(self.delay)));
                }
                let (bound_at, at) = self.in_flight.pop_front().expect("never idle");
                self.now = at;
                let left = self.in_flight.len() as f64 * BYTES;
                changed |= self.estimator.answered(at, BYTES, at - bound_at, left, self.gain);
            }
            changed
        }
    }

    fn is_near(value: f64, expected: f64) {
        assert!((value / expected - 1.0).abs() < 0.03, "{value}, expected {expected}");
    }

    #[test]
    fn a_busy_link_is_known_soon_and_without_its_queue() {
        let mut link = Link::new(0.002, 125e6, 1000);
        assert!(!link.run(Duration::from_millis(400)));
        assert!(link.estimator.limit_is_known());
        is_near(link.estimator.rate(), 125e6);
        is_near(link.delay(), 0.002);
        // 61 requests, the request that is answered next, and at most a quarter more.
        assert!((62..=78).contains(&link.in_flight.len()), "{} in flight", link.in_flight.len());
        assert!(!link.run(Duration::from_secs(20)), "drains and larger windows are no changes");
        is_near(link.delay(), 0.002);
    }

    #[test]
    fn the_queue_that_a_larger_gain_makes_is_no_change() {
        for gain in [2.0, 4.0] {
            let mut link = Link { gain, ..Link::new(0.002, 125e6, 1000) };
            assert!(!link.run(Duration::from_secs(20)), "gain {gain}");
            is_near(link.delay(), 0.002);
            is_near(link.estimator.rate(), 125e6);
        }
    }

    #[test]
    fn a_link_that_is_not_filled_counts_as_one_that_takes_everything() {
        let mut link = Link::new(0.002, 125e6, 8);
        link.run(Duration::from_secs(10));
        assert!(!link.estimator.limit_is_known());
        is_near(link.estimator.path_latency().expect("measured"), 0.002 + BYTES / 125e6);
    }

    #[test]
    fn a_link_that_the_guest_just_fills_is_known_by_its_queue() {
        // 7.1 requests fill it.
        let mut link = Link::new(0.0002, 125e6, 10);
        link.run(Duration::from_secs(1));
        assert!(link.estimator.limit_is_known());
        is_near(link.delay(), 0.0002);
    }

    #[test]
    fn changes_of_delay_and_rate_are_noticed() {
        let mut link = Link::new(0.0002, 125e6, 64);
        link.run(Duration::from_secs(5));
        link.delay = 0.030;
        assert!(link.run(Duration::from_millis(200)), "a change is noticed");
        link.run(Duration::from_secs(5));
        is_near(link.estimator.path_latency().expect("measured"), 0.030 + BYTES / 125e6);
        link.delay = 0.0002;
        link.run(Duration::from_secs(5));
        is_near(link.delay(), 0.0002);
        link.rate = 500e6;
        link.run(Duration::from_secs(5));
        is_near(link.estimator.rate(), 500e6);
        link.rate = 50e6;
        link.run(Duration::from_secs(5));
        is_near(link.estimator.rate(), 50e6);
    }

    #[test]
    fn requests_bound_before_a_restart_do_not_count() {
        let mut link = Link::new(0.0002, 125e6, 64);
        link.run(Duration::from_secs(1));
        link.estimator.restart(link.now, None);
        assert!(!link.estimator.answered(link.now, BYTES, Duration::from_millis(1), 0.0, link.gain));
        assert_eq!(link.estimator.known(), None);
        assert!(link.estimator.size() > 0.0, "sizes are the guest's");
    }
}
