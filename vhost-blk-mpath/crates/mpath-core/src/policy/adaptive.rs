//! `adaptive`: turns in inverse proportion to smoothed latency.
//!
//! Rule: each path has a weight and a credit. The present path is used while its credit lasts; each request costs one
//! credit. Then the credit is refilled from the weight, and the turn goes to the next path. A path without a weight
//! is new and is used at once. Once per `interval` the average latency `avg` of a path updates its smoothed latency:
//! `s ← (s·(2^k − 1) + avg) / 2^k`, or `s ← avg` the first time. Then each path's weight is its part of the sum of
//! all `1/s`, in 64ths (`credits`), at least 1. Reads, writes and other requests are separate. Samples of 0 or over 1
//! s are ignored, and so are all samples while there is only one path. Source: the policy posted to linux-nvme as
//! "adaptive" for `drivers/nvme/host/multipath.c`.
//!
//! Differences, and what the rule leaves open:
//! * The first interval of a path ends with its first sample. Otherwise a new path would get all requests for 15 s.
//! * While another path has a weight, a new path gets one request at a time. It may be so slow that its samples are
//!   ignored, and would then stay new without end.
//! * A path with a full window loses its turn to the next path with room, and keeps its credit.
//! * Linux keeps statistics per CPU, this policy per I/O thread. A path that came, went or changed its ANA state has
//!   none.

use monotonic::{Duration, Instant};

use super::{Candidate, Choice, CompletedAttempt, Opinion, Param, Policy, PolicyInfo, PolicySpec, Query, next_after};
use crate::{MAX_PATHS, OpClass, PathEstimate, PathId};

/// Longer samples are ignored.
const SAMPLE_MAX: Duration = Duration::from_secs(1);

const INTERVAL: Param = Param::time(
    "interval",
    (Duration::from_millis(10), Duration::from_secs(300)),
    Duration::from_secs(15),
    "how often weights are made anew",
);
const SHIFT: Param = Param::whole("shift", "bits", (0, 8), 3, "k: an interval counts 1/2^k in the smoothed latency");
const CREDITS: Param =
    Param::whole("credits", "I/Os", (2, 4096), 64, "the sum of all weights: how long a round over the paths is");

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "adaptive",
    aliases: &[],
    description: "turns in inverse proportion to smoothed latency",
    params: &[INTERVAL, SHIFT, CREDITS],
    build: |spec, _| {
        let mut policy = Adaptive { paths: vec![[WeightedPath::default(); 3]; MAX_PATHS], ..Adaptive::default() };
        policy.configure(spec);
        Box::new(policy)
    },
};

/// One path and class.
#[derive(Clone, Copy, Debug, Default)]
struct WeightedPath {
    /// The sum of the latencies in the present interval.
    sum: Duration,
    count: u32,
    /// The end of the interval; `None` before the first sample.
    ends: Option<Instant>,
    /// Smoothed latency in ns; 0: unknown.
    smoothed_ns: u64,
    /// 0: the path is new.
    weight: u64,
    credit: u64,
}

#[derive(Clone, Debug, Default)]
struct Adaptive {
    interval: Duration,
    shift: u32,
    credits: u64,
    paths: Vec<[WeightedPath; 3]>,
    current: [Option<PathId>; 3],
    /// There was more than one path to choose from at the last request.
    choice: [bool; 3],
}

impl Adaptive {
    fn is_new(&self, candidate: &Candidate, class: usize) -> bool {
        self.paths[candidate.path.index()][class].weight == 0
    }

    /// Ends an interval of one path: updates its smoothed latency and the weights of all paths.
    fn reweigh(&mut self, path: PathId, class: usize) {
        let path = &mut self.paths[path.index()][class];
        let average = path.sum.as_nanos() / u64::from(path.count);
        path.smoothed_ns = match path.smoothed_ns {
            0 => average,
            // Averages are at most 1 s and shifts at most 8, so this stays below 2^38.
            old => (old * ((1 << self.shift) - 1) + average) >> self.shift,
        }
        .max(1);
        (path.sum, path.count) = (Duration::ZERO, 0);
        let score = |smoothed_ns: u64| 1_000_000_000_u64.checked_div(smoothed_ns).unwrap_or(0).max(1);
        let weighted = || self.paths.iter().map(|classes| &classes[class]).filter(|path| path.smoothed_ns != 0);
        let total: u64 = weighted().map(|path| score(path.smoothed_ns)).sum();
        for path in self.paths.iter_mut().map(|classes| &mut classes[class]).filter(|path| path.smoothed_ns != 0) {
            path.weight = (self.credits * score(path.smoothed_ns) / total).max(1);
        }
    }
}

/// While another path has a weight, a new path gets one request at a time.
fn is_being_measured(new: &Candidate, any_weight: bool) -> bool {
    any_weight && new.oldest.is_some()
}

impl Policy for Adaptive {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let class = query.class.index();
        self.choice[class] = candidates.len() > 1;
        let is_new = |candidate: &Candidate| self.is_new(candidate, class);
        let any_weight = !candidates.iter().all(is_new);
        let current = self.current[class];
        let new = candidates.iter().filter(|c| c.has_room && is_new(c) && !is_being_measured(c, any_weight));
        if let Some(path) = next_after(current, new.map(|c| c.path)) {
            self.current[class] = Some(path);
            return Choice::Path(path);
        }
        let with_room = || candidates.iter().filter(|c| c.has_room && !is_new(c)).map(|c| c.path);
        let Some(mut path) =
            with_room().find(|path| Some(*path) == current).or_else(|| next_after(current, with_room()))
        else {
            return Choice::Wait { again: None };
        };
        if self.paths[path.index()][class].credit == 0 {
            self.paths[path.index()][class].credit = self.paths[path.index()][class].weight;
            let others = candidates.iter().filter(|c| c.has_room).map(|c| c.path);
            path = next_after(Some(path), others.filter(|other| self.paths[other.index()][class].weight != 0))
                .unwrap_or(path);
        }
        let next = &mut self.paths[path.index()][class];
        next.credit = if next.credit == 0 { next.weight } else { next.credit } - 1;
        self.current[class] = Some(path);
        Choice::Path(path)
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        let class = query.class.index();
        let any_weight = !candidates.iter().all(|candidate| self.is_new(candidate, class));
        let opinion = |candidate: &Candidate| match self.paths[candidate.path.index()][class].weight {
            0 if is_being_measured(candidate, any_weight) => Opinion::BeingMeasured,
            0 => Opinion::Measurement,
            weight => Opinion::Weight { weight },
        };
        candidates.iter().map(opinion).collect()
    }

    fn completed(&mut self, done: &CompletedAttempt) {
        let class = done.class.index();
        if !self.choice[class] || done.latency.is_zero() || done.latency > SAMPLE_MAX {
            return;
        }
        let path = &mut self.paths[done.path.index()][class];
        path.sum += done.latency;
        path.count += 1;
        if path.ends.is_none_or(|ends| ends <= done.now) {
            path.ends = Some(done.now + self.interval);
            self.reweigh(done.path, class);
        }
    }

    fn path_changed(&mut self, path: PathId) {
        self.paths[path.index()] = [WeightedPath::default(); 3];
    }

    fn configure(&mut self, spec: &PolicySpec) {
        self.interval = spec.time(INTERVAL.name());
        self.shift = spec.number(SHIFT.name()) as u32;
        self.credits = spec.number(CREDITS.name());
        // Intervals under way have another length: the next sample ends them.
        self.paths.iter_mut().flatten().for_each(|path| path.ends = None);
    }

    fn estimate(&self, path: PathId, class: OpClass) -> PathEstimate {
        let path = &self.paths[path.index()][class.index()];
        PathEstimate {
            weight: Some(path.weight),
            latency: (path.smoothed_ns != 0).then(|| Duration::from_nanos(path.smoothed_ns)),
            ..PathEstimate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyKind;
    use crate::policy::testing::{busy, candidate, done, full, path, read};

    const MS: Duration = Duration::from_millis(1);

    fn adaptive(params: &[(&str, &str)]) -> Box<dyn Policy> {
        let spec = PolicySpec::new(PolicyKind::Adaptive, params.iter().copied()).expect("valid");
        PolicyKind::Adaptive.build(&spec, 0)
    }

    /// A policy with one sample of each of two paths.
    fn measured(now: Instant, latencies: [Duration; 2]) -> Box<dyn Policy> {
        let mut policy = adaptive(&[]);
        policy.select(&read(now), &[candidate(0), candidate(1)]);
        policy.completed(&done(now, 0, latencies[0]));
        policy.completed(&done(now, 1, latencies[1]));
        policy
    }

    fn weights(policy: &dyn Policy) -> [u64; 2] {
        [0, 1].map(|path| policy.estimate(PathId(path), OpClass::Read).weight.expect("it has weights"))
    }

    fn smoothed(policy: &dyn Policy, path: u16) -> Option<Duration> {
        policy.estimate(PathId(path), OpClass::Read).latency
    }

    #[test]
    fn a_turn_is_as_long_as_the_weight() {
        let now = Instant::now();
        let mut policy = measured(now, [MS, 3 * MS]);
        // Scores are whole numbers: 1000 and 333.
        assert_eq!(weights(&*policy), [48, 15]);
        let mut turns: Vec<(Choice, u32)> = Vec::new();
        for _ in 0..2 * 63 {
            let choice = policy.select(&read(now), &[candidate(0), candidate(1)]);
            match turns.last_mut() {
                Some((last, count)) if *last == choice => *count += 1,
                _ => turns.push((choice, 1)),
            }
        }
        assert_eq!(turns, [(path(1), 15), (path(0), 48), (path(1), 15), (path(0), 48)]);
        // Far slower paths keep a weight of 1.
        assert_eq!(weights(&*measured(now, [MS, 900 * MS])), [63, 1]);
    }

    #[test]
    fn intervals_are_averaged_and_smoothed() {
        let now = Instant::now();
        let mut policy = measured(now, [MS, MS]);
        for (n, ms) in [8, 10, 9, 9].into_iter().enumerate() {
            policy.completed(&done(now + Duration::from_secs(5) * n as u32, 0, ms * MS));
        }
        // At 15 s: (7 × 1 ms + 9 ms) / 8.
        assert_eq!((smoothed(&*policy, 0), smoothed(&*policy, 1)), (Some(2 * MS), Some(MS)));
        assert_eq!(weights(&*policy), [21, 42]);
    }

    #[test]
    fn a_new_path_is_taken_at_once_by_one_request() {
        let now = Instant::now();
        let mut policy = measured(now, [MS, MS]);
        let select =
            |policy: &mut dyn Policy, new: Candidate| policy.select(&read(now), &[candidate(0), candidate(1), new]);
        assert_eq!(select(&mut *policy, candidate(2)), path(2));
        assert_ne!(select(&mut *policy, busy(2, now)), path(2));
        // A sample that is too long does not count: the path stays new.
        policy.completed(&done(now, 2, 1001 * MS));
        assert_eq!(select(&mut *policy, candidate(2)), path(2));
        policy.completed(&done(now, 2, MS));
        policy.path_changed(PathId(0));
        assert_eq!(select(&mut *policy, candidate(2)), path(0));
    }

    #[test]
    fn a_shorter_interval_counts_at_once() {
        let now = Instant::now();
        let mut policy = measured(now, [MS, MS]);
        policy.completed(&done(now + MS, 0, 9 * MS));
        assert_eq!(smoothed(&*policy, 0), Some(MS), "the interval of 15 s goes on");
        let spec = PolicySpec::new(PolicyKind::Adaptive, [("interval", "10ms")]).expect("valid");
        policy.configure(&spec);
        policy.completed(&done(now + 2 * MS, 0, 9 * MS));
        assert_eq!(smoothed(&*policy, 0), Some(2 * MS));
    }

    #[test]
    fn a_single_path_is_not_measured() {
        let now = Instant::now();
        let mut policy = adaptive(&[]);
        assert_eq!(policy.select(&read(now), &[candidate(0)]), path(0));
        policy.completed(&done(now, 0, MS));
        assert_eq!(smoothed(&*policy, 0), None);
    }

    #[test]
    fn passes_over_full_paths() {
        let now = Instant::now();
        let mut policy = measured(now, [MS, MS]);
        for _ in 0..100 {
            assert_eq!(policy.select(&read(now), &[candidate(0), full(1)]), path(0));
        }
        assert_eq!(policy.select(&read(now), &[full(0), full(1)]), Choice::Wait { again: None });
    }
}
