//! The driver of a group, and a model of its duties.

mod end_of_run;
mod hedges;
mod paths;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use monotonic::{Duration, Instant};
use mpath_core::{
    Action, AnaState, ClassPolicies, DiskId, Epoch, FlowId, Group, GroupConfig, Hedging, Io, IoError, Op, Outcome,
    PathConfig, PathId, SharedDisk, Tag, Window,
};

use super::events::Event;
use super::{DISKS, FLOWS, PATHS, QUEUE_DEPTH};

/// A request that was issued to the driver and not answered.
#[derive(Clone, Copy, Debug)]
struct Issued {
    path: PathId,
    epoch: Epoch,
    tag: Tag,
    at: Instant,
    recalled: bool,
}

/// A hedge whose memory the driver keeps.
#[derive(Clone, Copy, Debug)]
struct ModelHedge {
    path: PathId,
    epoch: Epoch,
    at: Instant,
    /// Whether it has the data, once answered.
    answered: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct ModelPath {
    added: bool,
    live: Option<(Epoch, [AnaState; DISKS])>,
    last_epoch: u64,
    draining: bool,
    /// Upper bound of the requests in flight here: issued and not answered.
    ios: u32,
    bytes: u64,
    /// Recalled commands that the queue pair of the live association holds: when each was sent.
    abandoned: Vec<Instant>,
    /// When the present probe of the live association was given to the driver.
    probing: Option<Instant>,
    /// The last sign of life, or the issue of the oldest unanswered command.
    heard_of: Option<Instant>,
}

pub(crate) struct Driver {
    now: Instant,
    group: Group,
    disks: [SharedDisk; DISKS],
    window: Window,
    paths: [ModelPath; PATHS],
    /// By path: the group may have waited longer, because it does not see the answers that an injection keeps.
    held: [bool; PATHS],
    open: BTreeMap<Tag, Io>,
    issued: Vec<Issued>,
    hedges: BTreeMap<Tag, ModelHedge>,
    hedging: Option<Hedging>,
    /// Hedges sent, and hedges that the reads so far allow.
    hedged: u64,
    hedged_max_permille: u64,
    /// Open reads with the data in their memory.
    read: BTreeSet<Tag>,
    free: VecDeque<Tag>,
    finished: usize,
    submitted: usize,
    /// Requests in doubt, each with the association that it waits for.
    unfenced: BTreeMap<Tag, (PathId, Epoch)>,
    /// Ended associations with a fence that has not been lifted.
    fences: BTreeSet<(PathId, Epoch)>,
    /// Caches of the controllers, by disk and association. Each has the number of completed writes, of writes that a
    /// flush has covered, and of writes reported lost to the guest.
    completed: BTreeMap<Cache, u64>,
    durable: BTreeMap<Cache, u64>,
    reported: BTreeMap<Cache, u64>,
    /// For each flush command under way: what it makes durable.
    makes_durable: BTreeMap<(Tag, PathId), u64>,
    /// For each open flush of the guest: what it must cover.
    owed: BTreeMap<Tag, BTreeMap<Cache, u64>>,
    /// The cache in which an open request was last executed. The request counts as completed only when the guest knows.
    executed: BTreeMap<Tag, Cache>,
}

/// The cache of one disk's namespace in one association.
type Cache = (DiskId, PathId, Epoch);

fn count<K: Ord>(map: &BTreeMap<K, u64>, key: &K) -> u64 {
    map.get(key).copied().unwrap_or(0)
}

impl Driver {
    pub(crate) fn new(policy: ClassPolicies, window: Window, seed: u64) -> Self {
        let now = Instant::now();
        let config = GroupConfig { policy, window, seed, ..GroupConfig::default() };
        let disks = [(); DISKS].map(|()| SharedDisk::default());
        let mut group = Group::new(now, config, &disks);
        let mut paths: [ModelPath; PATHS] = std::array::from_fn(|_| ModelPath::default());
        // The path between them may be added later.
        for id in [0, 2] {
            group.add_path(PathId(id), PathConfig::default());
            paths[usize::from(id)].added = true;
        }
        Self {
            now,
            group,
            disks,
            window,
            paths,
            held: [false; PATHS],
            open: BTreeMap::new(),
            issued: Vec::new(),
            hedges: BTreeMap::new(),
            hedging: None,
            hedged: 0,
            hedged_max_permille: 0,
            read: BTreeSet::new(),
            free: (0..64).map(Tag).collect(),
            finished: 0,
            submitted: 0,
            unfenced: BTreeMap::new(),
            fences: BTreeSet::new(),
            completed: BTreeMap::new(),
            durable: BTreeMap::new(),
            reported: BTreeMap::new(),
            makes_durable: BTreeMap::new(),
            owed: BTreeMap::new(),
            executed: BTreeMap::new(),
        }
    }

    pub(crate) fn apply(&mut self, event: &Event) {
        match *event {
            Event::Submit { op, bytes, fua, flow } => {
                let Some(tag) = self.free.pop_front() else { return };
                let bytes = if matches!(op, Op::Read | Op::Write) { bytes } else { 0 };
                let io = Io { tag, op, bytes, disk: DiskId(FLOWS[flow]), flow: FlowId(flow as u16), fua };
                if op == Op::Flush {
                    let per_disk = self.completed.iter().filter(|((disk, ..), _)| *disk == io.disk);
                    self.owed.insert(tag, per_disk.map(|(cache, writes)| (*cache, *writes)).collect());
                }
                self.open.insert(tag, io);
                self.submitted += 1;
                if let Some(hedging) = self.hedging.filter(|_| op == Op::Read) {
                    self.hedged_max_permille += u64::from(hedging.budget_permille);
                }
                self.group.submit(self.now, io);
            }
            Event::Complete { which, outcome } => {
                let live: Vec<usize> = (0..self.issued.len()).filter(|&n| self.is_live(&self.issued[n])).collect();
                if !live.is_empty() {
                    self.answer(live[which % live.len()], outcome);
                }
            }
            Event::GiveBack { which, abandoned } => {
                let recalled: Vec<usize> = (0..self.issued.len()).filter(|&n| self.issued[n].recalled).collect();
                if !recalled.is_empty() {
                    self.answer(recalled[which % recalled.len()], Outcome::Recalled { abandoned });
                }
            }
            Event::Hedged { which, outcome } => self.hedged(which, outcome),
            Event::Hedging(hedging) => self.set_hedging(hedging),
            Event::ProbeResult { which, success } => self.probed(which, success),
            Event::Progress { path, answered } => self.progress(path, answered),
            Event::PathUp { path, ana } => self.path_up(path, ana),
            Event::PathLost { path, answered } => self.path_lost(path, answered),
            Event::ReportLost { which } => self.report_lost(which),
            Event::FenceLifted { which } => {
                // Fences of associations whose requests were all reported as lost.
                let is_closed = |of: &&(PathId, Epoch)| self.issued.iter().all(|i| (i.path, i.epoch) != **of);
                let closed: Vec<_> = self.fences.iter().filter(is_closed).copied().collect();
                if let Some(&(path, epoch)) = closed.get(which % closed.len().max(1)) {
                    self.lift_fence(path, epoch);
                }
            }
            Event::Ana { path, disk, ana } => {
                if !self.paths[path].added {
                    return;
                }
                let id = PathId(path as u16);
                if let Some((_, state)) = &mut self.paths[path].live {
                    state[disk] = ana;
                }
                self.group.ana_changed(self.now, id, DiskId(disk as u16), ana);
            }
            Event::Policy(policies) => self.group.set_policy(policies),
            Event::Scheduler(spec) => self.group.set_scheduler(spec),
            Event::Limit { disk, limits } => self.disks[disk].limits.set(self.now, limits),
            Event::Weight { disk, weight } => self.group.set_weight(DiskId(disk), weight),
            Event::Inject { path, class, injection } => {
                if !self.paths[path].added {
                    return;
                }
                self.held[path] = true;
                self.group.set_injection(self.now, PathId(path as u16), class, injection);
            }
            Event::ClearInjection { path } => {
                if self.paths[path].added {
                    self.clear_injection(path);
                }
            }
            Event::EndInjection { path, class } => {
                self.group.end_injection(self.now, PathId(path as u16), class);
            }
            Event::Drain { path, draining } => self.drain(path, draining),
            Event::Close { path } => self.close_if_idle(path),
            Event::Add { path } => self.add(path),
            Event::Remove { path, force } => {
                if force {
                    self.give_up(path);
                }
                self.remove_if_nothing_is_left(path);
            }
            Event::Sleep { us } => self.sleep(Duration::from_micros(us)),
        }
        self.check();
    }

    fn report_lost(&mut self, which: usize) {
        let lost: Vec<usize> = (0..self.issued.len()).filter(|&n| !self.is_live(&self.issued[n])).collect();
        if !lost.is_empty() {
            // Every third request had not been sent yet.
            self.answer(lost[which % lost.len()], Outcome::Lost { indeterminate: !which.is_multiple_of(3) });
        }
    }

    fn lift_fence(&mut self, path: PathId, epoch: Epoch) {
        self.fences.remove(&(path, epoch));
        self.unfenced.retain(|_, waits_for| *waits_for != (path, epoch));
        self.group.fence_lifted(self.now, path, epoch);
    }

    /// Answers `issued[n]`.
    fn answer(&mut self, n: usize, outcome: Outcome) {
        let Issued { path, epoch, tag, at, .. } = self.issued.remove(n);
        let io = self.open[&tag];
        let now = self.now;
        let state = self.path(path);
        state.ios -= 1;
        state.bytes -= u64::from(io.bytes);
        if state.live.is_some_and(|(live, _)| live == epoch) {
            match outcome {
                Outcome::Recalled { abandoned } => state.abandoned.extend(abandoned.then_some(at)),
                Outcome::Lost { .. } => {}
                _ => state.heard_of = Some(now),
            }
        }
        let (association, cache) = ((path, epoch), (io.disk, path, epoch));
        match outcome {
            Outcome::Success if io.op == Op::Read => drop(self.read.insert(tag)),
            // An injection may have kept the answer of an earlier attempt: this attempt counts.
            Outcome::Success if io.op.is_mutating() => {
                self.executed.remove(&tag);
                if !io.fua && path != PathId(2) {
                    self.executed.insert(tag, cache);
                }
            }
            Outcome::Success if io.op == Op::Flush => {
                let durable = self.durable.entry(cache).or_default();
                *durable = self.makes_durable[&(tag, path)].max(*durable);
            }
            Outcome::Lost { indeterminate: true } if io.op.is_mutating() && self.fences.contains(&association) => {
                self.unfenced.insert(tag, association);
            }
            _ => {}
        }
        self.group.complete(self.now, path, tag, outcome);
    }

    fn sleep(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..100_000 {
            self.poll();
            match self.group.next_timeout() {
                Some(at) if at <= end => {
                    assert!(at > self.now, "a timeout in the past would spin");
                    self.now = at;
                    self.group.handle_timeout(at);
                    self.lose_timed_out();
                }
                _ => {
                    self.now = end;
                    return;
                }
            }
        }
        panic!("the group spins");
    }

    fn lose_timed_out(&mut self) {
        let now = self.now;
        let ages: Vec<Option<Instant>> = (0..PATHS).map(|path| self.oldest_sent(PathId(path as u16))).collect();
        while let Some(PathId(path)) = self.group.timed_out(now, |id| ages[usize::from(id.0)]) {
            self.path_lost(path.into(), 0);
        }
        for path in (0..PATHS).filter(|path| self.paths[*path].live.is_some()) {
            let age = self.oldest_sent(PathId(path as u16)).map_or(Duration::ZERO, |sent_at| now - sent_at);
            assert!(age < self.group.io_timeout(), "path {path} owes an answer since {age:?}");
        }
    }

    /// When the oldest command in the queue pair of the live association was sent.
    fn oldest_sent(&self, id: PathId) -> Option<Instant> {
        let issued = self.issued.iter().filter(|i| i.path == id && self.is_live(i)).map(|i| i.at);
        let hedges = self.hedges_on(id).into_iter().map(|(_, hedge)| hedge.at);
        let path = &self.paths[usize::from(id.0)];
        let sent = issued.chain(hedges).chain(path.abandoned.iter().copied()).chain(path.probing);
        sent.min().filter(|_| path.live.is_some())
    }

    pub(crate) fn poll(&mut self) {
        while let Some(action) = self.group.poll_action(self.now) {
            match action {
                Action::Issue { path, tag } => self.issue(path, tag),
                Action::Recall { path, tag } => self.recall(path, tag),
                Action::Hedge { path, tag } => self.hedge(path, tag),
                Action::DropHedge { path, tag } => self.drop_hedge(path, tag),
                Action::Adopt { path, tag } => self.adopt(path, tag),
                Action::Probe { path, disk, bytes } => self.probe(path, disk, bytes),
                Action::Finish { tag, result } => self.finish(tag, result),
            }
        }
    }

    fn issue(&mut self, id: PathId, tag: Tag) {
        let io = *self.open.get(&tag).expect("an open request");
        self.read.remove(&tag);
        assert!(!self.unfenced.contains_key(&tag), "{io:?} is sent again before its fence");
        let again = self.issued.iter().any(|i| i.tag == tag && (io.op != Op::Flush || i.path == id));
        assert!(!again, "{io:?} is sent twice");
        self.take_room(id, io);
        let (epoch, _) = self.path(id).live.expect("a live path");
        if io.op == Op::Flush {
            self.makes_durable.insert((tag, id), count(&self.completed, &(io.disk, id, epoch)));
        }
        self.issued.push(Issued { path: id, epoch, tag, at: self.now, recalled: false });
    }

    /// A command is sent on a path.
    fn take_room(&mut self, id: PathId, io: Io) {
        let (now, window) = (self.now, self.window);
        let owes = self.issued.iter().any(|i| i.path == id && self.is_live(i)) || !self.hedges_on(id).is_empty();
        let path = self.path(id);
        if !owes && path.abandoned.is_empty() {
            path.heard_of = Some(now);
        }
        let held = path.ios + path.abandoned.len() as u32 + u32::from(path.probing.is_some());
        assert!(held < QUEUE_DEPTH.into(), "the queue pair is full");
        let (_, ana) = path.live.expect("a live path");
        assert!(ana[usize::from(io.disk.0)].is_selectable());
        assert!(!path.draining || io.op == Op::Flush, "{io:?} is sent on a draining path");
        path.ios += 1;
        path.bytes += u64::from(io.bytes);
        let fits = path.ios <= window.ios && path.bytes <= window.bytes;
        assert!(fits || path.ios == 1, "{path:?} exceeds {window:?}");
    }

    fn recall(&mut self, id: PathId, tag: Tag) {
        let now = self.now;
        let n =
            self.issued.iter().position(|i| (i.path, i.tag) == (id, tag)).expect("only what was issued is recalled");
        assert!(self.is_live(&self.issued[n]), "a lost path gives everything back by itself");
        assert_eq!(self.open[&tag].op, Op::Read);
        let disk = usize::from(self.open[&tag].disk.0);
        assert!(!std::mem::replace(&mut self.issued[n].recalled, true), "recalled twice");
        if self.hedges.get(&tag).is_some_and(|hedge| hedge.answered == Some(true)) {
            return;
        }
        let silence = now - self.path(id).heard_of.expect("it was given something");
        let age = now - self.issued[n].at;
        let least = Duration::from_millis(100);
        assert!(self.held[usize::from(id.0)] || silence.max(age) >= least, "recalled after {silence:?}, {age:?}");
        let elsewhere = (0..)
            .zip(&self.paths)
            .filter(|(other, path)| PathId(*other) != id && !path.draining)
            .any(|(_, path)| path.live.is_some_and(|(_, ana)| ana[disk].is_selectable()));
        assert!(elsewhere, "there is nowhere else to go");
    }

    fn finish(&mut self, tag: Tag, result: Result<(), IoError>) {
        let io = self.open.remove(&tag).expect("an open request, finished for the first time");
        assert!(self.issued.iter().all(|i| i.tag != tag), "{io:?} is still with the driver");
        assert!(!self.unfenced.contains_key(&tag), "{io:?} ends before its fence");
        assert!(!self.hedges.contains_key(&tag), "{io:?} ends before its hedge");
        let read = self.read.remove(&tag);
        assert!(io.op != Op::Read || result.is_err() || read, "{io:?} has no data");
        self.finished += 1;
        if let Some(cache) = self.executed.remove(&tag).filter(|_| result.is_ok()) {
            *self.completed.entry(cache).or_default() += 1;
        }
        for (cache, writes) in self.owed.remove(&tag).into_iter().flatten() {
            let (_, id, epoch) = cache;
            if result.is_ok() {
                let settled = count(&self.durable, &cache).max(count(&self.reported, &cache));
                assert!(settled >= writes, "silent loss: {cache:?} completed {writes}, durable {settled}");
            } else if self.path(id).live.is_none_or(|(live, _)| live != epoch) {
                let reported = self.reported.entry(cache).or_default();
                *reported = writes.max(*reported);
            }
        }
        self.free.push_back(tag);
    }

    fn check(&self) {
        assert_eq!(self.group.open(), self.open.len());
    }

    fn is_live(&self, issued: &Issued) -> bool {
        self.paths[usize::from(issued.path.0)].live.is_some_and(|(epoch, _)| epoch == issued.epoch)
    }
}
