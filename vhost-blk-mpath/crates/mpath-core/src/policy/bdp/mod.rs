//! Decides: the default policy picks a path.
//!
//! `bdp`: windows by bandwidth-delay product, late binding.
//!
//! Rule: a path may have in flight the product of its rate and its latency, and no more. More would only queue on the
//! path, where no other path can take it. Requests without room wait in the group, and go to the first path with
//! room, fast paths first. A slower path is used if it adds at least `min-gain` to the throughput. Source: ours. The
//! filters are BBR's (Cardwell et al., CACM 60/2, 2017). The test by waiting time for `objective: latency` is ECF's
//! (Lim et al., CoNEXT '17).
//!
//! * [`rate`], [`latency`], [`sizes`]: the filters. [`estimator`]: the estimate and window of one path and class.
//!   [`window_cut`]: how long a path takes without a queue.
//! * [`views`]: what one more request would find on each path. [`slowdown`]: when a path has become slower.
//! * [`admission`]: which paths are used.
//! * [`probes`]: estimates of the other paths. [`trials`]: when the other paths are tried with requests that probes
//!   cannot measure.

// Bytes, counts and rates are far below 2^52, and none is negative.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod admission;
mod estimator;
mod latency;
mod probes;
mod rate;
mod sizes;
mod slowdown;
mod trials;
mod views;
mod window_cut;

use monotonic::{Duration, Instant};

use self::admission::{Admission, Offer};
use self::estimator::Estimator;
use self::latency::Mean;
use self::probes::{Budget, Probes, REST, size_of_probe};
use self::sizes::Sizes;
use self::slowdown::{is_late, not_late_for};
use self::trials::Trials;
use self::views::{View, Views, silent_since, view};
use super::{
    AttemptEnd, Candidate, Choice, CompletedAttempt, Opinion, Param, Policy, PolicyInfo, PolicySpec, ProbeResult, Query,
};
use crate::window::Usage;
use crate::{MAX_PATHS, OpClass, PathEstimate, PathId};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "bdp",
    aliases: &[],
    description: "fast paths first, each with no more than it can carry; probes measure the other paths",
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

/// The least size of a request, in bytes: requests without data count as this.
const LEAST_BYTES: u32 = 512;
/// Paths with less than this part of the best path's useful rate are left out.
const USEFUL: f64 = 0.8;
/// How long a path counts as failing without further evidence.
const FAILED_FOR: Duration = Duration::from_secs(1);
/// How soon the choice is repeated for a request that waits. A path that stays silent is then left out.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The values of the parameters.
#[derive(Clone, Copy, Debug)]
struct Params {
    latency_first: bool,
    min_gain: f64,
    gain: f64,
}

impl Params {
    fn new(spec: &PolicySpec) -> Self {
        let ratio = |name| spec.number(name) as f64 / 1000.0;
        Self { latency_first: spec.number("objective") == 1, min_gain: ratio("min-gain"), gain: ratio("gain") }
    }
}

/// The state of one path.
#[derive(Clone, Debug, Default)]
struct PathState {
    classes: [Estimator; 3],
    /// By class, the time of the last answer.
    answered_at: [Option<Instant>; 3],
    /// By class, the time of the last failure, if there was no answer since.
    failed_at: [Option<Instant>; 3],
    probes: Probes,
    trials: [Trials; 3],
}

impl PathState {
    /// Delay (s) and rate (bytes/s) for a class: the class's own estimate, else that of probes, else that of reads. A
    /// path with reads is not probed.
    fn estimate(&self, class: OpClass) -> Option<(f64, f64)> {
        let own = self.classes[class.index()].known();
        let probed = || self.probes.mean().map(|mean| (mean.latency, f64::INFINITY));
        own.or_else(probed).or_else(|| self.classes[OpClass::Read.index()].known())
    }

    /// Starts an estimate anew if its failure is old, or if reads contradict the estimate and a trial is due. The cause
    /// may have passed.
    fn forget_old_evidence(&mut self, now: Instant, class: OpClass) {
        let forgiven = if let Some(at) = self.failed_at[class.index()] {
            now - at >= FAILED_FOR
        } else {
            let used_at = self.probes.bound_at(class).filter(|_| self.reads_contradict(class));
            used_at.is_some_and(|at| self.trials[class.index()].is_due(now, at))
        };
        if forgiven {
            self.failed_at[class.index()] = None;
            self.classes[class.index()].restart(now, None);
        }
    }

    /// Whether reads take far less time than the estimate of this class says. The cause of the estimate may then have
    /// passed.
    fn reads_contradict(&self, class: OpClass) -> bool {
        let own = &self.classes[class.index()];
        let reads = self.classes[OpClass::Read.index()].known().map(|(delay, rate)| delay + own.size() / rate);
        let reads = reads.or_else(|| self.probes.mean().map(|mean| mean.latency));
        let (Some(reads), Some(latency)) = (reads, own.path_latency()) else { return false };
        class != OpClass::Read && is_late(latency, reads)
    }

    /// The estimate as of now: the silence of a path with requests in flight may exceed the estimate.
    fn estimate_now(&self, query: &Query, candidate: &Candidate) -> Option<EstimateNow> {
        let (delay, rate) = self.estimate(query.class)?;
        let since = silent_since(self, query, candidate);
        let silence = since.filter(|since| *since < query.now).map_or(0.0, |since| (query.now - since).as_secs_f64());
        let expected = delay + in_flight(candidate.of_class) / rate;
        let is_silent = is_late(silence, expected);
        let quiet_until = since.map(|since| since + not_late_for(expected));
        Some(EstimateNow { delay: if is_silent { silence } else { delay }, rate, is_silent, quiet_until })
    }
}

/// The estimate of a path as of now.
#[derive(Clone, Copy, Debug)]
struct EstimateNow {
    /// Seconds.
    delay: f64,
    /// Bytes per second.
    rate: f64,
    /// The path has been silent for much longer than expected.
    is_silent: bool,
    /// The path is not silent until then. `None`: it owes nothing.
    quiet_until: Option<Instant>,
}

impl EstimateNow {
    /// Without an estimate, a path counts as one that takes all it gets.
    const UNKNOWN: Self = Self { delay: 0.0, rate: f64::INFINITY, is_silent: false, quiet_until: None };
}

#[derive(Clone, Debug)]
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
    views: [Views; 3],
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
            views: Default::default(),
        }
    }

    #[inline]
    fn decide_if_due(&mut self, query: &Query, candidates: &[Candidate]) {
        let paths = candidates.iter().fold(0, |set, candidate| set | candidate.path.bit());
        if self.admission[query.class.index()].is_due(query.now, paths) {
            self.decide(query, candidates);
        }
    }

    #[cold]
    fn decide(&mut self, query: &Query, candidates: &[Candidate]) {
        let class = query.class.index();
        for candidate in candidates {
            self.paths[candidate.path.index()].forget_old_evidence(query.now, query.class);
        }
        self.offers.clear();
        let (mut bytes, mut ios, mut all) = (0.0, 0.0, 0.0);
        let mut size: f64 = size_of(query.bytes);
        // All paths share one mean size, because the first requests of one path may all have been large, and those of
        // another small.
        let mean = self.unit(query.class);
        for candidate in candidates {
            let state = &self.paths[candidate.path.index()];
            let own = &state.classes[class];
            let in_flight = in_flight(candidate.of_class);
            bytes += in_flight;
            ios += f64::from(candidate.of_class.ios);
            all += f64::from(candidate.in_flight);
            size = size.max(own.size());
            let estimate = state.estimate_now(query, candidate);
            let (window, behind) = match estimate {
                Some(now) if own.limit_is_known() => (now.rate * now.delay + own.size(), now.rate * now.delay),
                _ if candidate.has_room => (f64::INFINITY, 0.0),
                _ => (in_flight, in_flight),
            };
            self.offers.push(Offer {
                path: candidate.path,
                latency: estimate.map(|now| now.delay + mean / now.rate),
                rate: if own.limit_is_known() { own.rate() } else { f64::INFINITY },
                window,
                behind,
                must_be_tried: state.probes.are_useless(),
            });
        }
        // Assumes that this class has the same share of waiting requests as of requests in flight.
        let share = if all > 0.0 { (ios / all).min(1.0) } else { 1.0 };
        let outstanding = bytes + query.queued as f64 * share * size;
        let sizes = &self.sizes[class];
        self.admission[class].decide(query.now, &self.params, &mut self.offers, outstanding, sizes);
    }

    /// The mean size of the guest's requests.
    fn unit(&self, class: OpClass) -> f64 {
        self.sizes[class.index()].mean().max(f64::from(LEAST_BYTES))
    }

    /// The window of a path, including the request that is answered next.
    fn window_bytes(&self, path: PathId, class: OpClass) -> u64 {
        let unit = self.unit(class);
        (self.paths[path.index()].classes[class.index()].window(self.params.gain, unit) + unit) as u64
    }

    /// Has the other paths probed soon and the admission decided again: if one path has changed, the others may have
    /// changed too.
    fn changed(&mut self, path: PathId) {
        self.probe_at = None;
        for (state, index) in self.paths.iter_mut().zip(0..) {
            if index != path.index() {
                state.probes.request_now();
            }
        }
        self.admission.iter_mut().for_each(Admission::invalidate);
    }
}

impl Policy for Bdp {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let class = query.class.index();
        let (unit, bytes) = (self.unit(query.class), size_of(query.bytes));
        let mut has_decided = false;
        let (mut contenders, most) = loop {
            let admitted = self.admission[class].admitted(|| waiting(query, candidates));
            let (mut paths, mut contenders, mut most) = (0, 0, 0.0);
            for candidate in candidates {
                let bit = candidate.path.bit();
                paths |= bit;
                if candidate.has_room && admitted & bit != 0 {
                    let state = &self.paths[candidate.path.index()];
                    let view = self.views[class].look(state, self.params.gain, query, candidate, unit);
                    if view.room > 0.0 {
                        contenders |= bit;
                        most = if view.useful > most { view.useful } else { most };
                    }
                }
            }
            if has_decided || !self.admission[class].is_due(query.now, paths) {
                break (contenders, most);
            }
            self.decide(query, candidates);
            has_decided = true;
        };
        let mut chosen: Option<(PathId, &View)> = None;
        while contenders != 0 {
            let path = PathId(contenders.trailing_zeros() as u16);
            contenders &= contenders - 1;
            let view = self.views[class].last(path);
            let is_sooner = |(_, chosen): &(_, &View)| view.answered_in_s < chosen.answered_in_s;
            if view.useful >= USEFUL * most && chosen.as_ref().is_none_or(is_sooner) {
                chosen = Some((path, view));
            }
        }
        let Some((path, view)) = chosen else {
            return Choice::Wait { again: Some(query.now + LOOK_AGAIN) };
        };
        // The first request in flight has no oldest request before it.
        let fills = view.room.is_finite() && view.room - bytes <= 0.0;
        let state = &mut self.paths[path.index()];
        state.classes[class].bound(bytes, view.in_flight, fills);
        state.probes.bound(query.now, query.class);
        self.sizes[class].add(bytes);
        Choice::Path(path)
    }

    fn opinions(&mut self, query: &Query, candidates: &[Candidate]) -> Vec<Opinion> {
        self.decide_if_due(query, candidates);
        let (class, unit) = (query.class.index(), self.unit(query.class));
        let admitted = self.admission[class].admitted(|| waiting(query, candidates));
        let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let opinion = |candidate: &Candidate| {
            let state = &self.paths[candidate.path.index()];
            let (view, _) = view(state, self.params.gain, query, candidate, unit);
            if admitted & candidate.path.bit() == 0 {
                let known = state.estimate_now(query, candidate);
                let latency = known.map(|now| duration(now.delay + size_of(query.bytes) / now.rate));
                return Opinion::NotAdmitted { latency };
            }
            if candidate.has_room && view.room <= 0.0 {
                return Opinion::PolicyWindowFull { window_bytes: self.window_bytes(candidate.path, query.class) };
            }
            Opinion::AnsweredIn { answered_in: duration(view.answered_in_s) }
        };
        candidates.iter().map(opinion).collect()
    }

    fn completed(&mut self, done: &CompletedAttempt) {
        if self.budget.earn() {
            self.probe_at = None;
        }
        let state = &mut self.paths[done.path.index()];
        let own = &mut state.classes[done.class.index()];
        let bytes = size_of(done.bytes);
        let changed = match done.ended {
            AttemptEnd::Answered => {
                state.answered_at[done.class.index()] = Some(done.now);
                state.failed_at[done.class.index()] = None;
                own.answered(done.now, bytes, done.latency, in_flight(done.of_class), self.params.gain)
            }
            // Only this read is late. If the path were silent, silence would show it.
            AttemptEnd::Overtaken => false,
            AttemptEnd::Failed => {
                state.failed_at[done.class.index()] = Some(done.now);
                own.restart(done.now, Some(Mean { latency: done.latency.as_secs_f64(), size: bytes }));
                true
            }
        };
        if changed {
            self.changed(done.path);
        }
    }

    fn path_changed(&mut self, path: PathId) {
        self.paths[path.index()] = PathState::default();
        self.views.iter_mut().for_each(|of| of.forget(path));
        self.probe_at = None;
        self.admission.iter_mut().for_each(Admission::invalidate);
    }

    fn estimate(&self, path: PathId, class: OpClass) -> PathEstimate {
        let state = &self.paths[path.index()];
        let own = &state.classes[class.index()];
        let seconds = state.estimate(class).map(|(delay, rate)| delay + own.size() / rate);
        PathEstimate {
            latency: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            window_bytes: own.limit_is_known().then(|| self.window_bytes(path, class)),
            ..PathEstimate::default()
        }
    }

    fn configure(&mut self, spec: &PolicySpec) {
        self.params = Params::new(spec);
        self.paths.iter_mut().flat_map(|path| &mut path.classes).for_each(Estimator::gain_changed);
        self.admission.iter_mut().for_each(Admission::invalidate);
    }

    fn probe(&mut self, now: Instant, paths: u64, busy: bool) -> Option<(PathId, u32)> {
        if self.probe_at.is_some_and(|at| now < at) && self.probed == paths {
            return None;
        }
        self.probed = paths;
        self.probe_at = None;
        let (mut next, mut chosen): (Option<Instant>, Option<PathId>) = (None, None);
        for (state, path) in self.paths.iter().zip((0..).map(PathId)) {
            if paths & path.bit() == 0 || !busy && !state.probes.is_unknown() {
                continue;
            }
            let due = state.probes.due(now);
            if due > now {
                next = next.into_iter().chain([due]).min();
            } else if !self.budget.allows(now, &state.probes) {
                next = next.into_iter().chain([now + REST]).min();
            } else if chosen.is_none_or(|other| state.probes.last() < self.paths[other.index()].probes.last()) {
                chosen = Some(path);
            }
        }
        let Some(path) = chosen else {
            self.probe_at = next;
            return None;
        };
        self.budget.spend();
        self.paths[path.index()].probes.asked(now);
        Some((path, size_of_probe(self.sizes[OpClass::Read.index()].mean())))
    }

    fn probed(&mut self, done: &ProbeResult) {
        self.probe_at = None;
        let state = &mut self.paths[done.path.index()];
        let size = f64::from(done.bytes);
        let answer = done.latency.map(|latency| Mean { latency: latency.as_secs_f64(), size });
        if state.probes.answered(done.now, answer) {
            let latency = state.probes.mean().map_or(0.0, |mean| mean.latency);
            for class in OpClass::ALL {
                let own = &mut state.classes[class.index()];
                if class == OpClass::Read {
                    own.probe_latency_changed(done.now, latency);
                } else if state.probes.is_idle(done.now, class) {
                    // A read shows only that the estimate of writes is out of date. Writes in flight would show more.
                    own.restart(done.now, None);
                }
            }
        } else if state.probes.is_idle(done.now, OpClass::Read) {
            let reads = &mut state.classes[OpClass::Read.index()];
            if state.probes.contradicts(reads.known().map(|(delay, rate)| delay + size / rate)) {
                let latency = state.probes.mean().map_or(0.0, |mean| mean.latency);
                reads.probe_latency_changed(done.now, latency);
            }
        }
        self.admission.iter_mut().for_each(Admission::invalidate);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.probe_at
    }
}

/// How many requests of the class wait for a path. Assumes that the class has the same share of waiting requests as of
/// requests in flight.
fn waiting(query: &Query, candidates: &[Candidate]) -> f64 {
    let all: u32 = candidates.iter().map(|candidate| candidate.in_flight).sum();
    let of_class: u32 = candidates.iter().map(|candidate| candidate.of_class.ios).sum();
    let share = if all > 0 { f64::from(of_class) / f64::from(all) } else { 1.0 };
    query.queued as f64 * share
}

fn size_of(bytes: u32) -> f64 {
    f64::from(bytes.max(LEAST_BYTES))
}

/// Bytes in flight, with the least size of each request.
fn in_flight(usage: Usage) -> f64 {
    (usage.bytes as f64).max(f64::from(usage.ios) * f64::from(LEAST_BYTES))
}

#[cfg(test)]
mod tests;
