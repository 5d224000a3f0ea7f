//! An I/O thread, turn by turn as `reactor::io_thread` has it, and the rules the core must keep towards its driver.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use mpath_core::{
    Action, AnaState, Direction, DiskId, Epoch, Group, GroupConfig, Injection, IoError, Outcome, PathConfig, PathId,
    PathStats, SharedDisk, Tag,
};
use nvme_tcp::host::IoCommand;

use super::connection::{Completions, Connection};
use super::requests::Requests;
use super::{Answer, Asked, DiskPlan, HostPlan, Message, Report, ReportKind, earliest};
use crate::check::{Kind, is_accessible};
use crate::clock::Event;
use crate::net::ConnId;
use crate::rng::Rng;
use crate::target::Ctx;

/// How soon a thread that has something to do does it, typically.
const WAKE: Duration = Duration::from_micros(20);
/// And how soon it looks into a virtqueue when it is busy.
const BUSY: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct IoThread {
    index: usize,
    rng: Rng,
    config: GroupConfig,
    disks: Vec<DiskPlan>,
    pub(super) group: Group,
    pub(super) requests: Requests,
    pub(super) connections: BTreeMap<PathId, Connection>,
    inbox: VecDeque<(Instant, Message)>,
    asked: VecDeque<Asked>,
    completions: Completions,
    turn_at: Option<Instant>,
    /// What this turn has to say.
    pub(crate) reports: Vec<Report>,
    pub(crate) answers: Vec<Answer>,
}

impl IoThread {
    pub(crate) fn new(now: Instant, index: usize, plan: &HostPlan, disks: &[SharedDisk], rng: Rng) -> Self {
        let config = GroupConfig { seed: index as u64, ..plan.group };
        let mut group = Group::new(now, config, disks);
        (0..plan.paths as u16).for_each(|path| group.add_path(PathId(path), PathConfig::default()));
        Self {
            index,
            rng,
            config,
            disks: plan.disks.clone(),
            group,
            requests: Requests::default(),
            connections: BTreeMap::new(),
            inbox: VecDeque::new(),
            asked: VecDeque::new(),
            completions: Vec::new(),
            turn_at: None,
            reports: Vec::new(),
            answers: Vec::new(),
        }
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.connections.values().any(|connection| connection.conn == id)
    }

    /// Whether an injection in force replaces answers, or keeps them from the group.
    fn alters_answers(&self) -> bool {
        let alters = |injection: Injection| injection.error.is_some() || injection.direction == Direction::Response;
        self.group.injections().any(|(_, _, injection)| alters(injection))
    }

    /// Paths on which it can send.
    pub(crate) fn live_paths(&self) -> usize {
        self.connections.values().filter(|connection| !connection.is_closing()).count()
    }

    /// Whether the namespace of a disk is accessible on every path that is live.
    pub(crate) fn may_use_all(&self, disk: DiskId) -> bool {
        self.connections.values().all(|connection| is_accessible(connection.ana.of(disk)))
    }

    /// Whether there is such a path to it.
    pub(super) fn knows(&self, now: Instant, path: PathId) -> bool {
        self.group.stats(now).path(path).is_some()
    }

    /// Whether a draining path can be closed without losing what is in flight there.
    pub(super) fn owes_nothing(&self, now: Instant, path: PathId) -> bool {
        let idle = |stats: &PathStats| {
            stats.draining && stats.flushes_open == 0 && stats.classes.iter().all(|class| class.in_flight == 0)
        };
        self.group.stats(now).path(path).is_some_and(idle)
    }

    /// Whether nothing waits for a path any more that is down.
    pub(super) fn is_idle(&self, now: Instant, path: PathId) -> bool {
        let idle = |stats: &PathStats| {
            stats.fenced == 0 && stats.flushes_open == 0 && stats.classes.iter().all(|class| class.in_flight == 0)
        };
        !self.connections.contains_key(&path) && self.group.stats(now).path(path).is_none_or(idle)
    }

    /// Something has happened that a turn will find.
    pub(crate) fn wake(&mut self, ctx: &mut Ctx<'_>) {
        let at = ctx.clock.now() + self.rng.tail(WAKE);
        self.turn_at(ctx, at);
    }

    fn turn_at(&mut self, ctx: &mut Ctx<'_>, at: Instant) {
        if self.turn_at.is_none_or(|turn| at < turn) {
            self.turn_at = Some(at);
            ctx.clock.at(at, Event::Thread(self.index));
        }
    }

    /// A message from another thread; messages arrive in order.
    pub(crate) fn post(&mut self, ctx: &mut Ctx<'_>, message: Message) {
        let late = if self.rng.percent(3) { Duration::from_millis(20) } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        let at = self.inbox.back().map_or(at, |(last, _)| at.max(*last));
        self.inbox.push_back((at, message));
        self.turn_at(ctx, at);
    }

    /// The guest has queued a request.
    pub(crate) fn ask(&mut self, ctx: &mut Ctx<'_>, asked: Asked) {
        self.asked.push_back(asked);
        let late = if self.rng.percent(10) { BUSY } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        self.turn_at(ctx, at);
    }

    /// [`Event::Thread`] has come.
    pub(crate) fn turn(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        if self.turn_at != Some(now) {
            return;
        }
        self.turn_at = None;
        while let Some((at, _)) = self.inbox.front()
            && *at <= now
            && let Some((_, message)) = self.inbox.pop_front()
        {
            self.handle(ctx, message);
        }
        self.poll_connections(ctx);
        while let Some(path) = self.group.timed_out(now, |path| self.connections.get(&path)?.queue.oldest_sent()) {
            self.lose(ctx, path);
        }
        while let Some(asked) = self.asked.pop_front() {
            let io = self.requests.insert(now, asked, &self.disks[usize::from(asked.disk.0)]);
            if asked.kind == Kind::Flush {
                ctx.check.owed.flush_submitted(asked.id);
            }
            self.group.submit(now, io);
        }
        self.act(ctx);
        self.transmit(ctx);
        self.close_quiescent(ctx);
        let closing = self.connections.values().map(Connection::quiescent_at).collect::<Vec<_>>();
        let messages = self.inbox.front().map(|(at, _)| *at);
        if let Some(at) = earliest(closing.into_iter().chain([messages, self.group.next_timeout()])) {
            self.turn_at(ctx, at.max(now));
        }
    }

    fn handle(&mut self, ctx: &mut Ctx<'_>, message: Message) {
        let now = ctx.clock.now();
        match message {
            Message::PathUp { path, association, link } => {
                let connection = Connection::open(association.epoch, association.ana, *link, &mut self.rng);
                let before = self.connections.insert(path, connection);
                assert!(before.is_none(), "a path comes up after its last life was closed");
                self.group.path_up(now, path, association);
            }
            Message::PathDown { path, epoch } => {
                if self.connections.get(&path).is_some_and(|connection| connection.epoch == epoch) {
                    self.close(ctx, path);
                }
            }
            Message::FenceLifted { path, epoch } => self.group.fence_lifted(now, path, epoch),
            Message::AddNamespace { path, epoch, disk, limits } => {
                if let Some(connection) = self.connections.get_mut(&path).filter(|link| link.epoch == epoch) {
                    connection.queue.add_namespace(disk.0, limits).expect("what was learned is right");
                }
            }
            Message::Ana { path, epoch, disk, state } => {
                if let Some(connection) = self.connections.get_mut(&path)
                    && connection.epoch == epoch
                {
                    let before = connection.ana.of(disk);
                    connection.ana.set(disk, state);
                    if state == AnaState::PersistentLoss {
                        ctx.check.owed.over((disk, path, epoch));
                    } else if before == AnaState::PersistentLoss {
                        ctx.check.owed.back((disk, path, epoch));
                    }
                    self.group.ana_changed(now, path, disk, state);
                }
            }
            Message::AddPath(path) => self.group.add_path(path, PathConfig::default()),
            Message::RemovePath(path) => {
                assert!(!self.connections.contains_key(&path), "a path is removed after its last life was closed");
                self.group.remove_path(path);
            }
            Message::SetDraining { path, draining } => self.group.set_draining(now, path, draining),
            Message::SetPolicy(policy) => self.group.set_policy(policy),
            Message::SetInjection { path, class, injection } => {
                self.group.set_injection(now, path, class, injection);
                self.requests.set_altering(self.alters_answers());
            }
            Message::ClearInjection(path) => {
                self.group.clear_injection(now, path);
                self.requests.set_altering(self.alters_answers());
                self.act(ctx);
                self.check_nothing_held(ctx, path);
            }
            Message::SetWeight { disk, weight } => self.group.set_weight(disk, weight),
        }
    }

    /// After its injection is gone a path holds nothing that is not on its socket.
    fn check_nothing_held(&mut self, ctx: &mut Ctx<'_>, path: PathId) {
        let Some(connection) = self.connections.get(&path).filter(|connection| !connection.is_closing()) else {
            return;
        };
        let stats = self.group.stats(ctx.clock.now());
        let classes = stats.path(path).into_iter().flat_map(|path| &path.classes);
        let held: u64 = classes.map(|class| class.in_flight).sum();
        if held != u64::from(connection.ios) {
            let at = ctx.clock.elapsed();
            let ios = connection.ios;
            ctx.check.violate(at, None, format_args!("path {path} holds {held} requests, {ios} are on its socket"));
        }
    }

    fn poll_connections(&mut self, ctx: &mut Ctx<'_>) {
        let paths: Vec<PathId> = self.connections.keys().copied().collect();
        for path in paths {
            let Some(connection) = self.connections.get_mut(&path) else { continue };
            connection.on_room(ctx, &self.requests, &mut self.completions);
            let received = connection.on_bytes(ctx, &mut self.rng, &mut self.requests, &mut self.completions);
            let progress = connection.take_progress();
            if connection.take_ana_error(ctx.clock.now()) {
                self.reports.push(Report { path, epoch: connection.epoch, kind: ReportKind::AnaError });
            }
            self.settle(ctx, path);
            if let Some(answered) = progress {
                self.group.progress(ctx.clock.now(), path, answered.requests, answered.read);
            }
            if received.is_err() {
                self.lose(ctx, path);
            }
        }
    }

    /// Passes the completions of one path on to the group.
    fn settle(&mut self, ctx: &mut Ctx<'_>, path: PathId) {
        let now = ctx.clock.now();
        for (tag, outcome) in std::mem::take(&mut self.completions) {
            if tag == Tag::PROBE {
                self.connections.get_mut(&path).into_iter().for_each(|connection| connection.probing = false);
                self.group.probed(now, path, outcome == Outcome::Success);
                continue;
            }
            if let Some(tag) = tag.hedged() {
                self.hedged(ctx, path, tag, outcome);
                continue;
            }
            if let Some(connection) = self.connections.get_mut(&path) {
                connection.ios -= 1;
                connection.bytes -= self.requests.bytes(tag);
                let epoch = connection.epoch;
                self.answered(ctx, path, epoch, tag, outcome);
            }
            if matches!(outcome, Outcome::Failed(_)) {
                ctx.check.refusal_heard(ctx.clock.elapsed());
            }
            self.requests.attempted(now, tag, outcome);
            self.group.complete(now, path, tag, outcome);
        }
    }

    fn act(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(action) = self.group.poll_action(ctx.clock.now()) {
            match action {
                Action::Issue { path, tag } => self.issue(ctx, path, tag),
                Action::Recall { path, tag } => self.recall(ctx, path, tag),
                Action::Hedge { path, tag } => self.hedge(ctx, path, tag),
                Action::DropHedge { path, tag } => self.drop_hedge(ctx, path, tag),
                Action::Adopt { tag, .. } => self.adopt(ctx, tag),
                Action::Probe { path, disk, bytes } => self.probe(ctx, path, disk, bytes),
                Action::Finish { tag, result } => self.finish(ctx, tag, result),
            }
        }
    }

    fn issue(&mut self, ctx: &mut Ctx<'_>, path: PathId, tag: Tag) {
        let (now, at) = (ctx.clock.now(), ctx.clock.elapsed());
        if let Err(what) = self.requests.check_issue(now, tag, &self.config) {
            ctx.check.violate(at, None, what);
        }
        let (bytes, id, disk) = (self.requests.bytes(tag), self.requests.id(tag), self.requests.disk(tag));
        if !self.check_room(ctx, path, disk, bytes, id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&path) else { return };
        let (place, kind) = ((disk, path, connection.epoch), self.requests.kind(tag));
        if kind != Kind::Flush {
            ctx.check.issued(at, disk.0.into(), bytes);
        } else if let Err(what) = ctx.check.owed.flush_sent(id, place) {
            ctx.check.violate(at, None, what);
        }
        if kind.dirties() {
            ctx.check.owed.touched(place);
        }
        self.requests.issued(tag);
        connection.ios += 1;
        connection.bytes += bytes;
        let command = self.requests.command(tag);
        if connection.queue.submit(nvme_tcp::host::Tag(tag.0), disk.0, command).is_err() {
            self.completions.push((tag, Outcome::Lost { indeterminate: false }));
            self.settle(ctx, path);
        }
    }

    /// What a path did with a request.
    fn answered(&mut self, ctx: &mut Ctx<'_>, path: PathId, epoch: Epoch, tag: Tag, outcome: Outcome) {
        let (place, kind) = ((self.requests.disk(tag), path, epoch), self.requests.kind(tag));
        if kind == Kind::Flush {
            if outcome == Outcome::Success && !self.requests.is_altered(tag) {
                ctx.check.owed.flush_succeeded(self.requests.id(tag), place);
            }
        } else if kind.dirties() {
            ctx.check.owed.touched(place);
        }
    }

    /// Whether a path can be given this request of a disk.
    pub(super) fn check_room(&mut self, ctx: &mut Ctx<'_>, path: PathId, disk: DiskId, bytes: u64, id: u64) -> bool {
        let at = ctx.clock.elapsed();
        let Some(connection) = self.connections.get(&path).filter(|connection| !connection.is_closing()) else {
            ctx.check.violate(at, None, format_args!("#{id} issued on path {path}, which is down"));
            return false;
        };
        let (window, (ios, held)) = (self.config.window, connection.holds());
        if ios > 0 && (ios >= window.ios || held + bytes > window.bytes) {
            ctx.check.violate(at, None, format_args!("#{id} issued on path {path} beyond its window"));
        }
        let ana = connection.ana.of(disk);
        if !is_accessible(ana) {
            ctx.check.violate(at, None, format_args!("#{id} issued on path {path}, which is {ana}"));
        }
        true
    }

    /// Nobody checks what a probe reads.
    fn probe(&mut self, ctx: &mut Ctx<'_>, path: PathId, disk: DiskId, bytes: u32) {
        let blocks = (bytes / self.disks[usize::from(disk.0)].block_bytes).max(1);
        let open = self.connections.get_mut(&path).filter(|connection| !connection.is_closing());
        if let Some(ana) = open.as_ref().map(|connection| connection.ana.of(disk)).filter(|ana| !is_accessible(*ana)) {
            let at = ctx.clock.elapsed();
            ctx.check.violate(at, None, format_args!("disk {} probes path {path}, which is {ana}", disk.0));
        }
        let command = IoCommand::Read { slba: 0, blocks };
        let tag = nvme_tcp::host::Tag(Tag::PROBE.0);
        let sent = open.is_some_and(|connection| {
            connection.probing = connection.queue.submit(tag, disk.0, command).is_ok();
            connection.probing
        });
        if !sent {
            self.group.probed(ctx.clock.now(), path, false);
        }
    }

    fn recall(&mut self, ctx: &mut Ctx<'_>, path: PathId, tag: Tag) {
        let Some(connection) = self.connections.get_mut(&path) else {
            let at = ctx.clock.elapsed();
            return ctx.check.violate(at, None, format_args!("a request is recalled from path {path}, which is down"));
        };
        if let Some(outcome) = connection.recall(tag) {
            self.completions.push((tag, outcome));
            self.settle(ctx, path);
        }
    }

    fn finish(&mut self, ctx: &mut Ctx<'_>, tag: Tag, result: Result<(), IoError>) {
        let (id, disk, kind) = (self.requests.id(tag), self.requests.disk(tag), self.requests.kind(tag));
        if kind.dirties() && self.requests.is_altered(tag) {
            // The group has heard of its answer only now.
            let places = self.connections.iter().map(|(&path, connection)| (disk, path, connection.epoch));
            places.for_each(|place| ctx.check.owed.touched(place));
        }
        if kind == Kind::Flush {
            let told = result.is_err() && self.requests.tells_of_loss(ctx.clock.now(), tag, &self.config);
            if let Err(what) = ctx.check.owed.flush_over(id, disk, told) {
                let at = ctx.clock.elapsed();
                ctx.check.violate(at, None, what);
            }
        }
        match self.requests.finish(tag, result, &self.config) {
            Ok((asked, data)) => self.answers.push(Answer { asked, result, data }),
            Err(what) => {
                let at = ctx.clock.elapsed();
                ctx.check.violate(at, None, what);
            }
        }
    }

    fn transmit(&mut self, ctx: &mut Ctx<'_>) {
        for connection in self.connections.values_mut() {
            connection.transmit(ctx, &self.requests);
        }
    }

    /// A connection failed: say so, and close it.
    fn lose(&mut self, ctx: &mut Ctx<'_>, path: PathId) {
        let Some(connection) = self.connections.get(&path).filter(|connection| !connection.is_closing()) else {
            return;
        };
        self.reports.push(Report { path, epoch: connection.epoch, kind: ReportKind::Lost });
        self.close(ctx, path);
    }

    fn close(&mut self, ctx: &mut Ctx<'_>, path: PathId) {
        let now = ctx.clock.now();
        if let Some(connection) = self.connections.get_mut(&path) {
            connection.close(now, &mut self.rng);
            for disk in (0..self.disks.len() as u16).map(DiskId) {
                ctx.check.owed.over((disk, path, connection.epoch));
            }
            self.group.path_lost(now, path);
        }
    }

    fn close_quiescent(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        let quiescent = |connection: &Connection| connection.quiescent_at().is_some_and(|at| at <= now);
        let ended: Vec<PathId> =
            self.connections.iter().filter(|(_, connection)| quiescent(connection)).map(|(&path, _)| path).collect();
        for path in ended {
            let Some(connection) = self.connections.remove(&path) else { continue };
            let epoch = connection.epoch;
            let lost = connection.lost(ctx);
            let in_doubt = lost.iter().any(|(_, outcome)| *outcome == Outcome::Lost { indeterminate: true });
            self.completions.extend(lost);
            self.settle(ctx, path);
            self.reports.push(Report { path, epoch, kind: ReportKind::Closed { in_doubt } });
            self.act(ctx);
            self.transmit(ctx);
        }
    }

    /// At the end of the run: what is left of anything.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        // What was recalled from a silent path may be answered long after.
        let in_queue = |connection: &Connection| {
            connection.queue.in_flight() - connection.abandoned as usize - usize::from(connection.probing)
        };
        let in_queues: usize = self.connections.values().map(in_queue).sum();
        let on_sockets: u32 = self.connections.values().map(|connection| connection.ios).sum();
        let stats = self.group.stats(now);
        let in_flight: u64 = stats.paths.iter().flat_map(|path| &path.classes).map(|class| class.in_flight).sum();
        let fenced: u64 = stats.paths.iter().map(|path| path.fenced).sum();
        let left = (self.group.open(), in_queues, on_sockets, in_flight, fenced, stats.queued, stats.backoff);
        (left != (0, 0, 0, 0, 0, 0, 0)).then(|| format!("thread {}: {left:?} are left", self.index))
    }

    /// Where its requests are, for a run that does not end.
    pub(crate) fn state(&self, now: Instant) -> String {
        let stats = self.group.stats(now);
        let paths = stats.paths.iter().map(|path| {
            let in_flight: Vec<_> = path.classes.iter().map(|class| class.in_flight).collect();
            format!(
                "{}: {:?} in flight {in_flight:?} fenced {} resting {}",
                path.path, path.ana, path.fenced, path.resting
            )
        });
        let paths: Vec<String> = paths.collect();
        format!(
            "thread {}: {} open, {} queued, {} in backoff; {}",
            self.index,
            self.group.open(),
            stats.queued,
            stats.backoff,
            paths.join("; ")
        )
    }
}
