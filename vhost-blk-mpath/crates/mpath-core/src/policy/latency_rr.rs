//! `latency-rr`: in turn over the paths whose latency is near the best.
//!
//! Rule: round-robin over the paths whose average latency is within 125 % of the lowest average. Source: the btrfs read
//! policy of this name in Kai Krakow's series (`fs/btrfs/volumes.c`), there for reads of mirrored devices; here reads,
//! writes and other operations are estimated apart.
//!
//! What the published rule leaves open, or what does not hold here:
//!
//! * **Average.** A mean over everything since the start no longer moves after a minute. Ours is a plain mean at first,
//!   then forgets by count (`MEMORY_SAMPLES`) and by time (`MEMORY`), whichever is faster: long enough that chance does
//!   not throw equal paths out of the band, and a jump to many times the average still counts at once, because it
//!   enters in full.
//! * **Young averages.** An average of few samples is doubted by a factor of `1 + 1/√n`, less what is left of that at
//!   full memory, in favour of the path in question and to the disadvantage of the best. Otherwise one unlucky sample
//!   would shut a good path out until its next probe, or one lucky sample all the others.
//! * **Silence.** A path that stops answering produces no samples, but what it holds grows old, and an age is a lower
//!   bound of a latency to come. Once nothing has come back for longer than the band allows, counted from the latest
//!   answer or the oldest request in flight, whichever is later, that time stands for the average. (A single request
//!   that takes longer while others come back is ordinary scatter.)
//! * **Rehabilitation.** A path that is not chosen is not measured. Published: after 10,000 I/Os it gets a burst of
//!   100. With 30 ms between the paths that costs 85 % of the IOPS at queue depth 1. Ours goes by time: one real
//!   request, when at least `PROBE_COST` times the latency it may cost has passed since the last probe (limits:
//!   `PROBE_REST_MIN`, `PROBE_REST_MAX`), one at a time per class, the longest-unmeasured path first. So probes cost
//!   about 3 % at queue depth 1, and nothing is frozen out for good. An average that old is replaced by the probe's
//!   result.
//! * **Full windows.** If every path in the band is full, the request waits: a far slower path would answer later than
//!   the wait takes. Only a path that answers before the whole queue has got through on the good ones is used, that is
//!   if `latency < best · (1 + queued / in flight on the band)`. Source: the ECF scheduler (Lim et al., CoNEXT '17).

use std::time::{Duration, Instant};

use super::{About, Candidate, Choice, Completed, Param, Policy, PolicySpec, Query, next_after};
use crate::PathId;
use crate::path::MAX_PATHS;

pub(super) const ABOUT: About = About {
    name: "latency-rr",
    aliases: &[],
    description: "in turn over the paths within 125 % of the lowest average latency",
    params: &[Param::ratio(
        "threshold",
        (1000, 10_000),
        1250,
        "a path takes part while its average latency is at most this many times the lowest",
    )],
    build: |spec, seed| Box::new(LatencyRr::new(spec, seed)),
};

/// Samples the average remembers. Two equal paths with exponentially distributed latencies then differ by 25 % only at
/// more than five standard deviations.
const MEMORY_SAMPLES: f64 = 512.0;
/// Time the average remembers, s: slow paths deliver few samples.
const MEMORY: f64 = 0.25;
/// In latencies of the path to be probed: rest between two probes of a class.
const PROBE_COST: u32 = 32;
/// Shortest rest between two probes.
const PROBE_REST_MIN: Duration = Duration::from_millis(500);
/// Longest rest between two probes.
const PROBE_REST_MAX: Duration = Duration::from_secs(4);
/// Up to 1/8 is added to each rest at random, lest many threads and hosts probe in step.
const PROBE_JITTER: u32 = 8;
/// Shortest and longest time to ask again when a request waits for a full path.
const AGAIN: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(100));

/// What is known of one path and class.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Average in ns; 0 is unknown.
    mean_ns: u64,
    /// The average, less and plus what it is to be doubted by.
    low_ns: u64,
    high_ns: u64,
    /// Samples it is worth.
    samples: f64,
    sampled_at: Option<Instant>,
    chosen_at: Option<Instant>,
}

impl Estimate {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // means of ns stay far below 2^52
    fn sample(&mut self, now: Instant, latency: Duration) {
        let gap = self.sampled_at.map_or(f64::INFINITY, |at| (now - at).as_secs_f64());
        let by_time = (MEMORY / gap).max(1.0);
        self.samples = (self.samples + 1.0).min(MEMORY_SAMPLES).min(by_time);
        let old = self.mean_ns as f64;
        let mean = old + (latency.as_nanos() as f64 - old) / self.samples;
        self.mean_ns = (mean as u64).max(1);
        let doubt = 1.0 + self.samples.sqrt().recip() - MEMORY_SAMPLES.sqrt().recip();
        self.low_ns = (mean / doubt) as u64;
        self.high_ns = (mean * doubt) as u64;
        self.sampled_at = Some(now);
    }
}

/// A candidate as this policy sees it now.
#[derive(Clone, Copy, Debug)]
struct View {
    path: PathId,
    has_room: bool,
    /// Requests of all classes in flight, and whether there is one of the class in question.
    in_flight: u32,
    busy: bool,
    /// Average, or the time of silence; `None` is unknown.
    latency_ns: Option<u64>,
    /// The same, less and plus what it is to be doubted by.
    low_ns: u64,
    high_ns: u64,
    chosen_at: Option<Instant>,
}

impl View {
    fn new(now: Instant, candidate: &Candidate, estimate: &Estimate, threshold: Threshold) -> Self {
        let mean = estimate.mean_ns;
        let bound_at = candidate.oldest.map(|oldest| oldest.bound_at);
        let silence = bound_at.map_or(0, |bound_at| nanos(now - estimate.sampled_at.unwrap_or(bound_at).max(bound_at)));
        let at_least = if silence > threshold.above(mean) { silence } else { 0 };
        Self {
            path: candidate.path,
            has_room: candidate.has_room,
            in_flight: candidate.in_flight,
            busy: candidate.oldest.is_some(),
            latency_ns: (mean != 0).then_some(mean.max(at_least)),
            low_ns: estimate.low_ns.max(at_least),
            high_ns: estimate.high_ns.max(at_least),
            chosen_at: estimate.chosen_at,
        }
    }

    fn is_in_band(&self, band_ns: u64) -> bool {
        self.latency_ns.is_some() && self.low_ns <= band_ns
    }

    fn is_outside_band(&self, band_ns: u64) -> bool {
        self.latency_ns.is_some() && self.low_ns > band_ns
    }
}

/// The band, in thousandths of the best average.
#[derive(Clone, Copy, Debug)]
struct Threshold(u64);

impl Threshold {
    /// The limit of the band above a latency.
    fn above(self, latency_ns: u64) -> u64 {
        latency_ns.saturating_mul(self.0) / 1000
    }
}

#[derive(Debug)]
pub(super) struct LatencyRr {
    threshold: Threshold,
    estimates: Vec<[Estimate; 3]>,
    last: [Option<PathId>; 3],
    /// The path and time of the last probe.
    probe: [Option<(PathId, Instant)>; 3],
    /// Present jitter, of 1024.
    jitter: u32,
    random: u64,
    /// Scratch space of `select`.
    views: Vec<View>,
}

impl LatencyRr {
    fn new(spec: &PolicySpec, seed: u64) -> Self {
        let mut policy = Self {
            threshold: Threshold(0),
            estimates: vec![[Estimate::default(); 3]; MAX_PATHS],
            last: [None; 3],
            probe: [None; 3],
            jitter: 0,
            random: seed,
            views: Vec::new(),
        };
        policy.configure(spec);
        policy.draw_jitter();
        policy
    }

    /// splitmix64.
    fn draw_jitter(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.jitter = ((z ^ (z >> 31)) % 1024) as u32;
    }

    /// A path outside the band whose turn to be measured has come.
    fn due_probe(&self, query: &Query, band_ns: u64) -> Option<PathId> {
        let outside = || self.views.iter().filter(|v| v.is_outside_band(band_ns));
        let path = outside().filter(|v| v.has_room && !v.busy).min_by_key(|v| v.chosen_at)?;
        let last = self.probe[query.class.index()];
        if last.is_some_and(|(probed, _)| outside().any(|v| v.path == probed && v.busy)) {
            return None;
        }
        let cost = Duration::from_nanos(path.latency_ns?).saturating_mul(PROBE_COST);
        let rest = cost.clamp(PROBE_REST_MIN, PROBE_REST_MAX);
        let rest = rest + rest / PROBE_JITTER * self.jitter / 1024;
        let rested = |at: Option<Instant>| at.is_none_or(|at| query.now - at >= rest);
        (rested(path.chosen_at) && rested(last.map(|(_, at)| at))).then_some(path.path)
    }

    fn decide(&self, query: &Query) -> Decision {
        let last = self.last[query.class.index()];
        let with_room = || self.views.iter().filter(|v| v.has_room);
        let Some(best_ns) = self.views.iter().filter_map(|v| v.latency_ns).min() else {
            // Nothing is known of any path.
            return next_after(last, with_room().map(|v| v.path))
                .map_or(Decision::Wait { again: None }, Decision::Turn);
        };
        let known = self.views.iter().filter(|v| v.latency_ns.is_some());
        let band_ns = self.threshold.above(known.map(|v| v.high_ns).min().unwrap_or(u64::MAX));

        // A path never measured is measured at once, by one request at a time.
        if let Some(new) = with_room().find(|v| v.latency_ns.is_none() && !v.busy) {
            return Decision::Aside(new.path);
        }
        if let Some(path) = self.due_probe(query, band_ns) {
            return Decision::Probe(path);
        }
        let turns = with_room().filter(|v| v.is_in_band(band_ns)).map(|v| v.path);
        if let Some(path) = next_after(last, turns) {
            return Decision::Turn(path);
        }

        let in_band = self.views.iter().filter(|v| v.is_in_band(band_ns));
        let in_flight: u32 = in_band.map(|v| v.in_flight).sum();
        let queue_ns = best_ns.saturating_mul(query.queued as u64) / u64::from(in_flight.max(1));
        let sooner_ns = best_ns.saturating_add(queue_ns);
        let other = with_room().filter_map(|v| Some((v.latency_ns?, v.path))).min();
        match other {
            Some((latency_ns, path)) if latency_ns < sooner_ns => Decision::Aside(path),
            _ => {
                let wait = Duration::from_nanos(best_ns).clamp(AGAIN.0, AGAIN.1);
                Decision::Wait { again: Some(query.now + wait) }
            }
        }
    }
}

/// What is decided, and so what is to be remembered.
#[derive(Clone, Copy, Debug)]
enum Decision {
    /// The next path in turn.
    Turn(PathId),
    /// A path out of turn: new, or used because the queue is long.
    Aside(PathId),
    /// A path outside the band, to measure it again.
    Probe(PathId),
    Wait {
        again: Option<Instant>,
    },
}

impl Policy for LatencyRr {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let class = query.class.index();
        self.views.clear();
        let (estimates, threshold) = (&self.estimates, self.threshold);
        let view = |c: &Candidate| View::new(query.now, c, &estimates[c.path.index()][class], threshold);
        self.views.extend(candidates.iter().map(view));
        let path = match self.decide(query) {
            Decision::Wait { again } => return Choice::Wait { again },
            Decision::Turn(path) => {
                self.last[class] = Some(path);
                path
            }
            Decision::Aside(path) => path,
            Decision::Probe(path) => {
                self.probe[class] = Some((path, query.now));
                self.draw_jitter();
                path
            }
        };
        self.estimates[path.index()][class].chosen_at = Some(query.now);
        Choice::Path(path)
    }

    fn completed(&mut self, done: &Completed) {
        // What was recalled would have taken longer still; without it the path would be remembered by what it answered in good
        // days.
        self.estimates[done.path.index()][done.class.index()].sample(done.now, done.latency);
    }

    fn path_changed(&mut self, path: PathId) {
        self.estimates[path.index()] = [Estimate::default(); 3];
    }

    fn configure(&mut self, spec: &PolicySpec) {
        self.threshold = Threshold(spec.thousandths("threshold"));
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpClass;
    use crate::policy::testing::{busy, candidate, done, full, path, read};
    use crate::policy::{Oldest, PolicyKind};

    const MS: Duration = Duration::from_millis(1);
    const READ: OpClass = OpClass::Read;

    /// Paths with a long history of these latencies in µs, the latest sample just now.
    fn known(now: Instant, latencies: &[u64]) -> LatencyRr {
        let mut policy = LatencyRr::new(&PolicyKind::LatencyRr.into(), 1);
        for n in (0..1000).rev() {
            for (id, us) in (0..).map(PathId).zip(latencies) {
                let at = now.checked_sub(Duration::from_micros(n * 100)).expect("the clock is past 100 ms");
                policy.estimates[id.index()][READ.index()].chosen_at = Some(at);
                policy.completed(&done(at, id.0, Duration::from_micros(*us)));
            }
        }
        policy
    }

    fn start() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    /// The next choices of a policy on idle paths.
    fn choices(policy: &mut LatencyRr, now: Instant, paths: u16, count: usize) -> Vec<Choice> {
        let candidates: Vec<Candidate> = (0..paths).map(candidate).collect();
        (0..count).map(|_| policy.select(&read(now), &candidates)).collect()
    }

    #[test]
    fn takes_turns_within_125_percent_of_the_best() {
        let now = start();
        let mut policy = known(now, &[1240, 1260, 1000, 30_000]);
        assert_eq!(choices(&mut policy, now, 4, 4), [path(0), path(2), path(0), path(2)]);
    }

    #[test]
    fn a_new_path_is_measured_at_once_by_one_request() {
        let now = start();
        let mut policy = known(now, &[1000]);
        assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(1));
        assert_eq!(policy.select(&read(now), &[candidate(0), busy(1, now)]), path(0));
        policy.completed(&done(now, 1, 30 * MS));
        assert_eq!(choices(&mut policy, now, 2, 2), [path(0), path(0)]);
    }

    #[test]
    fn one_unlucky_sample_does_not_shut_a_path_out() {
        let now = start();
        let mut policy = known(now, &[1000]);
        policy.completed(&done(now, 1, Duration::from_micros(1800)));
        assert!(choices(&mut policy, now, 2, 2).contains(&path(1)));
        // Nor does one lucky sample shut out all the others.
        policy.completed(&done(now + MS, 2, Duration::from_micros(500)));
        assert!(choices(&mut policy, now + MS, 3, 3).contains(&path(0)));
    }

    #[test]
    fn a_jump_counts_with_the_first_samples() {
        let now = start();
        let mut policy = known(now, &[200, 200]);
        assert!(choices(&mut policy, now, 2, 2).contains(&path(0)));
        for _ in 0..2 {
            policy.completed(&done(now, 0, 30 * MS));
        }
        assert_eq!(choices(&mut policy, now, 2, 2), [path(1), path(1)]);
    }

    #[test]
    fn silence_counts_before_any_sample() {
        let now = start();
        let mut policy = known(now, &[1000, 1000]);
        let stuck = busy(0, now);
        let mut at = |us| {
            let query = read(now + Duration::from_micros(us));
            [policy.select(&query, &[stuck, candidate(1)]), policy.select(&query, &[stuck, candidate(1)])]
        };
        assert!(at(1200).contains(&path(0)));
        assert_eq!(at(1300), [path(1), path(1)]);
    }

    #[test]
    fn probes_come_one_at_a_time_after_a_rest() {
        let mut now = start();
        let mut policy = known(now, &[200, 30_000]);
        assert_eq!(choices(&mut policy, now, 2, 1), [path(0)]);
        // 32 × 30 ms and up to 1/8 more.
        now += 1081 * MS;
        policy.completed(&done(now, 0, MS / 5));
        assert_eq!(choices(&mut policy, now, 2, 1), [path(1)]);
        now += 5000 * MS;
        policy.completed(&done(now, 0, MS / 5));
        let probed = busy(1, now);
        assert_eq!(policy.select(&read(now), &[candidate(0), probed]), path(0), "still under way");
        // Good again: its old average is forgotten.
        policy.completed(&done(now, 1, MS / 5));
        assert!(choices(&mut policy, now, 2, 2).contains(&path(1)));
    }

    #[test]
    fn waits_for_a_full_good_path_and_asks_again() {
        let now = start();
        let mut policy = known(now, &[1000, 30_000]);
        let good = Candidate { oldest: Some(Oldest { bound_at: now, bytes: 4096 }), ..full(0) };
        let again = Some(now + MS);
        assert_eq!(policy.select(&read(now), &[good, candidate(1)]), Choice::Wait { again });
        // A queue that takes 40 ms to get through on the good path is worse than the other one.
        let query = Query { queued: 40, ..read(now) };
        assert_eq!(policy.select(&query, &[good, candidate(1)]), path(1));
    }

    #[test]
    fn classes_are_apart_and_a_changed_path_is_new() {
        let now = start();
        let mut policy = known(now, &[200, 30_000]);
        assert_eq!(policy.estimates[0][OpClass::Write.index()].mean_ns, 0);
        policy.path_changed(PathId(1));
        assert_eq!(choices(&mut policy, now, 2, 1), [path(1)]);
    }
}
