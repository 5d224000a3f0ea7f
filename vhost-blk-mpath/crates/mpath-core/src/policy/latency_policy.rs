//! Decides: `latency` and `latency-rr` pick a path.
//!
//! The common part of `latency` and `latency-rr`: measured averages, and new measurements of paths that are not
//! chosen.
//!
//! Source of both: Kai Krakow's series of btrfs read policies (`fs/btrfs/volumes.c`), for reads of mirrored devices.
//! Here reads, writes and other operations have separate estimates. Differences, and what the published rules leave
//! open:
//!
//! * **Averages**, their doubt, and how silence replaces them: [`LatencyAverage`], [`View`].
//! * **Rehabilitation.** A path that is not chosen is not measured. Published (`rehabilitation=ios`): a path that was
//!   passed over 10,000 times counts as the fastest for the next 100 requests. With 30 ms between the paths, this costs
//!   85 % of the IOPS at queue depth 1. Ours (`rehabilitation=time`) goes by time. It measures the path with one
//!   request of the guest. Between two measurements at least `probe-cost` times the latency of the path must pass
//!   (limits: `PROBE_REST_MIN`, `PROBE_REST_MAX`). Each class measures one path at a time, the path without a
//!   measurement for longest first. This costs about 3 % at queue depth 1, and no path is left out for good. The result
//!   replaces the old average.
//! * **Full windows.** If every path of the rule is full, the request waits, because a far slower path would answer
//!   later. A slower path is used only if it answers before the whole queue has got through on the good paths:
//!   `latency < best · (1 + queued / in flight on the good paths)`. Source: the ECF scheduler (Lim et al., CoNEXT
//!   '17).

use monotonic::{Duration, Instant};
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::latency_average::{LatencyAverage, View, thousandths};
use super::{Candidate, Choice, CompletedAttempt, Opinion, Param, Policy, PolicySpec, Query, next_after};
use crate::{MAX_PATHS, OpClass, PathEstimate, PathId};

/// The shortest time between two measurements.
const PROBE_REST_MIN: Duration = Duration::from_millis(500);
/// The longest time between two measurements.
const PROBE_REST_MAX: Duration = Duration::from_secs(4);
/// Up to 1/8 is added to each time at random, so that many threads and hosts do not measure in step.
const PROBE_JITTER: u32 = 8;
/// The shortest and longest time after which a request that waits for a full path asks again.
const ASK_AGAIN_AFTER: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(100));

pub(super) const MEMORY: Param = Param::time(
    "memory",
    (Duration::from_millis(1), Duration::from_secs(60)),
    Duration::from_millis(250),
    "samples older than this no longer count in an average",
);
pub(super) const REHABILITATION: Param = Param::word(
    "rehabilitation",
    &["time", "ios"],
    "what decides when a path that is not chosen is measured again: time (single requests) or I/Os (bursts, as published)",
);
pub(super) const PROBE_COST: Param = Param::whole(
    "probe-cost",
    "latencies",
    (1, 1000),
    32,
    "with rehabilitation=time: rest between two probes, in latencies of the path to be probed",
);
pub(super) const AGE: Param = Param::whole(
    "age",
    "I/Os",
    (10, 100_000_000),
    10_000,
    "with rehabilitation=ios: a path not chosen for this many I/Os is measured again",
);
pub(super) const BURST: Param =
    Param::whole("burst", "I/Os", (1, 100_000), 100, "with rehabilitation=ios: the I/Os it is then given");

/// Which of the measured paths take turns.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spread {
    /// Only the path with the lowest average.
    Lowest,
    /// Paths within this many thousandths of the lowest average.
    Band(u64),
}

/// How a path that is not chosen is measured again.
#[derive(Clone, Copy, Debug)]
enum Rehabilitation {
    /// By one request, after `cost` latencies of the path.
    Time { cost: u32 },
    /// By `burst` I/Os, after `age` I/Os elsewhere.
    Ios { age: i64, burst: i64 },
}

/// What is known of one path and class.
#[derive(Clone, Copy, Debug, Default)]
struct PathLatency {
    latency: LatencyAverage,
    chosen_at: Option<Instant>,
    /// How often the path could have been chosen and was not, since the last time it was chosen. Below 0: I/Os left of
    /// a burst.
    age: i64,
    /// How often the path could have been chosen and was not, since it came up.
    ignored: u64,
    /// How often a new measurement began, and its results so far.
    checkpoints: u64,
    checkpoint_ios: u64,
    checkpoint_wait: Duration,
}

impl PathLatency {
    fn checkpoint(&mut self) {
        self.checkpoints += 1;
        (self.checkpoint_ios, self.checkpoint_wait) = (0, Duration::ZERO);
        self.latency.start_anew();
    }
}

#[derive(Clone, Debug)]
pub(super) struct LatencyPolicy {
    /// The rule of the policy, from its parameters.
    rule: fn(&PolicySpec) -> Spread,
    spread: Spread,
    memory: Duration,
    rehabilitation: Rehabilitation,
    paths: Vec<[PathLatency; 3]>,
    last: [Option<PathId>; 3],
    /// The path and time of the last measurement.
    probe: [Option<(PathId, Instant)>; 3],
    /// The present jitter, in 1024ths.
    jitter: u32,
    random: SplitMix64,
    /// Scratch space of `select`.
    views: Vec<View>,
}

/// The lowest latencies of all paths.
#[derive(Clone, Copy, Debug)]
struct Best {
    best_ns: u64,
    /// The lowest sum of a latency and its doubt.
    surely_ns: u64,
}

/// A decision, and what to record for it.
#[derive(Clone, Copy, Debug)]
enum Decision {
    /// The next path in turn.
    Turn(PathId),
    /// A path out of turn: new, in its burst, or used because the queue is long.
    OutOfTurn(PathId),
    /// A path to measure again.
    Probe(PathId),
    Wait {
        again: Option<Instant>,
    },
}

impl LatencyPolicy {
    pub(super) fn new(rule: fn(&PolicySpec) -> Spread, spec: &PolicySpec, seed: u64) -> Self {
        let mut policy = Self {
            rule,
            spread: Spread::Lowest,
            memory: Duration::ZERO,
            rehabilitation: Rehabilitation::Time { cost: 0 },
            paths: vec![[PathLatency::default(); 3]; MAX_PATHS],
            last: [None; 3],
            probe: [None; 3],
            jitter: 0,
            random: SplitMix64::seed_from_u64(seed),
            views: Vec::new(),
        };
        policy.configure(spec);
        policy.draw_jitter();
        policy
    }

    fn draw_jitter(&mut self) {
        self.jitter = (self.random.next_u64() % 1024) as u32;
    }

    fn known(&self, path: PathId, class: usize) -> &PathLatency {
        &self.paths[path.index()][class]
    }

    /// A path outside the good ones that is due for a measurement.
    fn due_probe(&self, query: &Query, cost: u32, is_good: impl Fn(&View) -> bool) -> Option<PathId> {
        let class = query.class.index();
        let chosen_at = |view: &View| self.known(view.path, class).chosen_at;
        let outside = || self.views.iter().filter(|v| v.latency_ns.is_some() && !is_good(v));
        let view = outside().filter(|v| v.has_room && !v.busy).min_by_key(|v| chosen_at(v))?;
        let last = self.probe[class];
        if last.is_some_and(|(probed, _)| outside().any(|v| v.path == probed && v.busy)) {
            return None;
        }
        let rest = Duration::from_nanos(view.latency_ns?).saturating_mul(cost).clamp(PROBE_REST_MIN, PROBE_REST_MAX);
        let rest = rest + rest / PROBE_JITTER * self.jitter / 1024;
        let rested = |at: Option<Instant>| at.is_none_or(|at| query.now - at >= rest);
        (rested(chosen_at(view)) && rested(last.map(|(_, at)| at))).then_some(view.path)
    }

    /// A path that is due for a burst, or is in its burst.
    fn due_burst(&self, class: usize, age: i64) -> Option<Decision> {
        let with_room = || self.views.iter().filter(|v| v.has_room).map(|v| v.path);
        let in_burst = with_room().find(|path| self.known(*path, class).age < 0).map(Decision::OutOfTurn);
        let due = || with_room().find(|path| self.known(*path, class).age > age).map(Decision::Probe);
        in_burst.or_else(due)
    }

    /// Updates `views`: the candidates with their latencies as of now.
    fn look(&mut self, query: &Query, candidates: &[Candidate]) {
        self.views.clear();
        let (paths, class) = (&self.paths, query.class.index());
        let view = |c: &Candidate| View::new(query.now, c, &paths[c.path.index()][class].latency);
        self.views.extend(candidates.iter().map(view));
    }

    /// The lowest latencies; `None`: no path has an estimate.
    fn best(&self) -> Option<Best> {
        let best_ns = self.views.iter().filter_map(|v| v.latency_ns).min()?;
        let known = self.views.iter().filter(|v| v.latency_ns.is_some());
        Some(Best { best_ns, surely_ns: known.map(|v| v.high_ns).min().unwrap_or(u64::MAX) })
    }

    /// Whether a path takes part in the turns.
    fn is_good(&self, Best { best_ns, surely_ns }: Best, view: &View) -> bool {
        match self.spread {
            Spread::Lowest => view.latency_ns == Some(best_ns),
            Spread::Band(width) => view.latency_ns.is_some() && view.low_ns <= thousandths(surely_ns, width),
        }
    }

    fn decide(&self, query: &Query) -> Decision {
        let class = query.class.index();
        let last = self.last[class];
        let with_room = || self.views.iter().filter(|v| v.has_room);
        let Some(best) = self.best() else {
            return next_after(last, with_room().map(|v| v.path))
                .map_or(Decision::Wait { again: None }, Decision::Turn);
        };
        let best_ns = best.best_ns;
        let is_good = |view: &View| self.is_good(best, view);

        // A path never measured is measured at once, by one request at a time.
        if let Some(new) = with_room().find(|v| v.is_new() && !v.busy) {
            return Decision::OutOfTurn(new.path);
        }
        let due = match self.rehabilitation {
            Rehabilitation::Time { cost } => self.due_probe(query, cost, is_good).map(Decision::Probe),
            Rehabilitation::Ios { age, .. } => self.due_burst(class, age),
        };
        if let Some(due) = due {
            return due;
        }
        if let Some(path) = next_after(last, with_room().filter(|v| is_good(v)).map(|v| v.path)) {
            return Decision::Turn(path);
        }

        let in_flight: u32 = self.views.iter().filter(|v| is_good(v)).map(|v| v.in_flight).sum();
        let queue_ns = best_ns.saturating_mul(query.queued as u64) / u64::from(in_flight.max(1));
        let sooner_ns = best_ns.saturating_add(queue_ns);
        let other = with_room().filter_map(|v| Some((v.latency_ns?, v.path))).min();
        match other {
            Some((latency_ns, path)) if latency_ns < sooner_ns => Decision::OutOfTurn(path),
            _ => {
                let wait = Duration::from_nanos(best_ns).clamp(ASK_AGAIN_AFTER.0, ASK_AGAIN_AFTER.1);
                Decision::Wait { again: Some(query.now + wait) }
            }
        }
    }

    /// Updates the ages of the candidates after a choice.
    fn update_ages(&mut self, class: usize, chosen: PathId) {
        for view in &self.views {
            let known = &mut self.paths[view.path.index()][class];
            let in_burst = known.age < 0;
            if view.path != chosen {
                known.ignored += 1;
                known.age += i64::from(!in_burst);
            } else if in_burst {
                known.age += 1;
            } else {
                known.age = 0;
            }
        }
    }
}

impl Policy for LatencyPolicy {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let class = query.class.index();
        self.look(query, candidates);
        let path = match self.decide(query) {
            Decision::Wait { again } => return Choice::Wait { again },
            Decision::Turn(path) => {
                self.last[class] = Some(path);
                path
            }
            Decision::OutOfTurn(path) => path,
            Decision::Probe(path) => {
                self.probe[class] = Some((path, query.now));
                self.draw_jitter();
                let known = &mut self.paths[path.index()][class];
                known.checkpoint();
                if let Rehabilitation::Ios { burst, .. } = self.rehabilitation {
                    known.age = -burst;
                }
                path
            }
        };
        self.update_ages(class, path);
        self.paths[path.index()][class].chosen_at = Some(query.now);
        Choice::Path(path)
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        self.look(query, candidates);
        let (best, decision) = (self.best(), self.decide(query));
        let opinion = |view: &View| match decision {
            Decision::Probe(path) if path == view.path => Opinion::Measurement,
            Decision::OutOfTurn(path) if path == view.path && view.is_new() => Opinion::Measurement,
            _ if best.is_some() && view.is_new() && view.busy => Opinion::BeingMeasured,
            _ => Opinion::Latency { latency: view.latency_ns.map(Duration::from_nanos) },
        };
        self.views.iter().map(opinion).collect()
    }

    fn completed(&mut self, done: &CompletedAttempt) {
        // Failed attempts count too. Otherwise the path would keep its old, better average.
        let known = &mut self.paths[done.path.index()][done.class.index()];
        known.latency.sample(done.now, done.latency, self.memory);
        known.checkpoint_ios += 1;
        known.checkpoint_wait += done.latency;
    }

    fn path_changed(&mut self, path: PathId) {
        self.paths[path.index()] = [PathLatency::default(); 3];
    }

    fn configure(&mut self, spec: &PolicySpec) {
        self.spread = (self.rule)(spec);
        self.memory = spec.time(MEMORY.name());
        self.rehabilitation = if spec.number(REHABILITATION.name()) == 0 {
            // Bursts under way belong to the other rule.
            self.paths.iter_mut().flatten().for_each(|known| known.age = known.age.max(0));
            Rehabilitation::Time { cost: spec.number(PROBE_COST.name()) as u32 }
        } else {
            let count = |name| spec.number(name).cast_signed();
            Rehabilitation::Ios { age: count(AGE.name()), burst: count(BURST.name()) }
        };
    }

    fn estimate(&self, path: PathId, class: OpClass) -> PathEstimate {
        let known = self.known(path, class.index());
        PathEstimate {
            latency: (known.latency.mean_ns != 0).then(|| Duration::from_nanos(known.latency.mean_ns)),
            age: Some(known.age),
            ignored: Some(known.ignored),
            checkpoints: Some(known.checkpoints),
            checkpoint_ios: Some(known.checkpoint_ios),
            checkpoint_wait: Some(known.checkpoint_wait),
            ..PathEstimate::default()
        }
    }
}
