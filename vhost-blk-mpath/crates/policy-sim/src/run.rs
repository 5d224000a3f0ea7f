//! The event loop.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;
use std::time::{Duration, Instant};

use mpath_core::{
    Action, AnaState, Association, ClassPolicies, DiskId, Epoch, FlowId, Group, GroupConfig, Io, Op, Outcome,
    PathConfig, PathId, SharedDisk, Tag, Window,
};

use crate::model::{Busy, nanos};
use crate::rng::Rng;
use crate::{Measured, Model, Workload};

/// No path loses a command.
const NEVER: Duration = Duration::from_secs(1 << 20);
/// The window sets no limit: only the limits of policies are compared.
const WINDOW: Window = Window { ios: QUEUE_DEPTH as u32, bytes: 1 << 30 };
/// Requests a queue pair takes: more than any guest here has.
const QUEUE_DEPTH: u16 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Request(Tag),
    Probe,
}

/// Work that a path was given. Earlier work orders first.
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
    /// What it waits for; another answer of its tag is of a request that was recalled.
    sent: Option<u64>,
}

/// One group, its paths and its guest.
pub struct Sim {
    start: Instant,
    now: Instant,
    group: Group,
    workload: Workload,
    models: Vec<Model>,
    busy: Vec<Busy>,
    open: Vec<Open>,
    answers: BinaryHeap<Reverse<(Instant, Sent)>>,
    /// By path, what it owes while it is silent.
    silent: Vec<Option<Vec<Sent>>>,
    seq: u64,
    /// Sizes and operations come from a stream of their own, so that policies are compared on the same ones.
    guest: Rng,
    network: Rng,
    measured: Measured,
}

impl Sim {
    /// A guest that begins now, on paths that have just come up.
    #[must_use]
    pub fn new(policy: impl Into<ClassPolicies>, models: &[Model], workload: Workload, seed: u64) -> Self {
        let now = Instant::now();
        let config =
            GroupConfig { policy: policy.into(), window: WINDOW, seed, io_timeout: NEVER, ..GroupConfig::default() };
        let mut group = Group::new(now, config, &[SharedDisk::default()]);
        for id in (0..models.len() as u16).map(PathId) {
            group.add_path(id, PathConfig::default());
            let association = Association {
                epoch: Epoch(0),
                ana: AnaState::Optimized.into(),
                volatile_write_cache: false,
                queue_depth: QUEUE_DEPTH,
            };
            group.path_up(now, id, association);
        }
        let mut sim = Self {
            start: now,
            now,
            group,
            workload,
            models: models.to_vec(),
            busy: vec![Busy::default(); models.len()],
            open: Vec::new(),
            answers: BinaryHeap::new(),
            silent: vec![None; models.len()],
            seq: 0,
            guest: Rng::new(seed),
            network: Rng::new(!seed),
            measured: Measured::default(),
        };
        for tag in (0..workload.depth).map(Tag) {
            sim.open.push(Open { op: Op::Read, bytes: 0, submitted: now, sent: None });
            sim.submit(tag);
        }
        sim
    }

    /// Lets the guest work for this time: what came of it.
    pub fn run(&mut self, time: Duration) -> Measured {
        let end = self.now + time;
        let paths = self.models.len();
        self.measured = Measured {
            seconds: time.as_secs_f64(),
            issued: vec![0; paths],
            probes: vec![0; paths],
            ..Measured::default()
        };
        loop {
            self.act();
            let answer = self.answers.peek().map(|Reverse((at, ..))| *at);
            let next = [answer, self.group.next_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|at| *at <= end) else {
                self.now = end;
                return mem::take(&mut self.measured);
            };
            assert!(next >= self.now, "time does not go backwards");
            self.now = next;
            while let Some(Reverse((at, sent))) = self.answers.peek().copied() {
                if at > self.now {
                    break;
                }
                self.answers.pop();
                self.answered(sent);
            }
        }
    }

    /// A path behaves differently from now on.
    pub fn change(&mut self, path: usize, model: Model) {
        self.models[path] = model;
    }

    /// A path answers nothing from now on, nor what it has been given already.
    ///
    /// # Panics
    ///
    /// If it is silent.
    pub fn silence(&mut self, path: usize) {
        let answers = mem::take(&mut self.answers).into_sorted_vec().into_iter().rev();
        let (owed, others): (Vec<_>, _) = answers.partition(|Reverse((_, sent))| usize::from(sent.path.0) == path);
        self.answers = others.into();
        let before = self.silent[path].replace(owed.into_iter().map(|Reverse((_, sent))| sent).collect());
        assert!(before.is_none(), "a path is silent once");
    }

    /// A silent path works off from now on what it was given, as a connection does whose link is back.
    ///
    /// # Panics
    ///
    /// If it is not silent.
    pub fn restore(&mut self, path: usize) {
        for sent in self.silent[path].take().expect("a silent path") {
            self.carry(sent);
        }
    }

    /// How long it takes from now until the guest has had this many bytes per second for a tenth of a second; at most `limit`.
    pub fn time_to(&mut self, bytes_per_s: f64, limit: Duration) -> Option<Duration> {
        const STEP: Duration = Duration::from_millis(10);
        let begin = self.now;
        let mut last = [0.0; 10];
        while self.now - begin < limit {
            last.rotate_left(1);
            last[9] = self.run(STEP).bytes_per_s();
            if last.iter().sum::<f64>() / 10.0 >= bytes_per_s {
                return Some((self.now - begin).saturating_sub(9 * STEP));
            }
        }
        None
    }

    /// The group, to be changed or looked at.
    pub fn group(&mut self) -> &mut Group {
        &mut self.group
    }

    fn submit(&mut self, tag: Tag) {
        let (op, bytes) = self.workload.draw(&mut self.guest);
        self.open[tag.0 as usize] = Open { op, bytes, submitted: self.now, sent: None };
        self.group.submit(self.now, Io { tag, op, bytes, disk: DiskId(0), flow: FlowId(0), fua: false });
    }

    fn act(&mut self) {
        while let Some(action) = self.group.poll_action(self.now) {
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
                    self.measured.latencies_ns.push(nanos(self.now - open.submitted));
                    self.submit(tag);
                }
                Action::Recall { path, tag } => {
                    self.open[tag.0 as usize].sent = None;
                    self.group.complete(self.now, path, tag, Outcome::Recalled { abandoned: true });
                }
            }
        }
    }

    /// Gives a path something to do: its number.
    fn send(&mut self, path: PathId, bytes: u32, read: bool, answer: Answer) -> u64 {
        self.seq += 1;
        let sent = Sent { seq: self.seq, at: self.now, path, answer, bytes, read };
        match &mut self.silent[usize::from(path.0)] {
            Some(owed) => owed.push(sent),
            None => self.carry(sent),
        }
        self.seq
    }

    fn carry(&mut self, sent: Sent) {
        let index = usize::from(sent.path.0);
        let now_ns = nanos(self.now - self.start);
        let at = self.busy[index].serve(now_ns, &self.models[index], sent.bytes, sent.read, &mut self.network);
        self.answers.push(Reverse((self.start + Duration::from_nanos(at), sent)));
    }

    fn answered(&mut self, sent: Sent) {
        match sent.answer {
            Answer::Request(tag) if self.open[tag.0 as usize].sent != Some(sent.seq) => {
                self.group.progress(self.now, sent.path, 1, sent.read.then_some((sent.at, sent.bytes)));
            }
            Answer::Request(tag) => self.group.complete(self.now, sent.path, tag, Outcome::Success),
            Answer::Probe => self.group.probed(self.now, sent.path, true),
        }
    }
}
