//! An I/O thread: the shipping code over a simulated ring, and the checker's view of its sockets.

mod kernel;
mod observation;
mod socket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, mpsc};

use monotonic::{Duration, Instant};
use mpath_core::{
    DiskId, Group, GroupConfig, GroupStats, PathConfig, PathId, SharedDisk, TurnWatch, UnflushedPaths, Waking,
};
use reactor::{DiskQueues, PathEvent, PathEventKind, SimulatedRing};

use self::socket::Socket;
use super::plan::{DiskPlan, HostPlan};
use super::turn_timer::TurnTimer;
use crate::checker::is_accessible;
use crate::clock::{Event, earliest};
use crate::connection::{ConnId, Side};
use crate::context::Ctx;
use crate::rng::Rng;

/// The typical time until a woken thread runs.
const WAKE: Duration = Duration::from_micros(20);
/// The typical time until a busy thread looks into a virtqueue.
const BUSY: Duration = Duration::from_millis(1);

/// A message to an I/O thread.
pub(crate) type Message = reactor::IoThreadMessage<ConnId>;

/// An I/O thread.
pub(crate) struct IoThread {
    index: usize,
    rng: Rng,
    disks: Vec<DiskPlan>,
    /// By disk, for the checker.
    unflushed: Vec<Arc<UnflushedPaths>>,
    io_timeout: Duration,
    inner: reactor::IoThread<SimulatedRing<ConnId>>,
    sockets: BTreeMap<ConnId, Socket>,
    inbox: VecDeque<(Instant, Message)>,
    events: mpsc::Receiver<PathEvent<ConnId>>,
    /// Paths with injections in force.
    injected: BTreeSet<PathId>,
    /// The guest has kicked a virtqueue since the last turn.
    is_kicked: bool,
    /// Whether the thread polls before it sleeps.
    polls: bool,
    timer: TurnTimer,
    /// The end of its last turn, and when it wanted the next one.
    waking: Waking,
    watch: TurnWatch,
    /// The events of paths in this turn.
    pub(crate) reports: Vec<PathEvent<ConnId>>,
}

impl IoThread {
    pub(crate) fn new(
        now: Instant,
        index: usize,
        plan: &HostPlan,
        disks: &[SharedDisk],
        queues: &[Arc<DiskQueues>],
        mut rng: Rng,
    ) -> Self {
        let polls = rng.percent(50);
        let config = GroupConfig { seed: index as u64, ..plan.group };
        let mut group = Group::new(now, config, disks);
        (0..plan.paths as u16).for_each(|path| group.add_path(PathId(path), PathConfig::default()));
        let (report, events) = mpsc::channel();
        let report = Box::new(move |event| report.send(event).expect("the simulator listens"));
        let mut inner = reactor::IoThread::new(SimulatedRing::new(), group, report);
        for ((disk, plan), queues) in (0..).map(DiskId).zip(&plan.disks).zip(queues) {
            let queues = Arc::clone(queues);
            let (name, block_size_bytes) = ("disk".into(), plan.block_bytes);
            let added = Message::AddDisk { disk, name, block_size_bytes, queues };
            inner.handle(now, added).expect("the ring does what it is asked");
        }
        Self {
            index,
            rng,
            disks: plan.disks.clone(),
            unflushed: disks.iter().map(|disk| Arc::clone(&disk.unflushed)).collect(),
            io_timeout: plan.group.io_timeout,
            inner,
            sockets: BTreeMap::new(),
            inbox: VecDeque::new(),
            events,
            injected: BTreeSet::new(),
            is_kicked: false,
            polls,
            timer: TurnTimer::new(Event::IoThread(index)),
            waking: Waking {
                idle_since: now,
                due: None,
                processor_wait: Duration::ZERO,
                processor_time: Duration::ZERO,
            },
            watch: TurnWatch::new(now),
            reports: Vec::new(),
        }
    }

    /// The daemon is killed. No operation of the ring outlives its memory.
    pub(super) fn kill(mut self, ctx: &mut Ctx) {
        self.count_stats(ctx);
        let ring = self.inner.ring();
        self.sockets.keys().for_each(|id| ring.end_receive(*id, -libc::ECANCELED));
        self.sockets.keys().for_each(|id| ring.end_send(*id, -libc::ECANCELED));
        self.inner.take_events(ctx.clock.now()).expect("the ring does what it is asked");
    }

    /// Adds the thread's hedges and the disks that it throttled to the counts of the run.
    pub(super) fn count_stats(&self, ctx: &mut Ctx) {
        let stats = self.stats(ctx.clock.now());
        let throttled = stats.scheduler.disks.iter().filter(|disk| !disk.throttled.is_zero());
        ctx.checker.counts.disks_throttled += throttled.count() as u64;
        for path in stats.paths {
            ctx.checker.counts.hedges += path.hedges;
            ctx.checker.counts.hedges_won += path.hedges_won;
        }
    }

    /// Whether it has ended, in order.
    pub(super) fn is_over(&self) -> bool {
        self.inner.is_over()
    }

    /// Whether it gave up writes that may still be executed.
    pub(super) fn has_writes_in_doubt(&self) -> bool {
        self.inner.has_writes_in_doubt()
    }

    /// Whether it found that memory of a disk's front-end is gone.
    pub(super) fn has_faulted(&self, disk: DiskId) -> bool {
        self.inner.has_faulted(disk)
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.sockets.contains_key(&id)
    }

    fn stats(&self, now: Instant) -> GroupStats {
        self.inner.stats(now)
    }

    /// The requests of a disk that wait for a path.
    pub(super) fn queued(&self, now: Instant, disk: DiskId) -> u64 {
        self.stats(now).scheduler.flows_of(disk).map(|flow| flow.queued).sum()
    }

    /// Whether it can send to every disk on a path.
    pub(super) fn can_use(&self, path: PathId) -> bool {
        let is_usable =
            |socket: &Socket| (0..self.disks.len() as u16).all(|disk| is_accessible(socket.ana.of(DiskId(disk))));
        self.sockets.values().any(|socket| socket.path == path && !socket.is_ended && is_usable(socket))
    }

    /// Whether it has this path.
    pub(super) fn knows(&self, now: Instant, path: PathId) -> bool {
        self.stats(now).path(path).is_some()
    }

    /// There is work for the next turn.
    pub(crate) fn wake(&mut self, ctx: &mut Ctx) {
        let at = ctx.clock.now() + self.rng.tail(WAKE);
        self.timer.set(&mut ctx.clock, at);
    }

    /// The guest has kicked a virtqueue.
    pub(super) fn kick(&mut self, ctx: &mut Ctx) {
        self.is_kicked = true;
        let late = if self.rng.percent(10) { BUSY } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        self.timer.set(&mut ctx.clock, at);
    }

    /// Posts a message from another thread. Messages arrive in order.
    pub(crate) fn post(&mut self, ctx: &mut Ctx, message: Message) {
        let late = if self.rng.percent(3) { Duration::from_millis(20) } else { WAKE };
        let at = ctx.clock.now() + self.rng.tail(late);
        let at = self.inbox.back().map_or(at, |(last, _)| at.max(*last));
        self.inbox.push_back((at, message));
        self.timer.set(&mut ctx.clock, at);
    }

    /// [`Event::IoThread`] has come.
    pub(crate) fn turn(&mut self, ctx: &mut Ctx) {
        let now = ctx.clock.now();
        if !self.timer.take_due(now) {
            return;
        }
        if self.is_over() {
            // Dropped messages tell the tasks that wait for an answer that the thread has ended.
            return self.inbox.clear();
        }
        if let Some(standstill) = self.watch.begin_turn(now, self.waking) {
            self.inner.stood_still(&standstill);
        }
        let messages_first = self.rng.percent(50);
        if messages_first {
            self.take_messages(ctx);
        }
        self.take_events(ctx);
        if !messages_first {
            self.take_messages(ctx);
        }
        if self.polls && self.rng.percent(50) {
            // Whether requests have come does not matter: the thread takes them in this turn, before it sleeps.
            let _ = self.inner.stop_polling();
        }
        self.inner.finish_turn(now).expect("the ring does what it is asked");
        let mut passed_on = Vec::new();
        for event in self.events.try_iter().collect::<Vec<_>>() {
            if matches!(event.kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. }) {
                self.association_ended(ctx, event.path, event.epoch);
            }
            if let PathEventKind::Closed { half_closed: Some(id), .. } = &event.kind {
                passed_on.push(*id);
            }
            self.reports.push(event);
        }
        self.observe_paths(ctx);
        self.check_ages(ctx);
        self.begin_sends(ctx);
        self.call_sockets(ctx);
        self.sockets.retain(|id, _| !passed_on.contains(id));
        self.next_turn(ctx);
    }

    /// Sets the time of the next turn.
    fn next_turn(&mut self, ctx: &mut Ctx) {
        let now = ctx.clock.now();
        let mut has_more = self.inner.ring().has_events() || self.polls && self.goes_on_polling();
        for id in self.sockets.keys() {
            let is_readable = ctx.net.has_received(*id, Side::Host) || ctx.net.is_reset(*id, Side::Host);
            has_more |= is_readable && self.inner.ring().receives(*id).is_some();
        }
        if has_more {
            self.wake(ctx);
        }
        let closing = self.sockets.values().map(|socket| socket.released_at).collect::<Vec<_>>();
        let messages = self.inbox.front().map(|(at, _)| *at);
        let due = self.inner.next_timeout();
        self.waking = Waking { idle_since: now, due, ..self.waking };
        if let Some(at) = earliest(closing.into_iter().chain([messages, due])) {
            self.timer.set(&mut ctx.clock, at.max(now));
        }
    }

    /// Whether the thread has another turn instead of sleeping: it polls, or has found requests just before it would sleep.
    fn goes_on_polling(&mut self) -> bool {
        if self.rng.percent(50) {
            self.inner.start_polling();
            return true;
        }
        self.inner.stop_polling()
    }

    fn take_messages(&mut self, ctx: &mut Ctx) {
        let now = ctx.clock.now();
        while let Some((at, _)) = self.inbox.front()
            && *at <= now
            && let Some((_, message)) = self.inbox.pop_front()
        {
            self.observe_message(ctx, &message);
            if matches!(message, Message::ClearInjection(_)) {
                ctx.checker.counts.held_by_injection += self.held_by_injection(now);
            }
            let is_setting = matches!(message, Message::SetPolicy(_) | Message::SetWeight { .. });
            let before = is_setting.then(|| self.stats(now));
            self.inner.handle(now, message).expect("the ring does what it is asked");
            if let Some(before) = before {
                self.count_changes(ctx, &before);
            }
        }
    }

    /// The requests that are left, as a text; `None` if there are none. At the end of a run, such requests are leaks.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        let stats = self.stats(now);
        let in_flight: u64 = stats.paths.iter().flat_map(|path| &path.classes).map(|class| class.in_flight).sum();
        let fenced: u64 = stats.paths.iter().map(|path| path.fenced).sum();
        let left = (in_flight, fenced, stats.queued, stats.backoff);
        (left != (0, 0, 0, 0)).then(|| format!("thread {}: {left:?} are left", self.index))
    }

    /// The places of its requests, for the report of a run that does not end.
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
