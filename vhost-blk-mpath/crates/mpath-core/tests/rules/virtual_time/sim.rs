//! Test helpers: a closed loop of requests on modelled paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;
use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, Association, ClassPolicies, DiskId, Epoch, FlowId, Group, GroupConfig, Io, Op, OpClass, Outcome,
    PathConfig, PathId, PolicyKind, SharedDisk, Tag, Window,
};

/// No path loses a command.
const NEVER: Duration = Duration::from_secs(1 << 20);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const US: Duration = Duration::from_micros(1);
pub(crate) const FAST: Duration = Duration::from_micros(200);
pub(crate) const SLOW: Duration = Duration::from_millis(30);

/// How a path answers: each request after its own delay, or never.
#[derive(Clone, Copy)]
pub(crate) enum Model {
    Fixed(Duration),
    /// Exponentially distributed, at least half the mean.
    Scattered(Duration),
    /// (reads, everything else)
    ByClass(Duration, Duration),
    /// One request after the other, at this many bytes a second.
    Pipe(u64),
    Silent,
}

pub(crate) struct Sim {
    pub(crate) now: Instant,
    pub(crate) start: Instant,
    pub(crate) group: Group,
    pub(crate) models: Vec<Model>,
    answers: BinaryHeap<Reverse<(Instant, u64, PathId, Tag)>>,
    ios: Vec<Io>,
    /// When each [`Model::Pipe`] has finished its requests.
    free_at: Vec<Instant>,
    random: u64,
    seq: u64,
    /// Since the last `run`: requests and bytes finished, and requests issued by path.
    pub(crate) finished: u64,
    pub(crate) bytes: u64,
    pub(crate) issued: Vec<u64>,
    pub(crate) recalled: u64,
    /// Times and paths of all requests and probes issued, if recorded.
    issues: Option<Vec<(Instant, usize)>>,
}

impl Sim {
    /// A closed loop of these requests.
    pub(crate) fn of(policies: impl Into<ClassPolicies>, window: Window, models: &[Model], ios: Vec<Io>) -> Self {
        let now = Instant::now();
        let config =
            GroupConfig { policy: policies.into(), window, seed: 7, io_timeout: NEVER, ..GroupConfig::default() };
        let mut group = Group::new(now, config, &[SharedDisk::default()]);
        for id in (0..models.len() as u16).map(PathId) {
            group.add_path(id, PathConfig::default());
            let association = Association {
                epoch: Epoch(0),
                ana: AnaState::Optimized.into(),
                volatile_write_cache: false,
                queue_depth: 1024,
            };
            group.path_up(now, id, association);
        }
        for io in &ios {
            group.submit(now, *io);
        }
        Self {
            now,
            start: now,
            group,
            models: models.to_vec(),
            answers: BinaryHeap::new(),
            ios,
            free_at: vec![now; models.len()],
            random: 0x9e37_79b9_7f4a_7c15,
            seq: 0,
            finished: 0,
            bytes: 0,
            issued: vec![0; models.len()],
            recalled: 0,
            issues: None,
        }
    }

    /// Records every request and probe issued from now on.
    pub(crate) fn record(&mut self) {
        self.issues = Some(Vec::new());
    }

    pub(crate) fn recorded(&self) -> &[(Instant, usize)] {
        self.issues.as_deref().unwrap_or_default()
    }

    fn remember(&mut self, path: PathId) {
        if let Some(issues) = &mut self.issues {
            issues.push((self.now, usize::from(path.0)));
        }
    }

    /// A closed loop of `depth` requests of 4 KiB.
    pub(crate) fn new(
        policies: impl Into<ClassPolicies>,
        window: Window,
        models: &[Model],
        depth: u32,
        op: impl Fn(u32) -> Op,
    ) -> Self {
        let io = |tag| Io { tag: Tag(tag), op: op(tag), bytes: 4096, disk: DiskId(0), flow: FlowId(0), fua: false };
        Self::of(policies, window, models, (0..depth).map(io).collect())
    }

    pub(crate) fn reads(policies: impl Into<ClassPolicies>, models: &[Model], depth: u32) -> Self {
        Self::new(policies, Window::default(), models, depth, |_| Op::Read)
    }

    fn answer_at(&mut self, path: PathId, io: Io) -> Option<Instant> {
        let path = usize::from(path.0);
        let delay = match self.models[path] {
            Model::Fixed(delay) => delay,
            Model::ByClass(reads, others) => {
                if io.op == Op::Read {
                    reads
                } else {
                    others
                }
            }
            Model::Pipe(bytes_per_s) => {
                let takes = Duration::from_nanos(u64::from(io.bytes) * 1_000_000_000 / bytes_per_s);
                self.free_at[path] = self.free_at[path].max(self.now) + takes;
                self.free_at[path] - self.now
            }
            Model::Silent => return None,
            Model::Scattered(mean) => {
                // xorshift64
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                #[allow(clippy::cast_precision_loss)]
                let uniform = ((self.random >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                mean.mul_f64(0.5 - 0.5 * uniform.ln())
            }
        };
        Some(self.now + delay)
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        (self.finished, self.bytes) = (0, 0);
        self.issued.fill(0);
        loop {
            while let Some(action) = self.group.poll_action(self.now) {
                match action {
                    Action::Finish { tag, result } => {
                        assert_eq!(result, Ok(()));
                        let io = self.ios[tag.0 as usize];
                        self.finished += 1;
                        self.bytes += u64::from(io.bytes);
                        self.group.submit(self.now, io);
                    }
                    Action::Recall { path, tag } => {
                        self.recalled += 1;
                        // Only silent paths become suspect here, and they never answer.
                        let abandoned = !self.forget(path, tag);
                        self.group.complete(self.now, path, tag, Outcome::Recalled { abandoned });
                    }
                    Action::Hedge { path, tag } => {
                        if let Some(at) = self.answer_at(path, self.ios[tag.0 as usize]) {
                            self.seq += 1;
                            self.answers.push(Reverse((at, self.seq, path, tag.of_hedge())));
                        }
                    }
                    Action::DropHedge { path, tag } => {
                        if self.forget(path, tag.of_hedge()) {
                            self.group.hedged(self.now, path, tag, Outcome::Recalled { abandoned: false });
                        }
                    }
                    Action::Adopt { .. } => {}
                    Action::Probe { path, bytes, disk } => {
                        self.remember(path);
                        let io = Io { tag: Tag::PROBE, op: Op::Read, bytes, disk, flow: FlowId(0), fua: false };
                        if let Some(at) = self.answer_at(path, io) {
                            self.seq += 1;
                            self.answers.push(Reverse((at, self.seq, path, Tag::PROBE)));
                        }
                    }
                    Action::Issue { path, tag } => {
                        self.issued[usize::from(path.0)] += 1;
                        self.remember(path);
                        if let Some(at) = self.answer_at(path, self.ios[tag.0 as usize]) {
                            self.seq += 1;
                            self.answers.push(Reverse((at, self.seq, path, tag)));
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
                if tag == Tag::PROBE {
                    self.group.probed(self.now, path, true);
                } else if let Some(read) = tag.hedged() {
                    self.group.hedged(self.now, path, read, Outcome::Success);
                } else {
                    self.group.complete(self.now, path, tag, Outcome::Success);
                }
            }
        }
    }

    /// Drops an outstanding answer. Returns whether there was one.
    fn forget(&mut self, path: PathId, tag: Tag) -> bool {
        let before = self.answers.len();
        self.answers.retain(|Reverse((_, _, of, other))| (*of, *other) != (path, tag));
        self.answers.len() < before
    }

    /// Share of the requests issued on path 0, in percent.
    pub(crate) fn share_of_first(&self) -> u64 {
        self.issued[0] * 100 / self.issued.iter().sum::<u64>().max(1)
    }

    /// Latencies of all reads since the start, in ns.
    pub(crate) fn latencies(&self) -> Histogram<u64> {
        let stats = self.group.stats(self.now);
        let mut all = stats.paths[0].class(OpClass::Read).latency.ns();
        for path in &stats.paths[1..] {
            all.add(path.class(OpClass::Read).latency.ns()).expect("histograms of one shape");
        }
        all
    }

    /// A quantile of these latencies.
    pub(crate) fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.latencies().value_at_quantile(quantile))
    }
}

/// Reads of 4 KiB per second, after one second of warm-up.
pub(crate) fn iops(policies: impl Into<ClassPolicies>, models: &[Model], depth: u32) -> u64 {
    let mut sim = Sim::reads(policies, models, depth);
    sim.run(Duration::from_secs(1));
    sim.run(Duration::from_secs(1));
    sim.finished
}

/// A policy with parameters.
pub(crate) fn with(kind: PolicyKind, params: &[(&str, &str)]) -> ClassPolicies {
    mpath_core::PolicySpec::new(kind, params.iter().copied()).expect("valid").into()
}
