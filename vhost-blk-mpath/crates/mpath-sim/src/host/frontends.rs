//! Front-ends that come and go, as `vhost-blk-mpath/src/sockets/frontend.rs` serves them: one after the other, and each waits for what the one
//! before it has left.

use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use mpath_core::{DiskId, FlowId};
use mpath_host::Suspension;
use vhost_user_blk::Queue;

use super::threads::Threads;
use super::virtqueues::{Served, Stop};
use super::{DiskPlan, Message};
use crate::machine::Machine;
use crate::target::Ctx;

/// A virtqueue on its way back from an I/O thread.
enum Stopping {
    Draining(mpsc::Receiver<Option<Queue>>),
    Back(Option<Box<Queue>>),
}

enum State {
    /// No front-end is there.
    Waiting,
    Serving(Served),
    /// It has hung up.
    Draining {
        served: Served,
        stop: Stop,
        queues: Vec<Stopping>,
    },
}

/// Where the front-ends of a disk come from.
pub(super) struct Door {
    disk: DiskId,
    plan: DiskPlan,
    state: State,
    suspension: Suspension,
    /// From each I/O thread that has settled.
    settled: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

impl Door {
    pub(super) fn new(disk: DiskId, plan: DiskPlan) -> Self {
        Self { disk, plan, state: State::Waiting, suspension: Suspension::default(), settled: mpsc::channel() }
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
        for queue in served.started() {
            let (index, flow) = (queue.index(), self.flow(queue.index()));
            threads.post(ctx, threads.of(disk, index), Message::StartQueue { disk, flow, queue: Box::new(queue) });
        }
        self.state = State::Serving(served);
    }

    /// The guest sees so many blocks from now on.
    pub(super) fn grow(&self, blocks: u64) {
        if let State::Serving(served) | State::Draining { served, .. } = &self.state {
            served.grow(&self.plan, blocks);
        }
    }

    fn flow(&self, index: u16) -> FlowId {
        FlowId(self.plan.first_flow.0 + index)
    }

    /// The front-end hangs up; its virtqueues are drained.
    pub(super) fn hang_up(&mut self, ctx: &mut Ctx<'_>, threads: &mut Threads, machine: &mut Machine, is_reset: bool) {
        match std::mem::replace(&mut self.state, State::Waiting) {
            State::Serving(served) => {
                machine.disconnect(is_reset);
                let stop = served.hung_up();
                let begin = |&index: &u16| {
                    let (reply, drained) = mpsc::sync_channel(1);
                    let flow = self.flow(index);
                    threads.post(ctx, threads.of(self.disk, index), Message::StopQueue { flow, reply });
                    Stopping::Draining(drained)
                };
                let queues = stop.indices.iter().map(begin).collect();
                self.state = State::Draining { served, stop, queues };
            }
            state => self.state = state,
        }
    }

    /// Whether the last front-end is gone, and the next one can come.
    pub(super) fn is_free(&mut self) -> bool {
        if let State::Draining { queues, .. } = &mut self.state {
            for stopping in queues.iter_mut() {
                let Stopping::Draining(drained) = stopping else { continue };
                match drained.try_recv() {
                    Ok(queue) => *stopping = Stopping::Back(queue.map(Box::new)),
                    // The I/O thread has ended.
                    Err(mpsc::TryRecvError::Disconnected) => *stopping = Stopping::Back(None),
                    Err(mpsc::TryRecvError::Empty) => {}
                }
            }
            if queues.iter().any(|stopping| matches!(stopping, Stopping::Draining(_))) {
                return false;
            }
            let State::Draining { served, stop, queues } = std::mem::replace(&mut self.state, State::Waiting) else {
                unreachable!("just seen");
            };
            let back = |stopping| match stopping {
                Stopping::Back(queue) => queue.map(|queue| *queue),
                Stopping::Draining(_) => unreachable!("all of them are back"),
            };
            served.drained(&stop, queues.into_iter().map(back).collect());
        }
        matches!(self.state, State::Waiting)
    }

    /// Whether a front-end is there.
    pub(super) fn serves(&self) -> bool {
        matches!(self.state, State::Serving(_))
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
            State::Serving(served) | State::Draining { served, .. } => Some(served.kill()),
        }
    }
}
