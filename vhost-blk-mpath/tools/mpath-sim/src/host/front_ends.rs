//! The front-ends of a disk, which are served one after the other, as in `vhost-blk-mpath/src/sockets/frontend.rs`. Each waits until
//! the virtqueues of the one before it have drained.

mod migration;

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, FlowId};
use mpath_lifecycle::DiskDriver;
use reactor::DiskQueues;
use vhost_user_blk::Queue;

use super::disk_task::DiskTask;
use super::front_end_connection::{FrontEndConnection, FrontEndEvent, StopQueues};
use super::io_thread::Message;
use super::io_threads::IoThreads;
use super::plan::DiskPlan;
use crate::context::Ctx;
use crate::machine::Machine;

/// The longest time that virtqueues drain which a front-end stops one after the other.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// The longest time until an I/O thread has given virtqueues back that wait for nothing.
const GIVE_BACK_MAX: Duration = Duration::from_millis(500);
/// How long a daemon waits at least for a path.
const IN_VAIN_MIN: Duration = Duration::from_secs(1);

/// A virtqueue on its way back from an I/O thread.
enum StoppingQueue {
    Draining(mpsc::Receiver<Option<Queue>>),
    Back(Option<Box<Queue>>),
}

/// The virtqueues of a [`StopQueues`], while they drain.
struct DrainingQueues {
    stop: StopQueues,
    queues: Vec<StoppingQueue>,
    /// The I/O threads that drain them.
    threads: Vec<usize>,
    since: Instant,
    /// When the front-end stopped the first virtqueue after the last one had started.
    began: Instant,
    /// Some of the virtqueues have a dirty log, which a front-end loses that is hung up on.
    is_migrating: bool,
    /// Since when the front-end can be hung up on: no request can change data. Requests come until the I/O thread hears of the stop.
    no_changes_since: Option<Instant>,
}

impl DrainingQueues {
    /// Whether all of them are back.
    fn are_back(&mut self) -> bool {
        for stopping in &mut self.queues {
            let StoppingQueue::Draining(drained) = stopping else { continue };
            match drained.try_recv() {
                Ok(queue) => *stopping = StoppingQueue::Back(queue.map(Box::new)),
                // The I/O thread has ended.
                Err(mpsc::TryRecvError::Disconnected) => *stopping = StoppingQueue::Back(None),
                Err(mpsc::TryRecvError::Empty) => {}
            }
        }
        self.queues.iter().all(|stopping| matches!(stopping, StoppingQueue::Back(_)))
    }

    /// Notes whether requests can change data.
    fn note_changes(&mut self, now: Instant, machine: &Machine) {
        let may_be_hung_up_on = !self.is_migrating && machine.may_be_hung_up_on(&self.stop.indices);
        self.no_changes_since = may_be_hung_up_on.then(|| self.no_changes_since.unwrap_or(now));
    }

    fn give_back(self, machine: &mut Machine) {
        let back = |stopping| match stopping {
            StoppingQueue::Back(queue) => queue.map(|queue| *queue),
            StoppingQueue::Draining(_) => unreachable!("all of them are back"),
        };
        let queues: Vec<_> = self.queues.into_iter().map(back).collect();
        if queues.iter().any(|queue| queue.as_ref().is_none_or(|queue| queue.outstanding() > 0)) {
            machine.lose_requests();
        }
        self.stop.drained(queues);
    }
}

/// The state of the front-end.
enum FrontEndState {
    /// There is no front-end.
    Waiting,
    /// The virtqueues run.
    Serving(FrontEndConnection),
    /// The front-end stops its virtqueues one after the other, and has these bases.
    Stopping { connection: FrontEndConnection, draining: DrainingQueues, bases: Vec<u32> },
    /// The front-end passes a dirty log, or none any more, and each virtqueue stops for that.
    SettingLog { connection: FrontEndConnection, draining: DrainingQueues },
    /// All virtqueues are stopped.
    Stopped { connection: FrontEndConnection, bases: Vec<u32> },
    /// The front-end has hung up, or was hung up on, and its virtqueues drain.
    Leaving { connection: FrontEndConnection, draining: DrainingQueues },
}

/// The front-end's wish for a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Migration {
    /// No migration, or the end of one without a move.
    None,
    /// To copy the memory.
    Copy,
    /// To move the guest to the copy, if there is one.
    Move,
}

/// Serves the front-ends of a disk.
pub(super) struct FrontEndServer {
    disk: DiskId,
    plan: DiskPlan,
    queues: Arc<DiskQueues>,
    state: FrontEndState,
    /// The front-end wants to start its virtqueues.
    wants_queues: bool,
    migration: Migration,
    /// The virtqueues were started with a dirty log.
    is_migrating: bool,
    /// When it stopped the first virtqueue since one has started.
    stopping_since: Cell<Option<Instant>>,
}

impl FrontEndServer {
    pub(super) fn new(disk: DiskId, plan: DiskPlan, queues: Arc<DiskQueues>) -> Self {
        let (state, migration) = (FrontEndState::Waiting, Migration::None);
        let stopping_since = Cell::default();
        Self { disk, plan, queues, state, wants_queues: true, migration, is_migrating: false, stopping_since }
    }

    /// A front-end connects, if there is none.
    pub(super) fn connect(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &mut Machine,
        (task, driver): (&mut DiskTask, &mut DiskDriver),
        blocks: u64,
    ) {
        if !matches!(self.state, FrontEndState::Waiting) {
            return;
        }
        self.check_left_behind(ctx, threads);
        let count = threads.0.len();
        task.change(ctx, threads, driver, |driver| driver.hold.front_end_connected(count));
        let (connection, stream) = FrontEndConnection::start(&self.plan, blocks);
        ctx.checker.counts.continued_without_log += u64::from(machine.waits_without_log());
        machine.connect(stream);
        self.start_fetching(ctx, threads, machine, connection);
    }

    /// Front-ends that have gone leave no more requests behind than one of them can have twice: some may wait for a fence.
    fn check_left_behind(&self, ctx: &mut Ctx, threads: &IoThreads) {
        let (left, most) = (threads.queued(ctx.clock.now(), self.disk), 2 * self.plan.requests_max);
        if left > most {
            let what = format_args!("{left} requests of disk {} wait without a front-end", self.disk.0);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
    }

    /// Has I/O threads fetch from the virtqueues that the front-end has set up.
    fn start_fetching(
        &mut self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &Machine,
        connection: FrontEndConnection,
    ) {
        self.is_migrating = machine.is_migrating();
        ctx.checker.queues_started(usize::from(self.disk.0));
        self.pass_on(ctx, threads, &connection);
        (self.state, self.wants_queues) = (FrontEndState::Serving(connection), true);
    }

    /// Passes virtqueues that were started on to their I/O threads.
    fn pass_on(&self, ctx: &mut Ctx, threads: &mut IoThreads, connection: &FrontEndConnection) {
        let disk = self.disk;
        for queue in connection.started() {
            self.stopping_since.set(None);
            self.queues.begin_start();
            let (index, flow) = (queue.index(), self.flow(queue.index()));
            let thread = threads.start(disk, index, flow);
            threads.post(ctx, thread, Message::StartQueue { disk, flow, queue: Box::new(queue) });
        }
    }

    /// The guest sees `blocks` blocks from now on.
    pub(super) fn grow(&self, blocks: u64) {
        match &self.state {
            FrontEndState::Waiting => {}
            FrontEndState::Serving(connection)
            | FrontEndState::Stopping { connection, .. }
            | FrontEndState::SettingLog { connection, .. }
            | FrontEndState::Stopped { connection, .. }
            | FrontEndState::Leaving { connection, .. } => connection.grow(&self.plan, blocks),
        }
    }

    pub(super) fn flow(&self, index: u16) -> FlowId {
        FlowId(self.plan.first_flow.0 + index)
    }

    /// Drains virtqueues for the connection, which may have started some of them just before.
    fn drain(
        &self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &Machine,
        connection: &FrontEndConnection,
        stop: StopQueues,
    ) -> DrainingQueues {
        self.pass_on(ctx, threads, connection);
        // Requests that were fetched before the stop are exempt from limits.
        ctx.checker.limits_lifted(usize::from(self.disk.0));
        let serving: Vec<_> = stop.indices.iter().map(|&index| threads.serving(self.flow(index))).collect();
        let (since, drain) = (ctx.clock.now(), self.queues.begin_stop(ctx.clock.now()));
        let begin = |(&index, &thread): (&u16, &usize)| {
            let (reply, drained) = mpsc::sync_channel(1);
            threads.post(ctx, thread, Message::StopQueue { flow: self.flow(index), drain, reply });
            StoppingQueue::Draining(drained)
        };
        let queues = stop.indices.iter().zip(&serving).map(begin).collect();
        let began = self.stopping_since.get().unwrap_or(since);
        self.stopping_since.set(Some(began));
        // A migration begins or ends where virtqueues stop one after the other: some have the dirty log.
        let is_migrating = self.is_migrating || machine.is_migrating();
        DrainingQueues { stop, queues, threads: serving, since, began, is_migrating, no_changes_since: None }
    }

    /// For how long none of the I/O threads of these virtqueues has had a path to the disk, or a command of the disk under way.
    fn idle_without_path_for(&self, ctx: &Ctx, draining: &DrainingQueues) -> Option<Duration> {
        let (at, disk) = (ctx.clock.elapsed(), usize::from(self.disk.0));
        draining.threads.iter().map(|&thread| ctx.checker.idle_without_path_for(at, thread, disk)).min().flatten()
    }

    /// Judges how long the front-end has stood still for virtqueues that drain, or have just come back.
    fn check_drain(&self, ctx: &mut Ctx, draining: &DrainingQueues) {
        let now = ctx.clock.now();
        if now > draining.began + DRAIN_MAX + GIVE_BACK_MAX {
            let what = format_args!("disk {}: a front-end stands still for more than ten seconds", self.disk.0);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
        let Some(idle) = self.idle_without_path_for(ctx, draining) else { return };
        let Some(no_changes_since) = draining.no_changes_since else { return };
        let in_vain = idle.min(now - no_changes_since);
        if in_vain > IN_VAIN_MIN + GIVE_BACK_MAX {
            let what = format_args!("disk {}: virtqueues drain for {in_vain:?} though no path is there", self.disk.0);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
    }

    /// Whether the daemon may hang up instead of stopping these virtqueues, which are back.
    fn may_hang_up(&self, ctx: &mut Ctx, machine: &Machine, draining: &DrainingQueues) -> bool {
        let now = ctx.clock.now();
        let waits_in_vain = self.idle_without_path_for(ctx, draining).is_some() && now >= draining.since + IN_VAIN_MIN;
        ctx.checker.counts.stops_without_path += u64::from(waits_in_vain && draining.no_changes_since.is_some());
        waits_in_vain || now >= draining.began + DRAIN_MAX || machine.is_truncated()
    }

    /// The front-end hangs up; its virtqueues are drained.
    pub(super) fn hang_up(&mut self, ctx: &mut Ctx, threads: &mut IoThreads, machine: &mut Machine, is_reset: bool) {
        self.state = match std::mem::replace(&mut self.state, FrontEndState::Waiting) {
            FrontEndState::Serving(connection) | FrontEndState::Stopped { connection, .. } => {
                machine.disconnect(is_reset);
                let event = connection.next();
                self.close(ctx, threads, machine, connection, event)
            }
            FrontEndState::Stopping { connection, draining, .. }
            | FrontEndState::SettingLog { connection, draining } => {
                machine.disconnect(is_reset);
                FrontEndState::Leaving { connection, draining }
            }
            state => state,
        };
    }

    /// The daemon hangs up because memory has faulted. The guest stays until its virtqueues have drained.
    pub(super) fn memory_faulted(&mut self, ctx: &mut Ctx, threads: &mut IoThreads, machine: &mut Machine) {
        match std::mem::replace(&mut self.state, FrontEndState::Waiting) {
            FrontEndState::Serving(connection) => {
                let event = connection.next();
                self.state = self.close(ctx, threads, machine, connection, event);
                machine.disconnect(false);
            }
            state => {
                self.state = state;
                self.hang_up(ctx, threads, machine, false);
            }
        }
    }

    /// Handles the last events of a connection that is about to end. The first of them is `event`. Returns the state in which the
    /// virtqueues drain.
    fn close(
        &self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &Machine,
        connection: FrontEndConnection,
        mut event: FrontEndEvent,
    ) -> FrontEndState {
        loop {
            match event {
                FrontEndEvent::Stop(stop) => {
                    let draining = self.drain(ctx, threads, machine, &connection, stop);
                    return FrontEndState::Leaving { connection, draining };
                }
                // The front-end is gone, and no answer reaches it.
                FrontEndEvent::Answer(_) => {}
                FrontEndEvent::Ended => {
                    connection.join();
                    return FrontEndState::Waiting;
                }
            }
            event = connection.next();
        }
    }

    /// The front-end stops its virtqueues, if they run.
    pub(super) fn stop_queues(&mut self, ctx: &mut Ctx, threads: &mut IoThreads, machine: &mut Machine) {
        match std::mem::replace(&mut self.state, FrontEndState::Waiting) {
            FrontEndState::Serving(connection) => {
                self.wants_queues = false;
                self.state = self.stop_next(ctx, threads, machine, connection, Vec::new());
            }
            state => self.state = state,
        }
    }

    /// The front-end starts its virtqueues again, as soon as all of them have stopped.
    pub(super) fn start_queues(&mut self) {
        self.wants_queues = true;
    }

    /// Has the front-end stop the next virtqueue. `bases` are those of the virtqueues that have stopped.
    fn stop_next(
        &self,
        ctx: &mut Ctx,
        threads: &mut IoThreads,
        machine: &mut Machine,
        connection: FrontEndConnection,
        mut bases: Vec<u32>,
    ) -> FrontEndState {
        while bases.len() < usize::from(self.plan.queues) {
            connection.await_answer(machine.stop_queue(bases.len()));
            match connection.next() {
                FrontEndEvent::Stop(stop) => {
                    let draining = self.drain(ctx, threads, machine, &connection, stop);
                    return FrontEndState::Stopping { connection, draining, bases };
                }
                // The virtqueue did not run.
                FrontEndEvent::Answer(Ok(base)) => bases.push(base),
                event => {
                    machine.disconnect(false);
                    return self.close(ctx, threads, machine, connection, event);
                }
            }
        }
        ctx.checker.queues_stopped(usize::from(self.disk.0));
        self.check_bases(ctx, machine, &bases);
        self.check_migration(ctx, machine);
        FrontEndState::Stopped { connection, bases }
    }

    /// A front-end that stops a virtqueue assumes that all fetched requests are answered, and that the ring does not change.
    fn check_bases(&self, ctx: &mut Ctx, machine: &mut Machine, bases: &[u32]) {
        let used = machine.used();
        if used != bases {
            let at = ctx.clock.elapsed();
            let what = format_args!("virtqueues of disk {} stand at {bases:x?}, with {used:x?} answered", self.disk.0);
            ctx.checker.violate(at, None, what);
        }
    }

    /// Gives drained virtqueues back to the connection. Returns whether the front-end is gone, so that the next one can connect.
    pub(super) fn turn(&mut self, ctx: &mut Ctx, threads: &mut IoThreads, machine: &mut Machine) -> bool {
        let drained = match &mut self.state {
            FrontEndState::Leaving { draining, .. }
            | FrontEndState::Stopping { draining, .. }
            | FrontEndState::SettingLog { draining, .. } => {
                draining.note_changes(ctx.clock.now(), machine);
                draining.are_back().then(|| draining.stop.indices.clone())
            }
            _ => None,
        };
        drained.iter().flatten().for_each(|&index| threads.stopped(self.flow(index)));
        let is_drained = drained.is_some();
        if let FrontEndState::Leaving { draining, .. }
        | FrontEndState::Stopping { draining, .. }
        | FrontEndState::SettingLog { draining, .. } = &self.state
        {
            self.check_drain(ctx, draining);
        }
        machine.copy_marked();
        match std::mem::replace(&mut self.state, FrontEndState::Waiting) {
            FrontEndState::Leaving { connection, draining } if is_drained => {
                draining.give_back(machine);
                let event = connection.next();
                self.state = self.close(ctx, threads, machine, connection, event);
            }
            FrontEndState::Stopping { connection, draining, mut bases } if is_drained => {
                let has_reason = self.may_hang_up(ctx, machine, &draining);
                draining.give_back(machine);
                self.state = match connection.next() {
                    FrontEndEvent::Answer(Ok(base)) => {
                        bases.push(base);
                        self.stop_next(ctx, threads, machine, connection, bases)
                    }
                    // The daemon hangs up: virtqueues did not drain in time, or memory has faulted.
                    event => {
                        if !has_reason {
                            let what = format_args!("disk {}: the daemon does not stop a virtqueue", self.disk.0);
                            ctx.checker.violate(ctx.clock.elapsed(), None, what);
                        }
                        machine.disconnect(false);
                        self.close(ctx, threads, machine, connection, event)
                    }
                };
            }
            FrontEndState::SettingLog { connection, draining } if is_drained => {
                draining.give_back(machine);
                self.set_logging(ctx, threads, machine, connection);
            }
            FrontEndState::Serving(connection) => self.turn_migration(ctx, threads, machine, connection),
            // A guest with truncated memory is reset, and does not start its virtqueues again.
            FrontEndState::Stopped { connection, bases } if self.wants_queues && machine.is_truncated() => {
                self.state = FrontEndState::Stopped { connection, bases };
                self.hang_up(ctx, threads, machine, false);
            }
            FrontEndState::Stopped { connection, bases } if self.wants_queues => {
                self.check_bases(ctx, machine, &bases);
                if self.moves(ctx, machine) {
                    self.state = FrontEndState::Stopped { connection, bases };
                    self.hang_up(ctx, threads, machine, false);
                } else {
                    machine.start_queues(&bases);
                    self.start_fetching(ctx, threads, machine, connection);
                }
            }
            state => self.state = state,
        }
        self.is_free()
    }

    /// Whether there is no front-end.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, FrontEndState::Waiting)
    }

    /// Whether virtqueues have drained for longer than they may.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        match &self.state {
            FrontEndState::Stopping { draining, .. }
            | FrontEndState::SettingLog { draining, .. }
            | FrontEndState::Leaving { draining, .. } => now >= draining.began + DRAIN_MAX,
            _ => false,
        }
    }

    /// Whether there is a front-end.
    pub(super) fn serves(&self) -> bool {
        !matches!(self.state, FrontEndState::Waiting | FrontEndState::Leaving { .. })
    }

    /// Forgets the front-end, because the daemon is killed. Returns the thread of its connection, which ends when it has hung up.
    pub(super) fn kill(self) -> Option<JoinHandle<()>> {
        match self.state {
            FrontEndState::Waiting => None,
            FrontEndState::Serving(connection)
            | FrontEndState::Stopping { connection, .. }
            | FrontEndState::SettingLog { connection, .. }
            | FrontEndState::Stopped { connection, .. }
            | FrontEndState::Leaving { connection, .. } => Some(connection.kill()),
        }
    }
}
