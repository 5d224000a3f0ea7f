//! `bdp`: windows by bandwidth-delay product, late binding.
//!
//! Rule: a path may have in flight what it can carry, the product of the rate it delivers and the time it takes, and no more:
//! more would only queue there, where no other path can take it. What finds no room waits in the group, and goes to the first
//! path that has some, fast ones first. A slower path takes part if it adds at least `min-gain` to the throughput. Source: ours;
//! the filters are BBR's (Cardwell et al., CACM 60/2, 2017), the test by waiting time for `objective: latency` is ECF's (Lim et
//! al., CoNEXT '17).
//!
//! * [`rate`], [`latency`], [`sizes`]: the filters. [`estimator`]: those of one path and class, its window, and when to search
//!   again. [`drain`]: how long a path takes without a queue.
//! * [`change`]: when a path has become another one.
//! * [`admission`]: which paths are worth using.
//! * [`probes`]: what is known of the others.

// Bytes, counts and rates are far below 2^52, and none is negative.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod admission;
mod change;
mod drain;
mod estimator;
mod latency;
mod probes;
mod rate;
mod sizes;

use std::time::{Duration, Instant};

use self::admission::{Admission, Offer};
use self::estimator::Estimator;
use self::latency::Mean;
use self::probes::{Budget, Probes, REST, size_of_probe};
use self::sizes::Sizes;
use super::{About, Candidate, Choice, Completed, Param, Policy, PolicySpec, Probed, Query};
use crate::path::MAX_PATHS;
use crate::window::Usage;
use crate::{OpClass, PathEstimate, PathId};

pub(super) const ABOUT: About = About {
    name: "bdp",
    aliases: &[],
    description: "what each path can carry, fast paths first; the others are measured by reads nobody waits for",
    params: &[
        Param::word(
            "objective",
            &["throughput", "latency"],
            "latency: a slow path is used only if that ends sooner than to wait for a fast one",
        ),
        Param::ratio(
            "min-gain",
            (0, 1000),
            50,
            "a slower path is used if it adds this much to the throughput of the faster ones",
        ),
        Param::ratio("gain", (1000, 4000), 1050, "window over bandwidth-delay product"),
    ],
    build: |spec, _| Box::new(Bdp::new(spec)),
};

/// Least size of a request, in bytes: what carries no data counts as this.
const LEAST_BYTES: u32 = 512;
/// Paths that make less than this of the best one's use of a latency are left out.
const USEFUL: f64 = 0.8;

/// The values of the parameters.
#[derive(Clone, Copy, Debug)]
struct Params {
    latency_first: bool,
    min_gain: f64,
    gain: f64,
}

impl Params {
    fn new(spec: &PolicySpec) -> Self {
        let ratio = |name| spec.thousandths(name) as f64 / 1000.0;
        Self { latency_first: spec.word("objective") == 1, min_gain: ratio("min-gain"), gain: ratio("gain") }
    }
}

/// What is known of one path.
#[derive(Clone, Debug, Default)]
struct PathState {
    classes: [Estimator; 3],
    probes: Probes,
}

impl PathState {
    /// Delay (s) and rate (bytes/s) for a class: its own, or what the probes say.
    fn estimate(&self, class: OpClass) -> Option<(f64, f64)> {
        let own = &self.classes[class.index()];
        match own.delay() {
            Some(delay) => Some((delay, own.rate())),
            None => self.probes.mean().map(|mean| (mean.latency, f64::INFINITY)),
        }
    }
}

/// A candidate as this policy sees it now.
#[derive(Clone, Copy, Debug)]
struct View {
    path: PathId,
    in_flight: f64,
    /// Bytes it may take yet; at most zero: none.
    room: f64,
    /// Bytes per second, if it is given one more request.
    useful: f64,
    /// When that would be answered, s from now.
    ends: f64,
}

#[derive(Debug)]
pub(super) struct Bdp {
    params: Params,
    paths: Vec<PathState>,
    admission: [Admission; 3],
    budget: Budget,
    sizes: [Sizes; 3],
    /// When to look for probes again, and the paths that could be probed then.
    probe_at: Option<Instant>,
    probed: u64,
    offers: Vec<Offer>,
    views: Vec<View>,
}

impl Bdp {
    fn new(spec: &PolicySpec) -> Self {
        Self {
            params: Params::new(spec),
            paths: vec![PathState::default(); MAX_PATHS],
            admission: Default::default(),
            budget: Budget::default(),
            sizes: Default::default(),
            probe_at: None,
            probed: 0,
            offers: Vec::new(),
            views: Vec::new(),
        }
    }

    fn decide(&mut self, query: &Query, candidates: &[Candidate]) {
        let class = query.class.index();
        let paths = candidates.iter().fold(0, |set, candidate| set | candidate.path.bit());
        if !self.admission[class].is_due(query.now, paths) {
            return;
        }
        self.offers.clear();
        let (mut bytes, mut ios, mut all) = (0.0, 0.0, 0.0);
        let mut size: f64 = size_of(query.bytes);
        // The same for all paths: the first requests of one may all have been large, and those of another small.
        let mean = self.sizes[class].mean().max(f64::from(LEAST_BYTES));
        for candidate in candidates {
            let state = &self.paths[candidate.path.index()];
            let own = &state.classes[class];
            let in_flight = in_flight(candidate.of_class);
            bytes += in_flight;
            ios += f64::from(candidate.of_class.ios);
            all += f64::from(candidate.in_flight);
            size = size.max(own.size());
            let estimate = state.estimate(query.class);
            let (window, behind) = match estimate {
                Some((delay, rate)) if own.limit_is_known() => (rate * delay + own.size(), rate * delay),
                _ if candidate.has_room => (f64::INFINITY, 0.0),
                _ => (in_flight, in_flight),
            };
            self.offers.push(Offer {
                path: candidate.path,
                latency: estimate.map(|(delay, rate)| delay + mean / rate),
                rate: if own.limit_is_known() { own.rate() } else { f64::INFINITY },
                window,
                behind,
                must_be_tried: state.probes.are_useless(),
            });
        }
        // What waits is of this class as often as what is in flight.
        let share = if all > 0.0 { (ios / all).min(1.0) } else { 1.0 };
        let outstanding = bytes + query.queued as f64 * share * size;
        let sizes = &self.sizes[class];
        self.admission[class].decide(query.now, &self.params, &mut self.offers, outstanding, sizes);
    }

    fn view(&self, query: &Query, candidate: &Candidate) -> View {
        let state = &self.paths[candidate.path.index()];
        let own = &state.classes[query.class.index()];
        let in_flight = in_flight(candidate.of_class);
        let size = size_of(query.bytes);
        let room = match candidate.oldest {
            _ if !candidate.has_room => 0.0,
            None => f64::INFINITY,
            Some(oldest) => own.window(self.params.gain) - (in_flight - size_of(oldest.bytes)),
        };
        let (delay, rate) = state.estimate(query.class).unwrap_or((0.0, f64::INFINITY));
        // Before the first rate is known, paths are told apart by what they hold all the same.
        let rate = if rate.is_finite() { rate } else { 8.0 * size / delay.max(1e-6) };
        View {
            path: candidate.path,
            in_flight,
            room,
            useful: size.min(room) / (delay + size / rate),
            ends: delay + (in_flight + size) / rate,
        }
    }

    /// A path has changed: what probes say of the others may be old too.
    fn changed(&mut self, path: PathId) {
        self.probe_at = None;
        for (state, index) in self.paths.iter_mut().zip(0..) {
            if index != path.index() {
                state.probes.hurry();
            }
        }
        self.admission.iter_mut().for_each(Admission::look_again);
    }
}

impl Policy for Bdp {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        self.decide(query, candidates);
        let class = query.class.index();
        let mut views = std::mem::take(&mut self.views);
        views.clear();
        let all: u32 = candidates.iter().map(|candidate| candidate.in_flight).sum();
        let of_class: u32 = candidates.iter().map(|candidate| candidate.of_class.ios).sum();
        let share = if all > 0 { f64::from(of_class) / f64::from(all) } else { 1.0 };
        let waiting = query.queued as f64 * share;
        let admitted = candidates.iter().filter(|candidate| self.admission[class].admits(candidate.path, waiting));
        views.extend(admitted.map(|candidate| self.view(query, candidate)).filter(|view| view.room > 0.0));
        let most = views.iter().map(|view| view.useful).fold(0.0, f64::max);
        let useful = views.iter().filter(|view| view.useful >= USEFUL * most);
        let chosen = useful.min_by(|a, b| a.ends.total_cmp(&b.ends)).copied();
        self.views = views;
        let Some(view) = chosen else {
            return Choice::Wait { again: None };
        };
        let state = &mut self.paths[view.path.index()];
        let bytes = size_of(query.bytes);
        // With the first request in flight there is no oldest one before it.
        let full = view.room.is_finite() && view.room - bytes <= 0.0;
        state.classes[class].bound(bytes, view.in_flight, full);
        state.probes.bound(query.now);
        self.sizes[class].add(bytes);
        Choice::Path(view.path)
    }

    fn completed(&mut self, done: &Completed) {
        self.budget.earn();
        let state = &mut self.paths[done.path.index()];
        let own = &mut state.classes[done.class.index()];
        let bytes = size_of(done.bytes);
        let changed = if done.recalled {
            own.restart(done.now, Some(Mean { latency: done.latency.as_secs_f64(), size: bytes }));
            true
        } else {
            own.answered(done.now, bytes, done.latency, in_flight(done.of_class))
        };
        if changed {
            self.changed(done.path);
        }
    }

    fn path_changed(&mut self, path: PathId) {
        self.paths[path.index()] = PathState::default();
        self.probe_at = None;
        self.admission.iter_mut().for_each(Admission::look_again);
    }

    fn estimate(&self, path: PathId, class: OpClass) -> PathEstimate {
        let state = &self.paths[path.index()];
        let own = &state.classes[class.index()];
        let seconds = state.estimate(class).map(|(delay, rate)| delay + own.size() / rate);
        PathEstimate {
            latency: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            // With the one that is answered next.
            window_bytes: own.limit_is_known().then(|| (own.window(self.params.gain) + own.size()) as u64),
            ..PathEstimate::default()
        }
    }

    fn configure(&mut self, spec: &PolicySpec) {
        self.params = Params::new(spec);
        self.admission.iter_mut().for_each(Admission::look_again);
    }

    fn probe(&mut self, now: Instant, paths: u64, busy: bool) -> Option<(PathId, u32)> {
        if self.probe_at.is_some_and(|at| now < at) && self.probed == paths {
            return None;
        }
        self.probed = paths;
        self.probe_at = None;
        let mut next: Option<Instant> = None;
        for (state, index) in self.paths.iter_mut().zip(0..) {
            let path = PathId(index);
            if paths & path.bit() == 0 || !busy && !state.probes.is_unknown() {
                continue;
            }
            let due = state.probes.due(now);
            if due > now {
                next = next.into_iter().chain([due]).min();
            } else if self.budget.allows(state.probes.is_wanted()) {
                self.budget.spend();
                state.probes.asked(now);
                return Some((path, size_of_probe(self.sizes[OpClass::Read.index()].mean())));
            } else {
                next = next.into_iter().chain([now + REST]).min();
            }
        }
        self.probe_at = next;
        None
    }

    fn probed(&mut self, done: &Probed) {
        self.probe_at = None;
        let state = &mut self.paths[done.path.index()];
        let size = f64::from(done.bytes);
        let answer = done.latency.map(|latency| Mean { latency: latency.as_secs_f64(), size });
        if state.probes.answered(done.now, answer) {
            let latency = state.probes.mean().map_or(0.0, |mean| mean.latency);
            // Of writes a read says only that what was known of them is old.
            for class in OpClass::ALL {
                let own = &mut state.classes[class.index()];
                if class == OpClass::Read { own.moved(done.now, latency) } else { own.restart(done.now, None) }
            }
        } else if state.probes.is_idle(done.now) {
            let reads = &mut state.classes[OpClass::Read.index()];
            if state.probes.contradicts(reads.delay().map(|delay| delay + size / reads.rate())) {
                let latency = state.probes.mean().map_or(0.0, |mean| mean.latency);
                reads.moved(done.now, latency);
            }
        }
        self.admission.iter_mut().for_each(Admission::look_again);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.probe_at
    }
}

fn size_of(bytes: u32) -> f64 {
    f64::from(bytes.max(LEAST_BYTES))
}

/// Bytes that count as in flight.
fn in_flight(usage: Usage) -> f64 {
    (usage.bytes as f64).max(f64::from(usage.ios) * f64::from(LEAST_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PolicyKind;
    use crate::policy::testing::{WAIT, busy, candidate, done, full, path, read};

    const MS: Duration = Duration::from_millis(1);

    fn bdp(params: &[(&str, &str)]) -> Bdp {
        Bdp::new(&PolicySpec::new(PolicyKind::Bdp, params.iter().copied()).expect("parameters"))
    }

    /// Four probes of each path, which take so long.
    fn probe(policy: &mut Bdp, now: Instant, latencies: &[Duration]) {
        for _ in 0..4 {
            for (path, latency) in (0..).map(PathId).zip(latencies) {
                policy.probed(&Probed { now, path, bytes: 4096, latency: Some(*latency) });
            }
        }
    }

    #[test]
    fn unknown_paths_are_probed_and_used_in_turn_until_something_is_known() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        assert_eq!(policy.probe(now, 0b11, false), Some((PathId(0), 4096)));
        assert_eq!(policy.probe(now, 0b10, false), Some((PathId(1), 4096)));
        assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(0));
        assert_eq!(policy.select(&read(now), &[busy(0, now), candidate(1)]), path(1));
    }

    #[test]
    fn a_single_request_takes_the_fast_path_wherever_it_stands() {
        let now = Instant::now();
        for (latencies, fast) in [([MS, 30 * MS], 0), ([30 * MS, MS], 1)] {
            let mut policy = bdp(&[]);
            probe(&mut policy, now, &latencies);
            let candidates = [candidate(0), candidate(1)];
            assert_eq!(policy.select(&read(now), &candidates), path(fast));
            assert_eq!(policy.estimate(PathId(fast), OpClass::Read).latency, Some(MS));
            policy.completed(&done(now + MS, fast, MS));
            assert_eq!(policy.select(&read(now + MS), &candidates), path(fast));
        }
    }

    #[test]
    fn a_full_fast_path_is_waited_for_and_an_idle_disk_is_not_probed() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 30 * MS]);
        assert_eq!(policy.select(&read(now), &[full(0), candidate(1)]), WAIT);
        assert_eq!(policy.probe(now, 0b11, false), None);
        assert_eq!(policy.probe(now + 300 * MS, 0b11, false), None);
        assert!(policy.probe(now + 300 * MS, 0b10, true).is_some(), "a busy one is");
    }

    #[test]
    fn a_recalled_request_says_that_its_path_is_slow() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 2 * MS]);
        let candidates = [candidate(0), candidate(1)];
        assert_eq!(policy.select(&read(now), &candidates), path(0));
        policy.completed(&Completed { recalled: true, ..done(now + 300 * MS, 0, 300 * MS) });
        assert_eq!(policy.select(&read(now + 300 * MS), &candidates), path(1));
    }

    #[test]
    fn a_path_that_comes_back_is_measured_anew() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 30 * MS]);
        policy.path_changed(PathId(1));
        assert_eq!(policy.estimate(PathId(1), OpClass::Read).latency, None);
        assert_eq!(policy.probe(now, 0b11, false), Some((PathId(1), 4096)));
    }
}
