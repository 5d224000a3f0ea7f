//! The event loop.

use std::mem;

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, ClassPolicies, DiskId, FlowId, Group, GroupConfig, Io, Op, Outcome, PathId, SharedDisk, Tag, Window,
};

use super::model::Busy;
use super::{Measured, Model, Workload};
use crate::group::{self, QUEUE_DEPTH};
use crate::rng::Rng;
use crate::timeline::{Step, Timeline};

/// No path loses a command.
const NEVER: Duration = Duration::from_secs(1 << 20);
/// The window sets no limit: only the limits of policies are compared.
const WINDOW: Window = Window { ios: QUEUE_DEPTH as u32, bytes: 1 << 30 };

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Request(Tag),
    Probe,
}

/// Work that a path was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Sent {
    seq: u64,
    at: Instant,
    path: PathId,
    answer: Answer,
    bytes: u32,
    read: bool,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Open {
    op: Op,
    bytes: u32,
    submitted: Instant,
    /// The number of the attempt that it waits for. An answer with another number belongs to an attempt that was recalled.
    sent: Option<u64>,
}

/// One group, its paths and its guest.
pub struct Sim {
    timeline: Timeline<Sent>,
    group: Group,
    workload: Workload,
    models: Vec<Model>,
    busy: Vec<Busy>,
    open: Vec<Open>,
    /// By path: the answers that it owes while it is silent. `None`: the path is not silent.
    silent: Vec<Option<Vec<Sent>>>,
    seq: u64,
    /// Sizes and operations come from a stream of their own, so that policies are compared on the same ones.
    guest: Rng,
    network: Rng,
    measured: Measured,
}

impl Sim {
    /// A guest that begins now, on paths that have just come up.
    pub fn new(policy: impl Into<ClassPolicies>, models: &[Model], workload: Workload, seed: u64) -> Self {
        let suspect_timeout = GroupConfig::default().suspect_timeout;
        Self::with_suspect_timeout(suspect_timeout, policy, models, workload, seed)
    }

    /// A guest that begins now, as for [`Self::new`], with another `suspect-timeout`.
    pub fn with_suspect_timeout(
        suspect_timeout: Duration,
        policy: impl Into<ClassPolicies>,
        models: &[Model],
        workload: Workload,
        seed: u64,
    ) -> Self {
        let timeline = Timeline::new();
        let config = GroupConfig {
            policy: policy.into(),
            window: WINDOW,
            seed,
            io_timeout: NEVER,
            suspect_timeout,
            ..GroupConfig::default()
        };
        let mut sim = Self {
            group: group::with_paths(timeline.now(), config, &[SharedDisk::default()], models.len()),
            workload,
            models: models.to_vec(),
            busy: vec![Busy::default(); models.len()],
            open: Vec::new(),
            timeline,
            silent: vec![None; models.len()],
            seq: 0,
            guest: Rng::single(seed),
            network: Rng::single(!seed),
            measured: Measured::default(),
        };
        for tag in (0..workload.depth).map(Tag) {
            sim.open.push(Open { op: Op::Read, bytes: 0, submitted: sim.timeline.now(), sent: None });
            sim.submit(tag);
        }
        sim
    }

    /// Lets the guest work for this time. Returns the results.
    pub fn run(&mut self, time: Duration) -> Measured {
        let end = self.timeline.now() + time;
        let paths = self.models.len();
        self.measured = Measured {
            seconds: time.as_secs_f64(),
            issued: vec![0; paths],
            probes: vec![0; paths],
            ..Measured::default()
        };
        loop {
            self.act();
            match self.timeline.step(self.group.next_timeout(), end) {
                Step::Event(sent) => {
                    self.answered(sent);
                    while let Some(sent) = self.timeline.next_due() {
                        self.answered(sent);
                    }
                }
                Step::Timeout => {}
                Step::End => return mem::take(&mut self.measured),
            }
        }
    }

    /// How often a path became suspect so far.
    #[must_use]
    pub fn suspicions(&self) -> u64 {
        self.group.stats(self.timeline.now()).paths.iter().map(|path| path.suspicions).sum()
    }

    /// Changes the behaviour of a path, for requests that it is given from now on.
    pub fn change(&mut self, path: usize, model: Model) {
        self.models[path] = model;
    }

    /// Silences a path that is not silent yet. From now on it answers no request, not even those that it has already.
    pub fn silence(&mut self, path: usize) {
        let owed = self.timeline.take(|sent| usize::from(sent.path.0) == path);
        let before = self.silent[path].replace(owed);
        assert!(before.is_none(), "a path is silent once");
    }

    /// Ends the silence of a path. It begins now to serve the requests that it was given, as a connection does when its link is
    /// back.
    pub fn restore(&mut self, path: usize) {
        for sent in self.silent[path].take().expect("a silent path") {
            self.carry(sent);
        }
    }

    /// How long it takes from now until the guest has this throughput for a tenth of a second. `None` if that takes longer than
    /// `limit`.
    pub fn time_to(&mut self, bytes_per_s: f64, limit: Duration) -> Option<Duration> {
        const STEP: Duration = Duration::from_millis(10);
        let begin = self.timeline.now();
        let mut last = [0.0; 10];
        while self.timeline.now() - begin < limit {
            last.rotate_left(1);
            last[9] = self.run(STEP).bytes_per_s();
            if last.iter().sum::<f64>() / 10.0 >= bytes_per_s {
                return Some((self.timeline.now() - begin).saturating_sub(9 * STEP));
            }
        }
        None
    }

    fn submit(&mut self, tag: Tag) {
        let now = self.timeline.now();
        let (op, bytes) = self.workload.draw(&mut self.guest);
        self.open[tag.0 as usize] = Open { op, bytes, submitted: now, sent: None };
        self.group.submit(now, Io { tag, op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
    }

    fn act(&mut self) {
        let now = self.timeline.now();
        while let Some(action) = self.group.poll_action(now) {
            match action {
                Action::Issue { path, tag } => {
                    self.measured.issued[usize::from(path.0)] += 1;
                    let open = self.open[tag.0 as usize];
                    let sent = self.send(path, open.bytes, open.op == Op::Read, Answer::Request(tag));
                    self.open[tag.0 as usize].sent = Some(sent);
                }
                Action::Hedge { .. } | Action::DropHedge { .. } | Action::Adopt { .. } => {
                    unreachable!("nothing is hedged")
                }
                Action::Probe { path, bytes, .. } => {
                    self.measured.probes[usize::from(path.0)] += 1;
                    self.send(path, bytes, true, Answer::Probe);
                }
                Action::Finish { tag, result } => {
                    assert_eq!(result, Ok(()), "nothing fails here");
                    let open = self.open[tag.0 as usize];
                    self.measured.bytes += u64::from(open.bytes);
                    let latency = now - open.submitted;
                    self.measured.latencies.push(latency);
                    if open.op == Op::Read {
                        self.measured.slowest_read = self.measured.slowest_read.max(latency);
                    }
                    self.submit(tag);
                }
                Action::Recall { path, tag } => {
                    self.open[tag.0 as usize].sent = None;
                    self.group.complete(now, path, tag, Outcome::Recalled { abandoned: true });
                }
            }
        }
    }

    /// Gives a path a request or a probe. Returns the number of the attempt.
    fn send(&mut self, path: PathId, bytes: u32, read: bool, answer: Answer) -> u64 {
        self.seq += 1;
        let sent = Sent { seq: self.seq, at: self.timeline.now(), path, answer, bytes, read };
        match &mut self.silent[usize::from(path.0)] {
            Some(owed) => owed.push(sent),
            None => self.carry(sent),
        }
        self.seq
    }

    fn carry(&mut self, sent: Sent) {
        let index = usize::from(sent.path.0);
        let (now, model) = (self.timeline.elapsed(), &self.models[index]);
        let time = self.busy[index].serve(now, model, sent.bytes, sent.read, &mut self.network);
        self.timeline.after(time, sent);
    }

    fn answered(&mut self, sent: Sent) {
        let now = self.timeline.now();
        match sent.answer {
            Answer::Request(tag) if self.open[tag.0 as usize].sent != Some(sent.seq) => {
                self.group.progress(now, sent.path, 1, sent.read.then_some((sent.at, sent.bytes)));
            }
            Answer::Request(tag) => self.group.complete(now, sent.path, tag, Outcome::Success),
            Answer::Probe => self.group.probed(now, sent.path, true),
        }
    }
}
