//! One path's life: connect its controller, check whose namespaces it leads to, give every I/O thread a queue pair, keep it
//! alive; when it is lost, have all of it closed, leave what it was sent to the fence, and connect again.
//!
//! ```text
//!  Connecting ──▶ Live ── any of its connections fails ──▶ Closing ── all I/O threads closed ──▶ Resting (reconnect-delay) ──▶ Connecting
//!      │                                                       └── its fence begins
//!      ├── another namespace ──▶ Refused ─── reset or enabled by the operator ──▶ Connecting
//!      └── none for ctrl-loss-tmo ──▶ GaveUp ── reset or enabled by the operator ──▶ Connecting
//!
//!  Live ── disabled by the operator, and it owes nothing ──▶ Closing ──▶ Disabled ── enabled ──▶ Connecting
//!
//!  any of them ── removed ──▶ Leaving (no association) ── fences lifted, forgotten, I/O threads told ──▶ Gone
//! ```

mod connecting;
mod error;
mod live;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use mpath_core::{Association, Epoch, PathId};
use nvme_tcp::host::{ControllerInfo, CrossResetOutcome, HostController, HostQueue};

use self::connecting::Connecting;
pub use self::error::PathError;
use self::live::{Closing, Live};
use crate::AssociationId;
use crate::disks::{Disks, News};
use crate::order::{Order, RemovalStep, Wanted};
use crate::settings::PathSettings;

/// What is to be done for a path, in this order.
#[derive(Debug)]
pub enum Action<E: std::error::Error> {
    /// Connect a socket for this queue, 0 for the admin queue: [`Path::connected`] or [`Path::failed`] follows.
    Connect {
        /// QID.
        qid: u16,
    },
    /// Tell a controller on the socket of this queue how it broke the protocol, if that can be done at once.
    Tell {
        /// QID.
        qid: u16,
        /// What is to be sent.
        term_req: Vec<u8>,
    },
    /// Close all sockets of the association, with RST: it gave the I/O threads nothing.
    Close,
    /// Write down, durably, that this association may leave a fence, and see that all I/O threads know of the path:
    /// [`Path::recorded`] follows.
    Record {
        /// Its number.
        epoch: Epoch,
        /// CNTLID.
        cntlid: u16,
        /// How long after the end of its sockets its controller may execute commands.
        fence_time: Duration,
    },
    /// An association that was written down was given nothing, or nothing of it can be executed any more.
    Forget {
        /// Its number.
        epoch: Epoch,
    },
    /// Give every I/O thread its queue pair: the association is live.
    Up(Box<Up>),
    /// Tell the I/O threads what has become of a disk's namespace.
    News {
        /// The association.
        epoch: Epoch,
        /// What it is.
        news: News,
    },
    /// The association is over: have every I/O thread close its queue pair and report [`Report::Closed`].
    Down {
        /// Its number.
        epoch: Epoch,
        /// Only their sending sides at first; the admin socket stays.
        drain: bool,
    },
    /// Every I/O thread has closed its queue pair.
    Ended(Box<Left>),
    /// What has come of a Cross-Controller Reset that the controller was asked for.
    ResetAnswered(CrossResetOutcome),
    /// See whether the path owes anything, now that it is given nothing new: [`Path::looked`] follows.
    Look {
        /// Commands in flight count, and no unflushed writes.
        at_once: bool,
    },
    /// It owes answers and is silent.
    Suspect,
    /// It answers again.
    Recovered,
    /// Its controller takes no more data than this with one command, as was found out.
    SmallerTransfer {
        /// The most.
        bytes: u32,
    },
    /// It is being connected, after it was not to be.
    Connecting,
    /// It was lost, or an attempt to connect it failed. It is connected again by itself.
    Failed(PathError<E>),
    /// It leads elsewhere, and is not connected again before an order.
    Refused(PathError<E>),
    /// It has had no connection for `ctrl-loss-tmo`, and is not connected again before an order.
    GaveUp {
        /// For so long.
        after: Duration,
    },
    /// It has no association, by order.
    Disabled,
    /// It has no association and gets none any more.
    Removed,
    /// Take the next step of its removal: [`Path::step_taken`] follows.
    Leave(RemovalStep),
    /// It is to be forgotten.
    Gone,
}

/// A live association, for the I/O threads and for those who want to know.
#[derive(Debug)]
pub struct Up {
    /// For the I/O threads.
    pub association: Association,
    /// By I/O thread; the socket of the first is that of QID 1.
    pub queues: Vec<HostQueue>,
    /// Its controller.
    pub info: ControllerInfo,
    /// What it is to each disk.
    pub namespaces: Vec<News>,
}

/// What an association has left when all I/O threads have closed their queue pairs.
#[derive(Debug)]
pub struct Left {
    /// Its number.
    pub epoch: Epoch,
    /// Its controller as it was at first.
    pub info: ControllerInfo,
    /// Its admin queue, whose socket is open yet.
    pub admin: HostController,
    /// By order, and nothing that was sent can be executed any more: it needs no fence, and its controller can be told that the
    /// host leaves.
    pub is_clean: bool,
    /// Every I/O socket drains, and so can the admin socket.
    pub is_draining: bool,
}

/// What an I/O thread says of an association.
#[derive(Debug)]
pub enum Report<E> {
    /// Its queue pair has failed; [`Report::Closed`] follows.
    Lost(E),
    /// Its queue pair is closed, and every request on it queued again or held.
    Closed {
        /// The socket is not closed yet, its sending side is shut down.
        drains: bool,
        /// Commands that change data were on it without an answer.
        in_doubt: bool,
    },
    /// It owes answers and has been silent for too long.
    Suspect,
    /// It has given a sign of life, and is suspect no more.
    Recovered,
    /// A command ended with an error about its ANA state.
    AnaError,
    /// The controller, which reports no MDTS, has refused larger reads or writes.
    SmallerTransfer {
        /// The most data of one command.
        bytes: u32,
    },
}

#[derive(Debug)]
enum Life<E: std::error::Error> {
    /// Without an association until then, or until an order.
    Resting {
        until: Instant,
    },
    Connecting(Box<Connecting>),
    Live(Box<Live<E>>),
    Closing(Box<Closing<E>>),
    Refused,
    GaveUp,
    Disabled,
    Leaving(RemovalStep),
    Gone,
}

/// A path of a subsystem.
#[derive(Debug)]
pub struct Path<E: std::error::Error> {
    id: PathId,
    settings: PathSettings,
    epoch: Epoch,
    order: Order,
    /// It has changed since it was heeded last.
    is_ordered: bool,
    /// Resets that have been carried out, or had nothing to reset.
    resets: u64,
    life: Life<E>,
    /// Since when it has had no connection.
    down_since: Instant,
    /// The most data of one command that its controller was found to take.
    max_transfer_bytes: Option<u32>,
    actions: VecDeque<Action<E>>,
}

impl<E: std::error::Error> Path<E> {
    /// A path that is to be connected at once. Its associations are counted from after `epoch` on.
    #[must_use]
    pub fn new(now: Instant, id: PathId, epoch: Epoch, order: Order, settings: PathSettings) -> Self {
        Self {
            id,
            settings,
            epoch,
            order,
            is_ordered: false,
            resets: 0,
            life: Life::Resting { until: now },
            down_since: now,
            max_transfer_bytes: None,
            actions: VecDeque::new(),
        }
    }

    /// Its latest association.
    #[must_use]
    pub fn latest(&self) -> AssociationId {
        AssociationId { path: self.id, epoch: self.epoch }
    }

    /// Whether its latest association is live.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.life, Life::Live(_))
    }

    /// Takes what the operator wants from now on.
    pub fn order(&mut self, order: Order) {
        self.order = order;
        self.is_ordered = true;
    }

    /// The socket of this queue is connected.
    pub fn connected(&mut self, now: Instant, qid: u16) {
        if let Life::Connecting(connecting) = &mut self.life
            && let Err(error) = connecting.connected(now, &self.settings, self.max_transfer_bytes, qid)
        {
            self.attempt_failed(now, error);
        }
    }

    /// The socket of this queue could not be connected, or has failed.
    pub fn failed(&mut self, now: Instant, qid: u16, error: E) {
        match &mut self.life {
            Life::Connecting(_) => self.attempt_failed(now, PathError::Socket(error)),
            Life::Live(live) if qid == 0 => live.lose(PathError::Socket(error)),
            _ => {}
        }
    }

    /// Takes bytes from the socket of this queue.
    pub fn received(&mut self, now: Instant, qid: u16, bytes: &[u8]) {
        match &mut self.life {
            Life::Connecting(connecting) => {
                if let Err(error) = connecting.received(now, qid, bytes) {
                    let term_req = connecting.term_req(qid);
                    self.actions.extend(term_req.map(|term_req| Action::Tell { qid, term_req }));
                    self.attempt_failed(now, error);
                }
            }
            Life::Live(live) => {
                if let Err(error) = live.admin.receive(now, bytes) {
                    let term_req = live.admin.term_req();
                    self.actions.extend(term_req.map(|term_req| Action::Tell { qid, term_req }));
                    live.lose(error.into());
                }
            }
            // If it fails by that, it fails for whoever is given it next.
            Life::Closing(closing) => drop(closing.admin.receive(now, bytes)),
            Life::Resting { .. } | Life::Refused | Life::GaveUp | Life::Disabled | Life::Leaving(_) | Life::Gone => {}
        }
    }

    /// Appends what is to be sent on the socket of this queue.
    pub fn fill_tx(&mut self, now: Instant, qid: u16, out: &mut Vec<u8>) {
        match &mut self.life {
            Life::Connecting(connecting) => connecting.fill_tx(now, qid, out),
            Life::Live(live) => live.admin.fill_tx(out),
            Life::Closing(closing) => closing.admin.fill_tx(out),
            _ => {}
        }
    }

    /// What [`Action::Record`] asked for is done, or failed.
    pub fn recorded(&mut self, now: Instant, outcome: Result<(), E>) {
        match (&mut self.life, outcome) {
            (Life::Connecting(connecting), Ok(())) => connecting.recorded(),
            (Life::Connecting(_), Err(error)) => self.attempt_failed(now, PathError::Record(error)),
            _ => {}
        }
    }

    /// Takes what an I/O thread says of the association of that number.
    pub fn reported(&mut self, now: Instant, epoch: Epoch, report: Report<E>) {
        if epoch != self.epoch {
            return;
        }
        match &mut self.life {
            Life::Live(live) => live.reported(now, report, &mut self.max_transfer_bytes, &mut self.actions),
            Life::Closing(closing) => closing.reported(&report),
            _ => {}
        }
    }

    /// Whether the path owes nothing, as [`Action::Look`] asked.
    pub fn looked(&mut self, now: Instant, owes_nothing: bool) {
        if let Life::Live(live) = &mut self.life {
            live.looked(now, owes_nothing);
        }
    }

    /// What [`Action::Leave`] asked for is done.
    pub fn step_taken(&mut self) {
        if let Life::Leaving(step) = self.life {
            let next = step.next();
            self.life = next.map_or(Life::Gone, Life::Leaving);
            self.actions.push_back(next.map_or(Action::Gone, Action::Leave));
        }
    }

    /// Asks the controller of the live association to reset another one: whether [`Action::ResetAnswered`] follows.
    pub fn reset_other(&mut self, other: nvme_tcp::wire::ControllerInstance) -> bool {
        match &mut self.life {
            Life::Live(live) => live.admin.cross_controller_reset(other).is_ok(),
            _ => false,
        }
    }

    /// When [`poll`](Self::poll) has something to do though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.life {
            Life::Resting { until } => Some(*until),
            Life::Connecting(connecting) => connecting.next_timeout(),
            Life::Live(live) => live.next_timeout(),
            _ => None,
        }
    }

    /// What is to be done now; `None` until something else has happened, or [`next_timeout`](Self::next_timeout).
    pub fn poll<D: Disks<Error = E>>(&mut self, now: Instant, disks: &mut D) -> Option<Action<E>> {
        while self.actions.is_empty() && self.go_on(now, disks) {}
        self.actions.pop_front()
    }

    /// Ends the path, as the host ends: gives up the admin queue of a live association, whose controller can be shut down in order.
    pub fn end(&mut self) -> Option<HostController> {
        match std::mem::replace(&mut self.life, Life::Gone) {
            Life::Live(live) => Some(live.admin),
            _ => None,
        }
    }

    /// One step; whether there may be another.
    fn go_on<D: Disks<Error = E>>(&mut self, now: Instant, disks: &mut D) -> bool {
        match &mut self.life {
            Life::Leaving(_) | Life::Gone => false,
            Life::Resting { .. } | Life::Refused | Life::GaveUp | Life::Disabled => self.go_on_without(now),
            Life::Connecting(connecting) => {
                if self.order.is_removal() && !connecting.is_recording() {
                    self.actions.push_back(Action::Close);
                    self.life = Life::Resting { until: now };
                    return true;
                }
                match connecting.go_on(now, self.id, self.epoch, &self.settings, disks, &mut self.actions) {
                    Ok(None) => false,
                    Ok(Some(live)) => {
                        self.resets = self.order.resets;
                        self.is_ordered = true;
                        self.life = Life::Live(live);
                        true
                    }
                    Err(error) => {
                        self.attempt_failed(now, error);
                        true
                    }
                }
            }
            Life::Live(live) => {
                let is_new = std::mem::take(&mut self.is_ordered);
                let end = live.go_on(now, self.epoch, disks, &mut self.actions);
                let end = end.or_else(|| live.heed(now, self.order, self.resets, is_new, &mut self.actions));
                let Some(end) = end else { return false };
                let Life::Live(live) = std::mem::replace(&mut self.life, Life::Gone) else { unreachable!("just seen") };
                let closing = live.close(end, self.settings.drain_fence);
                self.actions.push_back(Action::Down { epoch: self.epoch, drain: closing.drain });
                self.life = Life::Closing(Box::new(closing));
                true
            }
            Life::Closing(closing) => {
                if !closing.is_over() {
                    return false;
                }
                let Life::Closing(closing) = std::mem::replace(&mut self.life, Life::Gone) else {
                    unreachable!("just seen")
                };
                self.ended(now, *closing);
                true
            }
        }
    }

    /// A step of a path without an association.
    fn go_on_without(&mut self, now: Instant) -> bool {
        let is_ordered = std::mem::take(&mut self.is_ordered);
        match (&self.life, self.order.wanted) {
            (_, Wanted::Removed { .. }) => {
                let first = RemovalStep::LiftFences;
                self.life = Life::Leaving(first);
                self.actions.extend([Action::Removed, Action::Leave(first)]);
            }
            (Life::Refused | Life::GaveUp, _) if !is_ordered => return false,
            (Life::Disabled, Wanted::Disabled) => return false,
            (_, Wanted::Disabled) => {
                self.life = Life::Disabled;
                self.actions.push_back(Action::Disabled);
            }
            (Life::Resting { until }, _) if now < *until && !is_ordered => return false,
            (life, _) => {
                if !matches!(life, Life::Resting { .. }) {
                    self.down_since = now;
                    self.actions.push_back(Action::Connecting);
                }
                self.epoch.0 += 1;
                self.actions.push_back(Action::Connect { qid: 0 });
                self.life = Life::Connecting(Box::new(Connecting::new(now)));
            }
        }
        true
    }

    /// The association has not come to be.
    fn attempt_failed(&mut self, now: Instant, error: PathError<E>) {
        let recorded = matches!(&self.life, Life::Connecting(connecting) if connecting.is_recording());
        self.actions.push_back(Action::Close);
        if recorded {
            self.actions.push_back(Action::Forget { epoch: self.epoch });
        }
        if error.is_refusal() {
            self.actions.push_back(Action::Refused(error));
            self.life = Life::Refused;
        } else {
            self.actions.push_back(Action::Failed(error));
            self.rest(now);
        }
    }

    /// Waits for the next attempt, if there may be one.
    fn rest(&mut self, now: Instant) {
        let mut delay = self.settings.reconnect_delay;
        if let Some(ctrl_loss_tmo) = self.settings.ctrl_loss_tmo {
            let left = ctrl_loss_tmo.saturating_sub(now - self.down_since);
            if left.is_zero() {
                self.actions.push_back(Action::GaveUp { after: ctrl_loss_tmo });
                self.life = Life::GaveUp;
                return;
            }
            delay = delay.min(left);
        }
        self.life = Life::Resting { until: now + delay };
    }

    /// All I/O threads have closed their queue pairs.
    fn ended(&mut self, now: Instant, closing: Closing<E>) {
        let (end, left) = closing.into_left(self.epoch);
        self.actions.push_back(Action::Ended(Box::new(left)));
        self.down_since = now;
        self.life = Life::Resting { until: now };
        let Some(error) = end.into_error() else { return };
        if matches!(error, PathError::Reset) {
            self.max_transfer_bytes = None;
        }
        // What has changed is known at once: the other disks do not have to wait.
        let at_once = matches!(error, PathError::Reset | PathError::Changed { .. });
        self.actions.push_back(Action::Failed(error));
        if !at_once {
            self.rest(now);
        }
    }
}
