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
//! * [`probes`]: what is known of the others. [`retrial`]: when they are tried with what probes do not tell of.

// Bytes, counts and rates are far below 2^52, and none is negative.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod admission;
mod change;
mod drain;
mod estimator;
mod latency;
mod probes;
mod rate;
mod retrial;
mod sizes;

use std::time::{Duration, Instant};

use self::admission::{Admission, Offer};
use self::change::is_late;
use self::estimator::Estimator;
use self::latency::Mean;
use self::probes::{Budget, Probes, REST, size_of_probe};
use self::retrial::Retrial;
use self::sizes::Sizes;
use super::{About, Candidate, Choice, Completed, Ended, Param, Policy, PolicySpec, Probed, Query};
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
/// How long a path is taken for one that fails, if nothing is heard of it before.
const FORGIVEN: Duration = Duration::from_secs(1);
/// When a request waits, the question is asked again after this: a path that stays silent is not waited for any longer.
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
        let ratio = |name| spec.thousandths(name) as f64 / 1000.0;
        Self { latency_first: spec.word("objective") == 1, min_gain: ratio("min-gain"), gain: ratio("gain") }
    }
}

/// What is known of one path.
#[derive(Clone, Debug, Default)]
struct PathState {
    classes: [Estimator; 3],
    /// By class, when a request was answered last.
    answered_at: [Option<Instant>; 3],
    /// By class, when one came back in vain, if none has been answered since.
    failed_at: [Option<Instant>; 3],
    probes: Probes,
    retrials: [Retrial; 3],
}

impl PathState {
    /// Delay (s) and rate (bytes/s) for a class: its own, or what the probes say, or the reads that make these needless.
    fn estimate(&self, class: OpClass) -> Option<(f64, f64)> {
        let own = self.classes[class.index()].known();
        let probed = || self.probes.mean().map(|mean| (mean.latency, f64::INFINITY));
        own.or_else(probed).or_else(|| self.classes[OpClass::Read.index()].known())
    }

    /// What came back in vain says nothing any more after a while, and what reads contradict may have passed: it is to be found
    /// out anew.
    fn forgive(&mut self, now: Instant, class: OpClass) {
        let forgiven = if let Some(at) = self.failed_at[class.index()] {
            now - at >= FORGIVEN
        } else {
            let used_at = self.probes.bound_at(class).filter(|_| self.reads_contradict(class));
            used_at.is_some_and(|at| self.retrials[class.index()].is_due(now, at))
        };
        if forgiven {
            self.failed_at[class.index()] = None;
            self.classes[class.index()].restart(now, None);
        }
    }

    /// Whether reads take far less than what is known of this class, which may be due to what has passed.
    fn reads_contradict(&self, class: OpClass) -> bool {
        let own = &self.classes[class.index()];
        let reads = self.classes[OpClass::Read.index()].known().map(|(delay, rate)| delay + own.size() / rate);
        let reads = reads.or_else(|| self.probes.mean().map(|mean| mean.latency));
        let (Some(reads), Some(latency)) = (reads, own.path_latency()) else { return false };
        class != OpClass::Read && is_late(latency, reads)
    }

    /// The same as of now, for a path that holds something: silence says that it takes longer than is known.
    fn estimate_now(&self, query: &Query, candidate: &Candidate) -> Option<(f64, f64)> {
        let (delay, rate) = self.estimate(query.class)?;
        let silence = candidate.oldest.map_or(0.0, |oldest| {
            let since = self.answered_at[query.class.index()].max(Some(oldest.bound_at));
            since.map_or(0.0, |since| query.now.saturating_duration_since(since).as_secs_f64())
        });
        let expected = delay + in_flight(candidate.of_class) / rate;
        Some((if is_late(silence, expected) { silence } else { delay }, rate))
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
        for candidate in candidates {
            self.paths[candidate.path.index()].forgive(query.now, query.class);
        }
        self.offers.clear();
        let (mut bytes, mut ios, mut all) = (0.0, 0.0, 0.0);
        let mut size: f64 = size_of(query.bytes);
        // The same for all paths: the first requests of one may all have been large, and those of another small.
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

    /// Mean size of the guest's requests.
    fn unit(&self, class: OpClass) -> f64 {
        self.sizes[class.index()].mean().max(f64::from(LEAST_BYTES))
    }

    fn view(&self, query: &Query, candidate: &Candidate) -> View {
        let state = &self.paths[candidate.path.index()];
        let own = &state.classes[query.class.index()];
        let in_flight = in_flight(candidate.of_class);
        let size = size_of(query.bytes);
        let unit = self.unit(query.class);
        let room = match candidate.oldest {
            _ if !candidate.has_room => 0.0,
            None => f64::INFINITY,
            Some(oldest) => own.window(self.params.gain, unit) - (in_flight - size_of(oldest.bytes)),
        };
        let (delay, rate) = state.estimate_now(query, candidate).unwrap_or((0.0, f64::INFINITY));
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
            return Choice::Wait { again: Some(query.now + LOOK_AGAIN) };
        };
        let state = &mut self.paths[view.path.index()];
        let bytes = size_of(query.bytes);
        // With the first request in flight there is no oldest one before it.
        let full = view.room.is_finite() && view.room - bytes <= 0.0;
        state.classes[class].bound(bytes, view.in_flight, full);
        state.probes.bound(query.now, query.class);
        self.sizes[class].add(bytes);
        Choice::Path(view.path)
    }

    fn completed(&mut self, done: &Completed) {
        self.budget.earn();
        let state = &mut self.paths[done.path.index()];
        let own = &mut state.classes[done.class.index()];
        let bytes = size_of(done.bytes);
        let changed = match done.ended {
            Ended::Answered => {
                state.answered_at[done.class.index()] = Some(done.now);
                state.failed_at[done.class.index()] = None;
                own.answered(done.now, bytes, done.latency, in_flight(done.of_class))
            }
            // It is late among others that are not. Were the path silent it would say so itself.
            Ended::Overtaken => false,
            Ended::InVain => {
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
            window_bytes: own.limit_is_known().then(|| {
                let unit = self.unit(class);
                (own.window(self.params.gain, unit) + unit) as u64
            }),
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

    fn probed(&mut self, done: &Probed) {
        self.probe_at = None;
        let state = &mut self.paths[done.path.index()];
        let size = f64::from(done.bytes);
        let answer = done.latency.map(|latency| Mean { latency: latency.as_secs_f64(), size });
        if state.probes.answered(done.now, answer) {
            let latency = state.probes.mean().map_or(0.0, |mean| mean.latency);
            for class in OpClass::ALL {
                let own = &mut state.classes[class.index()];
                if class == OpClass::Read {
                    own.moved(done.now, latency);
                } else if state.probes.is_idle(done.now, class) {
                    // Of writes a read says only that what was known of them is old; those under way say more.
                    own.restart(done.now, None);
                }
            }
        } else if state.probes.is_idle(done.now, OpClass::Read) {
            let reads = &mut state.classes[OpClass::Read.index()];
            if state.probes.contradicts(reads.known().map(|(delay, rate)| delay + size / rate)) {
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
    use crate::policy::testing::{busy, candidate, done, full, path, read};

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
        let again = Choice::Wait { again: Some(now + LOOK_AGAIN) };
        assert_eq!(policy.select(&read(now), &[full(0), candidate(1)]), again);
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
        policy.completed(&Completed { ended: Ended::InVain, ..done(now + 300 * MS, 0, 300 * MS) });
        assert_eq!(policy.select(&read(now + 300 * MS), &candidates), path(1));
    }

    /// Also where nothing says that it has become better: reads go on there, and so there are no probes.
    #[test]
    fn a_path_that_failed_one_request_is_tried_again() {
        for class in [OpClass::Write, OpClass::Other] {
            let now = Instant::now();
            let mut policy = bdp(&[]);
            let candidates = [candidate(0), candidate(1)];
            let choose = |policy: &mut Bdp, class, at| {
                let Choice::Path(path) = policy.select(&Query { class, ..read(at) }, &candidates) else {
                    panic!("idle paths have room")
                };
                path
            };
            for at in (0..200).map(|n| now + n * MS) {
                (0..2).for_each(|path| policy.completed(&done(at, path, MS)));
                let path = choose(&mut policy, class, at);
                policy.completed(&Completed { class, ..done(at, path.0, MS) });
            }
            let failed = now + 200 * MS;
            let bad = choose(&mut policy, class, failed);
            let failure = Completed { class, ended: Ended::InVain, ..done(failed, bad.0, Duration::from_secs(1)) };
            policy.completed(&failure);
            assert_ne!(choose(&mut policy, class, failed + MS), bad, "{class:?}");
            // The other one is as good: there is only something to choose while it is full.
            let only_bad = candidates.map(|c| if c.path == bad { c } else { full(c.path.0) });
            let query = |at| Query { class, ..read(at) };
            let before = policy.select(&query(failed + FORGIVEN / 2), &only_bad);
            assert!(matches!(before, Choice::Wait { .. }), "{class:?}");
            assert_eq!(policy.select(&query(failed + FORGIVEN), &only_bad), Choice::Path(bad), "{class:?}");
        }
    }

    /// No probe tells of writes: one that took long may have met what has passed.
    #[test]
    fn writes_that_took_long_are_risked_again_where_reads_do_not() {
        for reads_too in [false, true] {
            let now = Instant::now();
            let mut policy = bdp(&[]);
            let write = |now| Query { class: OpClass::Write, ..read(now) };
            let written = |now, latency| Completed { class: OpClass::Write, ..done(now, 0, latency) };
            // The other one is as good, and full.
            let candidates = [candidate(0), full(1)];
            let mut at = now;
            for _ in 0..200 {
                at += MS;
                (0..2).for_each(|path| policy.completed(&done(at, path, MS)));
                assert_eq!(policy.select(&write(at), &candidates), path(0));
                policy.completed(&written(at + MS, MS));
                policy.completed(&Completed { class: OpClass::Write, ..done(at + MS, 1, MS) });
            }
            let used_at = at;
            let late = at + 200 * MS;
            for _ in 0..8 {
                policy.completed(&written(late, 200 * MS));
                if reads_too {
                    policy.completed(&done(late, 0, 200 * MS));
                }
            }
            let before = policy.select(&write(used_at + 490 * MS), &candidates);
            assert!(matches!(before, Choice::Wait { .. }), "{before:?}");
            let again = used_at + 500 * MS;
            let after = policy.select(&write(again), &candidates);
            assert_eq!(after == path(0), !reads_too, "{after:?}");
            // They take long again.
            (0..8).for_each(|_| policy.completed(&written(again + 200 * MS, 200 * MS)));
            let before = policy.select(&write(again + 990 * MS), &candidates);
            assert!(matches!(before, Choice::Wait { .. }), "{before:?}");
            let after = policy.select(&write(again + 1000 * MS), &candidates);
            assert_eq!(after == path(0), !reads_too, "{after:?}");
        }
    }

    #[test]
    fn a_read_overtaken_by_its_hedge_says_nothing_of_its_path() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 5 * MS]);
        let candidates = [candidate(0), candidate(1)];
        for n in 0..100 {
            let at = now + n * MS;
            assert_eq!(policy.select(&read(at), &candidates), path(0));
            let ended = if n % 20 == 10 { Ended::Overtaken } else { Ended::Answered };
            policy.completed(&Completed { ended, ..done(at, 0, if ended == Ended::Answered { MS } else { 50 * MS }) });
        }
        let latency = policy.estimate(PathId(0), OpClass::Read).latency.expect("known");
        assert!(latency < MS * 11 / 10, "{latency:?}");
    }

    #[test]
    fn a_path_that_has_fallen_silent_is_not_waited_for() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 5 * MS]);
        assert_eq!(policy.select(&read(now), &[candidate(0), candidate(1)]), path(0));
        let stalled = Candidate { has_room: false, ..busy(0, now) };
        let Choice::Wait { again: Some(again) } = policy.select(&read(now + MS), &[stalled, candidate(1)]) else {
            panic!("it is waited for while it may answer")
        };
        assert_eq!(policy.select(&read(again), &[stalled, candidate(1)]), path(1));
        // A single late one, while others are answered, is not silence.
        policy.completed(&done(again + 5 * MS, 0, MS));
        let choice = policy.select(&read(again + 6 * MS), &[stalled, candidate(1)]);
        assert!(matches!(choice, Choice::Wait { .. }), "{choice:?}");
    }

    #[test]
    fn probes_go_to_the_path_that_has_waited_longest() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, 5 * MS, 5 * MS, 5 * MS]);
        let mut order = Vec::new();
        let mut at = now;
        while order.len() < 6 {
            // The budget is for one a second: fewer than the three idle paths could do with.
            at += 10 * MS;
            let idle = [0, 1, 2, 3].map(candidate);
            // However seldom it is asked, the fast path is the fast path.
            assert_eq!(policy.select(&read(at), &idle), path(0));
            policy.completed(&done(at + MS, 0, MS));
            if let Some((path, bytes)) = policy.probe(at, 0b1110, true) {
                policy.probed(&Probed { now: at, path, bytes, latency: Some(5 * MS) });
                order.push(path.0);
            }
        }
        assert_eq!(order, [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn writes_do_not_say_how_long_reads_take_and_probes_do_not_say_how_long_writes_take() {
        let now = Instant::now();
        let write = |now| Query { class: OpClass::Write, ..read(now) };
        let mut policy = bdp(&[]);
        probe(&mut policy, now, &[MS, MS]);
        let mut at = now;
        let (mut probes, mut used) = (0, PathId(0));
        for _ in 0..3000 {
            at += 10 * MS;
            let Choice::Path(path) = policy.select(&write(at), &[candidate(0), candidate(1)]) else {
                panic!("idle paths have room")
            };
            used = path;
            policy.completed(&Completed { class: OpClass::Write, ..done(at + MS, path.0, MS) });
            // While there are only writes, reads have become far slower, and vary.
            if let Some((path, bytes)) = policy.probe(at, 0b11, true) {
                policy.probed(&Probed {
                    now: at,
                    path,
                    bytes,
                    latency: Some(if probes % 2 == 0 { 20 * MS } else { 40 * MS }),
                });
                probes += 1;
            }
        }
        // One for a hundred writes, and those on credit.
        assert!((10..=30 + 18).contains(&probes), "{probes}");
        let latency = |class| policy.estimate(used, class).latency.expect("known");
        assert!(latency(OpClass::Read) > 10 * MS && latency(OpClass::Write) < 2 * MS);
    }

    #[test]
    fn the_first_request_of_a_path_does_not_size_its_window() {
        let now = Instant::now();
        let mut policy = bdp(&[]);
        for _ in 0..1000 {
            policy.select(&read(now), &[candidate(0)]);
        }
        policy.path_changed(PathId(1));
        let large = Query { bytes: 1 << 20, ..read(now) };
        assert_eq!(policy.select(&large, &[candidate(1)]), path(1));
        // The mean is 14 KiB by now.
        let usage = Usage { ios: 13, bytes: (1 << 20) + 12 * 4096 };
        let oldest = Some(super::super::Oldest { bound_at: now, bytes: 1 << 20 });
        let held = Candidate { of_class: usage, in_flight: 13, oldest, ..candidate(1) };
        assert!(matches!(policy.select(&read(now), &[held]), Choice::Wait { .. }), "three more of the mean size");
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
