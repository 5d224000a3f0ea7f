//! An I/O thread: the code that ships, over a simulated ring, and what the judge sees of it on its sockets.

mod sockets;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mpath_core::{AnaState, DiskId, Group, GroupConfig, GroupStats, PathConfig, PathId, PathStats, SharedDisk};
use reactor::{PathEvent, PathEventKind, SimulatedRing, UnansweredQueues};

use self::sockets::Socket;
use super::wire::Wire;
use super::{DiskPlan, HostPlan, Message, earliest};
use crate::check::is_accessible;
use crate::clock::Event;
use crate::net::{ConnId, Side};
use crate::rng::Rng;
use crate::target::Ctx;

/// How soon a thread that has something to do does it, typically.
const WAKE: Duration = Duration::from_micros(20);
/// And how soon it looks into a virtqueue when it is busy.
const BUSY: Duration = Duration::from_millis(1);

pub(crate) struct IoThread {
    index: usize,
    rng: Rng,
    disks: Vec<DiskPlan>,
    thread: reactor::IoThread<SimulatedRing<ConnId>>,
    sockets: BTreeMap<ConnId, Socket>,
    inbox: VecDeque<(Instant, Message)>,
    events: mpsc::Receiver<PathEvent<ConnId>>,
    /// Paths with injections in force.
    injected: BTreeSet<PathId>,
    /// The guest has kicked a virtqueue since the last turn.
    is_kicked: bool,
    turn_at: Option<Instant>,
    /// What this turn has to say.
    pub(crate) reports: Vec<PathEvent<ConnId>>,
}

impl IoThread {
    pub(crate) fn new(
        now: Instant,
        index: usize,
        plan: &HostPlan,
        disks: &[SharedDisk],
        unanswered: &[Arc<UnansweredQueues>],
        rng: Rng,
    ) -> Self {
        let config = GroupConfig { seed: index as u64, ..plan.group };
        let mut group = Group::new(now, config, disks);
        (0..plan.paths as u16).for_each(|path| group.add_path(PathId(path), PathConfig::default()));
        let (report, events) = mpsc::channel();
        let report = Box::new(move |event| report.send(event).expect("the simulator listens"));
        let mut thread = reactor::IoThread::new(SimulatedRing::new(), group, report);
        for ((disk, plan), unanswered) in (0..).map(DiskId).zip(&plan.disks).zip(unanswered) {
            let unanswered = Arc::clone(unanswered);
            let (name, block_size_bytes) = ("disk".into(), plan.block_bytes);
            let added = Message::AddDisk { disk, name, block_size_bytes, unanswered };
            thread.handle(now, added).expect("the ring does what it is asked");
        }
        Self {
            index,
            rng,
            disks: plan.disks.clone(),
            thread,
            sockets: BTreeMap::new(),
            inbox: VecDeque::new(),
            events,
            injected: BTreeSet::new(),
            is_kicked: false,
            turn_at: None,
            reports: Vec::new(),
        }
    }

    /// The daemon is killed, in which no operation outlives its memory.
    pub(super) fn kill(mut self, ctx: &mut Ctx<'_>) {
        self.count_hedges(ctx);
        let ring = self.thread.ring();
        self.sockets.keys().for_each(|id| ring.end_receive(*id, -libc::ECANCELED));
        self.sockets.keys().for_each(|id| ring.end_send(*id, -libc::ECANCELED));
        self.thread.take_events(ctx.clock.now()).expect("the ring does what it is asked");
    }

    /// Counts of hedges, and of those that won.
    pub(super) fn count_hedges(&self, ctx: &mut Ctx<'_>) {
        for path in self.stats(ctx.clock.now()).paths {
            ctx.check.counts.hedges += path.hedges;
            ctx.check.counts.hedges_won += path.hedges_won;
        }
    }

    /// Whether it has ended, in order.
    pub(super) fn is_over(&self) -> bool {
        self.thread.is_over()
    }

    /// Whether it gave up writes that may still be executed.
    pub(super) fn has_writes_in_doubt(&self) -> bool {
        self.thread.has_writes_in_doubt()
    }

    /// Whether memory that the front-end of a disk shares was found to be gone.
    pub(super) fn has_faulted(&self, disk: DiskId) -> bool {
        self.thread.has_faulted(disk)
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.sockets.contains_key(&id)
    }

    fn stats(&self, now: Instant) -> GroupStats {
        self.thread.stats(now)
    }

    /// Paths on which it can send.
    pub(crate) fn live_paths(&self) -> usize {
        self.sockets.values().filter(|socket| !socket.is_over).count()
    }

    /// Whether it can send to every disk on a path.
    pub(super) fn may_use(&self, path: PathId) -> bool {
        let is_usable =
            |socket: &Socket| (0..self.disks.len() as u16).all(|disk| is_accessible(socket.ana.of(DiskId(disk))));
        self.sockets.values().any(|socket| socket.path == path && !socket.is_over && is_usable(socket))
    }

    /// Whether the namespace of a disk is accessible on every path that is live.
    pub(crate) fn may_use_all(&self, disk: DiskId) -> bool {
        self.sockets.values().all(|socket| is_accessible(socket.ana.of(disk)))
    }

    /// Whether there is such a path to it.
    pub(super) fn knows(&self, now: Instant, path: PathId) -> bool {
        self.stats(now).path(path).is_some()
    }

    /// Whether a draining path can be closed without losing what is in flight there.
    pub(super) fn owes_nothing(&self, now: Instant, path: PathId) -> bool {
        self.stats(now).path(path).is_some_and(PathStats::is_drained)
    }

    /// Whether nothing waits for a path any more that is down.
    pub(super) fn has_forgotten(&self, now: Instant, path: PathId) -> bool {
        self.stats(now).path(path).is_none_or(PathStats::is_forgotten)
    }

    /// Something has happened that a turn will find.
    pub(crate) fn wake(&mut self, ctx: &mut Ctx<'_>) {
        let at = ctx.clock.now() + self.rng.tail(WAKE);
        self.turn_at(ctx, at);
    }

    /// The guest has kicked a virtqueue.
    pub(super) fn kick(&mut self, ctx: &mut Ctx<'_>) {
        self.is_kicked = true;
        let late = if self.rng.percent(10) { BUSY } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
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

    /// [`Event::Thread`] has come.
    pub(crate) fn turn(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        if self.turn_at != Some(now) {
            return;
        }
        self.turn_at = None;
        if self.is_over() {
            // Tasks that wait for an answer hear that the thread has ended.
            return self.inbox.clear();
        }
        let messages_first = self.rng.percent(50);
        if messages_first {
            self.take_messages(ctx);
        }
        self.take_events(ctx);
        if !messages_first {
            self.take_messages(ctx);
        }
        self.thread.finish_turn(now).expect("the ring does what it is asked");
        for event in self.events.try_iter().collect::<Vec<_>>() {
            if matches!(event.kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. }) {
                self.over(ctx, event.path, event.epoch);
            }
            self.reports.push(event);
        }
        self.tell_of_paths(ctx);
        self.begin_sends(ctx);
        self.call_sockets(ctx);
        self.next_turn(ctx);
    }

    /// A path leads to a disk unless its namespace is lost there.
    fn tell_of_paths(&self, ctx: &mut Ctx<'_>) {
        for disk in 0..self.disks.len() {
            let leads = |socket: &Socket| socket.ana.of(DiskId(disk as u16)) != AnaState::PersistentLoss;
            let has_path = self.sockets.values().any(|socket| !socket.is_over && leads(socket));
            ctx.check.has_path(ctx.clock.elapsed(), self.index, disk, has_path);
        }
    }

    fn next_turn(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        let mut has_more = self.thread.ring().has_events();
        for id in self.sockets.keys() {
            let is_readable = ctx.net.has_received(*id, Side::Host) || ctx.net.is_reset(*id, Side::Host);
            has_more |= is_readable && self.thread.ring().receives(*id).is_some();
        }
        if has_more {
            self.wake(ctx);
        }
        let closing = self.sockets.values().map(|socket| socket.lets_go_at).collect::<Vec<_>>();
        let messages = self.inbox.front().map(|(at, _)| *at);
        if let Some(at) = earliest(closing.into_iter().chain([messages, self.thread.next_timeout()])) {
            self.turn_at(ctx, at.max(now));
        }
    }

    fn take_messages(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        while let Some((at, _)) = self.inbox.front()
            && *at <= now
            && let Some((_, message)) = self.inbox.pop_front()
        {
            self.look_at(ctx, &message);
            self.thread.handle(now, message).expect("the ring does what it is asked");
        }
    }

    /// Reports to the judge the messages to the thread that matter to it.
    fn look_at(&mut self, ctx: &mut Ctx<'_>, message: &Message) {
        match message {
            Message::PathUp { path, association, link } => {
                let (path, epoch, ana) = (*path, association.epoch, association.ana);
                let mut socket = Socket {
                    path,
                    epoch,
                    wire: Wire::default(),
                    sent: 0,
                    read: 0,
                    queue_depth: association.queue_depth as usize,
                    ana,
                    barred: BTreeSet::new(),
                    is_over: false,
                    lets_go_at: None,
                };
                socket.bar(self.disks.len());
                self.sockets.insert(link.socket, socket);
            }
            Message::PathDown { path, epoch, .. } => self.over(ctx, *path, *epoch),
            Message::Ana { path, epoch, disk, state } => {
                let place = (usize::from(disk.0), *path, *epoch);
                let of = |socket: &&mut Socket| (socket.path, socket.epoch) == (*path, *epoch);
                if let Some(socket) = self.sockets.values_mut().find(of) {
                    let before = socket.ana.of(*disk);
                    socket.ana.set(*disk, *state);
                    if is_accessible(*state) {
                        socket.barred.remove(&place.0);
                    }
                    if *state == AnaState::PersistentLoss {
                        ctx.check.owed.over(place);
                    } else if before == AnaState::PersistentLoss {
                        ctx.check.owed.back(place);
                    }
                }
            }
            Message::SetInjection { path, .. } if self.injected.insert(*path) => ctx.check.injected(true),
            Message::ClearInjection(path) | Message::RemovePath(path) if self.injected.remove(path) => {
                ctx.check.injected(false);
            }
            _ => {}
        }
    }

    /// At the end of the run: what is left of anything.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        let stats = self.stats(now);
        let in_flight: u64 = stats.paths.iter().flat_map(|path| &path.classes).map(|class| class.in_flight).sum();
        let fenced: u64 = stats.paths.iter().map(|path| path.fenced).sum();
        let left = (in_flight, fenced, stats.queued, stats.backoff);
        (left != (0, 0, 0, 0)).then(|| format!("thread {}: {left:?} are left", self.index))
    }

    /// Where its requests are, for a run that does not end.
    pub(crate) fn state(&self, now: Instant) -> String {
        let stats = self.stats(now);
        let paths = stats.paths.iter().map(|path| {
            let in_flight: Vec<_> = path.classes.iter().map(|class| class.in_flight).collect();
            format!(
                "{}: {:?} in flight {in_flight:?} fenced {} resting {}",
                path.path, path.ana, path.fenced, path.resting
            )
        });
        let paths: Vec<String> = paths.collect();
        let (queued, backoff) = (stats.queued, stats.backoff);
        format!("thread {}: {queued} queued, {backoff} in backoff; {}", self.index, paths.join("; "))
    }
}
