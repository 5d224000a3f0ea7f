//! Front-ends that come and go, as `vhost-blk-mpath/src/sockets/frontend.rs` serves them: one after the other, and each waits for what the one
//! before it has left.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, FlowId};
use mpath_host::Suspension;
use vhost_user_blk::Queue;

use super::threads::Threads;
use super::virtqueues::{Said, Served, Stop};
use super::{DiskPlan, Message};
use crate::machine::Machine;
use crate::target::Ctx;

/// How long virtqueues may drain that are to stop.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// A virtqueue on its way back from an I/O thread.
enum Stopping {
    Draining(mpsc::Receiver<Option<Queue>>),
    Back(Option<Box<Queue>>),
}

/// Virtqueues that are drained for the vhost-user side.
struct Draining {
    stop: Stop,
    queues: Vec<Stopping>,
    since: Instant,
}

impl Draining {
    /// Whether all of them are back.
    fn is_over(&mut self) -> bool {
        for stopping in &mut self.queues {
            let Stopping::Draining(drained) = stopping else { continue };
            match drained.try_recv() {
                Ok(queue) => *stopping = Stopping::Back(queue.map(Box::new)),
                // The I/O thread has ended.
                Err(mpsc::TryRecvError::Disconnected) => *stopping = Stopping::Back(None),
                Err(mpsc::TryRecvError::Empty) => {}
            }
        }
        self.queues.iter().all(|stopping| matches!(stopping, Stopping::Back(_)))
    }

    fn give_back(self) {
        let back = |stopping| match stopping {
            Stopping::Back(queue) => queue.map(|queue| *queue),
            Stopping::Draining(_) => unreachable!("all of them are back"),
        };
        self.stop.drained(self.queues.into_iter().map(back).collect());
    }
}

enum State {
    /// No front-end is there.
    Waiting,
    Serving(Served),
    /// The front-end stops its virtqueues, one after the other, and has heard where these stand.
    Stopping {
        served: Served,
        draining: Draining,
        bases: Vec<u16>,
    },
    /// None of its virtqueues runs.
    Stopped {
        served: Served,
        bases: Vec<u16>,
    },
    /// It has hung up, or was hung up on.
    Leaving {
        served: Served,
        draining: Draining,
    },
}

/// Where the front-ends of a disk come from.
pub(super) struct Door {
    disk: DiskId,
    plan: DiskPlan,
    state: State,
    suspension: Suspension,
    /// The front-end wants its virtqueues to run.
    wants_queues: bool,
    /// From each I/O thread that has settled.
    settled: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

impl Door {
    pub(super) fn new(disk: DiskId, plan: DiskPlan) -> Self {
        let (suspension, settled) = (Suspension::default(), mpsc::channel());
        Self { disk, plan, state: State::Waiting, suspension, wants_queues: true, settled }
    }

    /// Lets a front-end in, if there is none. Its virtqueues are held until then.
    pub(super) fn connect(
        &mut self,
        ctx: &mut Ctx<'_>,
        threads: &mut Threads,
        machine: &mut Machine,
        held: Option<Instant>,
        blocks: u64,
    ) {
        if !matches!(self.state, State::Waiting) {
            return;
        }
        let disk = self.disk;
        if let Some(until) = held {
            threads.post_all(ctx, || Message::HoldDisk { disk, until });
        }
        if self.suspension.begin(threads.0.len()) {
            threads.post_all(ctx, || Message::SuspendDisk(disk));
            threads.post_all(ctx, || {
                let settled = self.settled.0.clone();
                let settled = Box::new(move || settled.send(()).expect("the door outlives the I/O threads"));
                Message::WhenSettled { disk, settled }
            });
        }
        let (served, stream) = Served::start(&self.plan, blocks);
        machine.connect(stream);
        self.run(ctx, threads, served);
    }

    /// The front-end has set its virtqueues up.
    fn run(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, served: Served) {
        let disk = self.disk;
        ctx.check.queues_started(usize::from(disk.0));
        for queue in served.started() {
            let (index, flow) = (queue.index(), self.flow(queue.index()));
            threads.post(ctx, threads.of(disk, index), Message::StartQueue { disk, flow, queue: Box::new(queue) });
        }
        (self.state, self.wants_queues) = (State::Serving(served), true);
    }

    /// The guest sees `blocks` blocks from now on.
    pub(super) fn grow(&self, blocks: u64) {
        match &self.state {
            State::Waiting => {}
            State::Serving(served)
            | State::Stopping { served, .. }
            | State::Stopped { served, .. }
            | State::Leaving { served, .. } => served.grow(&self.plan, blocks),
        }
    }

    fn flow(&self, index: u16) -> FlowId {
        FlowId(self.plan.first_flow.0 + index)
    }

    fn drain(&self, ctx: &mut Ctx<'_>, threads: &mut Threads, stop: Stop) -> Draining {
        let begin = |&index: &u16| {
            let (reply, drained) = mpsc::sync_channel(1);
            let flow = self.flow(index);
            threads.post(ctx, threads.of(self.disk, index), Message::StopQueue { flow, reply });
            Stopping::Draining(drained)
        };
        let queues = stop.indices.iter().map(begin).collect();
        Draining { stop, queues, since: ctx.clock.now() }
    }

    /// The front-end hangs up; its virtqueues are drained.
    pub(super) fn hang_up(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, machine: &mut Machine, is_reset: bool) {
        self.state = match std::mem::replace(&mut self.state, State::Waiting) {
            State::Serving(served) | State::Stopped { served, .. } => {
                machine.disconnect(is_reset);
                let said = served.next();
                self.leave(ctx, threads, served, said)
            }
            State::Stopping { served, draining, .. } => {
                machine.disconnect(is_reset);
                State::Leaving { served, draining }
            }
            state => state,
        };
    }

    /// The daemon hangs up, as it does of its own accord when memory has faulted. The guest looks on until all is drained.
    pub(super) fn fault(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, machine: &mut Machine) {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Serving(served) => {
                let said = served.next();
                self.state = self.leave(ctx, threads, served, said);
                machine.disconnect(false);
            }
            state => {
                self.state = state;
                self.hang_up(ctx, threads, machine, false);
            }
        }
    }

    /// The connection is about to end, and this is said first: what is left to be drained before.
    fn leave(&self, ctx: &mut Ctx<'_>, threads: &mut Threads, served: Served, mut said: Said) -> State {
        loop {
            match said {
                Said::Stop(stop) => {
                    let draining = self.drain(ctx, threads, stop);
                    return State::Leaving { served, draining };
                }
                // The front-end is not there to hear of it.
                Said::Base(_) => {}
                Said::Over => {
                    served.over();
                    return State::Waiting;
                }
            }
            said = served.next();
        }
    }

    /// The front-end stops its virtqueues, if they run.
    pub(super) fn stop_queues(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, machine: &mut Machine) {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Serving(served) => {
                self.wants_queues = false;
                self.state = self.stop_next(ctx, threads, machine, served, Vec::new());
            }
            state => self.state = state,
        }
    }

    /// It has them run again, as soon as all of them have stopped.
    pub(super) fn start_queues(&mut self) {
        self.wants_queues = true;
    }

    /// It goes on with the next virtqueue, these having stopped.
    fn stop_next(
        &self,
        ctx: &mut Ctx<'_>,
        threads: &mut Threads,
        machine: &mut Machine,
        served: Served,
        mut bases: Vec<u16>,
    ) -> State {
        while bases.len() < usize::from(self.plan.queues) {
            served.ask(machine.ask_base(bases.len()));
            match served.next() {
                Said::Stop(stop) => {
                    let draining = self.drain(ctx, threads, stop);
                    return State::Stopping { served, draining, bases };
                }
                // It did not run.
                Said::Base(Ok(base)) => bases.push(base as u16),
                said => {
                    machine.disconnect(false);
                    return self.leave(ctx, threads, served, said);
                }
            }
        }
        ctx.check.queues_stopped(usize::from(self.disk.0));
        self.judge(ctx, machine, &bases);
        State::Stopped { served, bases }
    }

    /// A front-end that stops a virtqueue assumes that all fetched requests are answered, and that the ring is its own.
    fn judge(&self, ctx: &mut Ctx<'_>, machine: &Machine, bases: &[u16]) {
        let used = machine.used();
        if used != bases {
            let at = ctx.clock.elapsed();
            let what = format_args!("virtqueues of disk {} stand at {bases:?}, with {used:?} answered", self.disk.0);
            ctx.check.violate(at, None, what);
        }
    }

    /// Returns drained virtqueues, so that the vhost-user side continues: whether the last front-end is gone, and the next one
    /// can come.
    pub(super) fn go_on(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, machine: &mut Machine) -> bool {
        let is_drained = match &mut self.state {
            State::Leaving { draining, .. } | State::Stopping { draining, .. } => draining.is_over(),
            _ => false,
        };
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Leaving { served, draining } if is_drained => {
                draining.give_back();
                let said = served.next();
                self.state = self.leave(ctx, threads, served, said);
            }
            State::Stopping { served, draining, mut bases } if is_drained => {
                draining.give_back();
                self.state = match served.next() {
                    Said::Base(Ok(base)) => {
                        bases.push(base as u16);
                        self.stop_next(ctx, threads, machine, served, bases)
                    }
                    // The front-end is hung up on: it was not drained in time, or memory has faulted.
                    said => {
                        machine.disconnect(false);
                        self.leave(ctx, threads, served, said)
                    }
                };
            }
            // A guest that has lost memory is reset, and does not start them again.
            State::Stopped { served, bases } if self.wants_queues && machine.is_cut_off() => {
                self.state = State::Stopped { served, bases };
                self.hang_up(ctx, threads, machine, false);
            }
            State::Stopped { served, bases } if self.wants_queues => {
                self.judge(ctx, machine, &bases);
                machine.start_queues(&bases);
                self.run(ctx, threads, served);
            }
            state => self.state = state,
        }
        self.is_free()
    }

    /// Whether no front-end is there.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, State::Waiting)
    }

    /// Whether virtqueues have drained for longer than they may, unless their memory has faulted.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        match &self.state {
            State::Stopping { draining, .. } | State::Leaving { draining, .. } => now >= draining.since + DRAIN_MAX,
            _ => false,
        }
    }

    /// Whether a front-end is there.
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, State::Serving(_) | State::Stopping { .. } | State::Stopped { .. })
    }

    /// Whether nothing that was given up can be executed any more, which is told once: virtqueues are fetched from again.
    pub(super) fn settles(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads) -> bool {
        let settled = self.settled.1.try_iter().filter(|()| self.suspension.settled()).count() > 0;
        if settled {
            let disk = self.disk;
            threads.post_all(ctx, || Message::ResumeDisk(disk));
        }
        settled
    }

    /// The daemon is killed. To be waited for when the machine has hung up.
    pub(super) fn kill(self) -> Option<JoinHandle<()>> {
        match self.state {
            State::Waiting => None,
            State::Serving(served)
            | State::Stopping { served, .. }
            | State::Stopped { served, .. }
            | State::Leaving { served, .. } => Some(served.kill()),
        }
    }
}
