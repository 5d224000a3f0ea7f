//! Policies against modelled paths, in virtual time: seconds of I/O in milliseconds, the same result on every run.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::{
    Action, AnaState, Association, ClassPolicies, DirtyPaths, Epoch, FlowId, Group, GroupConfig, Injection, Io, Op,
    OpClass, Outcome, PathConfig, PathId, PolicyKind, PolicySpec, Tag, Window,
};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);
const FAST: Duration = Duration::from_micros(200);
const SLOW: Duration = Duration::from_millis(30);

/// How a path answers: each request after a delay of its own, or never.
#[derive(Clone, Copy)]
enum Model {
    Fixed(Duration),
    /// Exponentially distributed, at least half the mean.
    Scattered(Duration),
    /// (reads, everything else)
    ByClass(Duration, Duration),
    Silent,
}

struct Sim {
    now: Instant,
    start: Instant,
    group: Group,
    models: Vec<Model>,
    answers: BinaryHeap<Reverse<(Instant, u64, PathId, Tag)>>,
    ops: Vec<Op>,
    random: u64,
    seq: u64,
    /// Requests finished, and by path requests issued, since the last `run`.
    finished: u64,
    issued: Vec<u64>,
    recalled: u64,
}

impl Sim {
    /// A closed loop of `depth` requests.
    fn new(policy: PolicyKind, window: Window, models: &[Model], depth: u32, op: impl Fn(u32) -> Op) -> Self {
        let now = Instant::now();
        let config = GroupConfig { policy: policy.into(), window, seed: 7, ..GroupConfig::default() };
        let mut group = Group::new(now, config, Arc::new(DirtyPaths::new()));
        for id in (0..models.len() as u16).map(PathId) {
            group.add_path(id, PathConfig::default());
            let association = Association {
                epoch: Epoch(0),
                ana: AnaState::Optimized,
                volatile_write_cache: false,
                queue_depth: 1024,
            };
            group.path_up(now, id, association);
        }
        let ops: Vec<Op> = (0..depth).map(op).collect();
        let mut sim = Self {
            now,
            start: now,
            group,
            models: models.to_vec(),
            answers: BinaryHeap::new(),
            ops,
            random: 0x9e37_79b9_7f4a_7c15,
            seq: 0,
            finished: 0,
            issued: vec![0; models.len()],
            recalled: 0,
        };
        for tag in 0..depth {
            sim.submit(Tag(tag));
        }
        sim
    }

    fn reads(policy: PolicyKind, models: &[Model], depth: u32) -> Self {
        Self::new(policy, Window::default(), models, depth, |_| Op::Read)
    }

    fn submit(&mut self, tag: Tag) {
        let io = Io { tag, op: self.ops[tag.0 as usize], bytes: 4096, flow: FlowId(0), fua: false };
        self.group.submit(self.now, io);
    }

    fn delay(&mut self, path: PathId, op: Op) -> Option<Duration> {
        match self.models[usize::from(path.0)] {
            Model::Fixed(delay) => Some(delay),
            Model::ByClass(reads, others) => Some(if op == Op::Read { reads } else { others }),
            Model::Silent => None,
            Model::Scattered(mean) => {
                // xorshift64
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                #[allow(clippy::cast_precision_loss)]
                let uniform = ((self.random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                Some(mean.mul_f64(0.5 - 0.5 * uniform.ln()))
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        self.finished = 0;
        self.issued.fill(0);
        loop {
            while let Some(action) = self.group.poll_action(self.now) {
                match action {
                    Action::Finish { tag, result } => {
                        assert_eq!(result, Ok(()));
                        self.finished += 1;
                        self.submit(tag);
                    }
                    // Only silent paths become suspect here, and they never answer.
                    Action::Recall { path, tag } => {
                        self.recalled += 1;
                        self.group.complete(self.now, path, tag, Outcome::Recalled { abandoned: true });
                    }
                    Action::Issue { path, tag } => {
                        self.issued[usize::from(path.0)] += 1;
                        if let Some(delay) = self.delay(path, self.ops[tag.0 as usize]) {
                            self.seq += 1;
                            self.answers.push(Reverse((self.now + delay, self.seq, path, tag)));
                        }
                    }
                }
            }
            let answer = self.answers.peek().map(|Reverse((at, ..))| *at);
            let next = [answer, self.group.next_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            assert!(next >= self.now, "time does not go backwards");
            self.now = next;
            while let Some(Reverse((at, _, path, tag))) = self.answers.peek().copied() {
                if at > self.now {
                    break;
                }
                self.answers.pop();
                self.group.complete(self.now, path, tag, Outcome::Success);
            }
        }
    }

    /// Share of the requests issued on path 0, in percent.
    fn share_of_first(&self) -> u64 {
        self.issued[0] * 100 / self.issued.iter().sum::<u64>().max(1)
    }
}

fn iops(policy: PolicyKind, models: &[Model], depth: u32) -> u64 {
    let mut sim = Sim::reads(policy, models, depth);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(1));
    sim.finished
}

#[test]
fn latency_rr_is_far_ahead_of_round_robin_on_unequal_paths() {
    for models in [[Model::Fixed(FAST), Model::Fixed(SLOW)], [Model::Fixed(SLOW), Model::Fixed(FAST)]] {
        for (depth, fast_alone) in [(1, 5_000), (32, 160_000)] {
            let round_robin = iops(PolicyKind::RoundRobin, &models, depth);
            let latency_rr = iops(PolicyKind::LatencyRr, &models, depth);
            println!("depth {depth}: round-robin {round_robin} IOPS, latency-rr {latency_rr} IOPS");
            assert!(latency_rr > 20 * round_robin);
            assert!(latency_rr * 100 >= fast_alone * 95, "{latency_rr} of {fast_alone}");
        }
    }
}

#[test]
fn an_injection_does_what_a_slower_path_does() {
    let mut sim = Sim::reads(PolicyKind::RoundRobin, &[Model::Fixed(FAST), Model::Fixed(FAST)], 32);
    sim.group.set_injection(PathId(0), Injection::latency(SLOW));
    sim.run(Duration::from_secs(1));
    let round_robin = sim.finished;
    let stats = sim.group.stats(sim.now);
    let slow = &stats.paths[0].class(OpClass::Read).latency_ns;
    assert!(slow.value_at_quantile(0.5) >= 30_000_000, "injections are measured");
    // The live switch of the main job.
    sim.group.set_policy(PolicyKind::LatencyRr);
    sim.run(Duration::from_secs(1));
    assert!(sim.finished > 20 * round_robin, "{} after {round_robin}", sim.finished);
    // Both paths are good again: the time until both are used is bounded by one probe.
    sim.group.clear_injection(PathId(0));
    sim.run(Duration::from_millis(1200));
    sim.run(Duration::from_secs(1));
    assert!((49..=51).contains(&sim.share_of_first()), "{}", sim.share_of_first());
}

#[test]
fn latency_rr_leaves_a_path_that_becomes_slow_within_few_requests() {
    for (depth, most) in [(1, 2), (32, 26)] {
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(FAST)], depth);
        sim.run(Duration::from_secs(2));
        assert!((49..=51).contains(&sim.share_of_first()));
        sim.models[0] = Model::Fixed(SLOW);
        sim.run(400 * MS);
        assert!(sim.issued[0] <= most, "depth {depth}: {} requests", sim.issued[0]);
        sim.models[0] = Model::Fixed(FAST);
        sim.run(Duration::from_millis(1200));
        sim.run(Duration::from_secs(1));
        assert!((49..=51).contains(&sim.share_of_first()), "back in turn");
    }
}

#[test]
fn latency_rr_survives_a_silent_path() {
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(FAST)], 64);
    sim.run(Duration::from_secs(1));
    sim.models[0] = Model::Silent;
    sim.run(Duration::from_secs(2));
    // Its half of the 64, and half of the other half before the silence shows.
    assert!(sim.issued[0] <= 48, "{} requests are stuck", sim.issued[0]);
    assert!(sim.finished > 150_000, "{}", sim.finished);
}

#[test]
fn latency_rr_survives_a_silent_path_with_its_window_full() {
    let window = Window { ios: 4, bytes: 1 << 20 };
    let models = [Model::Fixed(FAST), Model::Fixed(SLOW)];
    let mut sim = Sim::new(PolicyKind::LatencyRr, window, &models, 16, |_| Op::Read);
    sim.run(Duration::from_secs(1));
    sim.models[0] = Model::Silent;
    sim.run(Duration::from_secs(3));
    // 4 at a time in 30 ms, from the moment on when the silence has lasted as long as the slow path takes.
    assert!(sim.finished > 350, "{}", sim.finished);
}

#[test]
fn latency_rr_uses_equal_paths_equally_whatever_the_scatter() {
    for depth in [1, 8, 32] {
        let models = [Model::Scattered(FAST); 3];
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, depth);
        sim.run(200 * MS);
        for _ in 0..8 {
            sim.run(Duration::from_millis(200));
            let all: u64 = sim.issued.iter().sum();
            for issued in &sim.issued {
                assert!((25..=42).contains(&(issued * 100 / all)), "depth {depth}: {:?}", sim.issued);
            }
        }
    }
}

#[test]
fn latency_rr_probes_at_a_bounded_rate_however_many_paths_are_slow() {
    let mut models = vec![Model::Fixed(SLOW); 6];
    models[3] = Model::Fixed(FAST);
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, 1);
    sim.run(Duration::from_secs(2));
    sim.run(Duration::from_secs(30));
    let probes: u64 = (0..6).filter(|path| *path != 3).map(|path| sim.issued[path]).sum();
    // One in 32 × 30 ms, with jitter up to 1/8 more.
    assert!((27..=32).contains(&probes), "{probes}");
    assert!((0..6).all(|path| sim.issued[path] >= 4), "nobody is forgotten: {:?}", sim.issued);
}

#[test]
fn latency_rr_estimates_reads_and_writes_apart() {
    let models = [Model::ByClass(FAST, SLOW), Model::ByClass(SLOW, FAST)];
    let op = |tag| if tag % 2 == 0 { Op::Read } else { Op::Write };
    let mut sim = Sim::new(PolicyKind::LatencyRr, Window::default(), &models, 16, op);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(2));
    assert!(sim.finished > 150_000, "{} of 160,000", sim.finished);
}

#[test]
fn a_full_slow_path_does_not_block_round_robin() {
    let window = Window { ios: 8, bytes: 1 << 20 };
    let models = [Model::Fixed(SLOW), Model::Fixed(FAST)];
    let mut sim = Sim::new(PolicyKind::RoundRobin, window, &models, 32, |_| Op::Read);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(1));
    // 8 at a time in 0.2 ms on the fast path alone.
    assert!(sim.finished > 39_000, "{}", sim.finished);
}

#[test]
fn latency_rr_waits_for_the_fast_path_unless_the_slow_one_answers_sooner() {
    let slower = |latency| [Model::Fixed(FAST), Model::Fixed(latency)];
    let window = Window { ios: 4, bytes: 1 << 20 };
    let run = |models: [Model; 2], depth| {
        let mut sim = Sim::new(PolicyKind::LatencyRr, window, &models, depth, |_| Op::Read);
        sim.run(Duration::from_secs(2));
        sim.run(Duration::from_secs(2));
        sim.issued[1]
    };
    // 28 wait behind 4 on the fast path: the last of them is through after 8 × 0.2 ms.
    let probes_only = 4;
    assert!(run(slower(SLOW), 32) <= probes_only);
    assert!(run(slower(1700 * US), 32) <= probes_only);
    assert!(run(slower(1300 * US), 32) > 1000, "4 at a time in 1.3 ms is worth it");
    assert!(run(slower(1300 * US), 5) <= probes_only, "but not for a single waiting request");
}

#[test]
fn queue_depth_and_numa_follow_their_rules() {
    let models = [Model::Fixed(SLOW), Model::Fixed(FAST)];
    let mut sim = Sim::reads(PolicyKind::QueueDepth, &models, 32);
    sim.run(Duration::from_secs(1));
    // Half of the 32 sit on the slow path, whatever it takes.
    assert!((530..=550).contains(&sim.issued[0]), "{:?}", sim.issued);
    let mut sim = Sim::reads(PolicyKind::Numa, &models, 32);
    sim.run(Duration::from_secs(1));
    assert_eq!(sim.issued[1], 0);
}

#[test]
fn a_policy_that_stays_keeps_its_estimates() {
    let slow = |sim: &mut Sim, policies: ClassPolicies| {
        sim.group.set_policy(policies);
        assert_eq!(*sim.group.policy(), policies);
        sim.run(100 * MS);
        sim.issued[1]
    };
    let latency_rr = |threshold| PolicySpec::new(PolicyKind::LatencyRr, [("threshold", threshold)]).expect("valid");
    let mut sim = Sim::reads(PolicyKind::LatencyRr, &[Model::Fixed(FAST), Model::Fixed(SLOW)], 4);
    sim.run(100 * MS);
    // Nothing is measured again: not when nothing changes, nor when a parameter or the other class does.
    assert_eq!(slow(&mut sim, PolicyKind::LatencyRr.into()), 0);
    assert_eq!(slow(&mut sim, latency_rr("1.5").into()), 0);
    let split = ClassPolicies { read: latency_rr("1.5"), write: PolicyKind::RoundRobin.into() };
    assert_eq!(slow(&mut sim, split), 0);
    // The reads' policy is the one that takes over everything.
    assert_eq!(slow(&mut sim, latency_rr("1.5").into()), 0);
    sim.group.set_policy(PolicyKind::Numa);
    assert_eq!(slow(&mut sim, PolicyKind::LatencyRr.into()), 1, "a policy that is put into force knows nothing");
}

#[test]
fn reads_and_writes_by_policies_of_their_own() {
    let models = [Model::Fixed(FAST), Model::Fixed(SLOW)];
    let op = |tag| if tag % 2 == 0 { Op::Read } else { Op::Write };
    let mut sim = Sim::new(PolicyKind::Numa, Window::default(), &models, 16, op);
    let policies = ClassPolicies { read: PolicyKind::LatencyRr.into(), write: PolicyKind::RoundRobin.into() };
    sim.group.set_policy(policies);
    sim.run(Duration::from_secs(2));
    let stats = sim.group.stats(sim.now);
    let ios = |path: usize, class| stats.paths[path].class(class).ios;
    assert!(ios(1, OpClass::Read) <= 6, "the first ones, and probes: {}", ios(1, OpClass::Read));
    assert!(ios(1, OpClass::Write).abs_diff(ios(0, OpClass::Write)) <= 16, "in turn");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let models = [Model::Scattered(FAST), Model::Scattered(SLOW), Model::Scattered(FAST)];
        let mut sim = Sim::reads(PolicyKind::LatencyRr, &models, 16);
        sim.run(Duration::from_secs(1));
        (sim.finished, sim.issued.clone(), sim.now - sim.start)
    };
    assert_eq!(run(), run());
}
