//! Decides: a path connects, is lost, waits (`rest`), gives up or is refused.
//! Decides: a path leads to a disk until all I/O threads have closed the path (`advance`).
//! Decides: a removed path is gone (`Removal`).
//!
//! The state machine of one path. It connects the controller, checks the namespaces, gives every I/O thread a queue
//! pair and keeps the association alive. When the association is lost, all its connections are closed, its fence
//! begins, and the path reconnects.
//!
//! ```text
//!  Connecting ──▶ Live ── any of its connections fails ──▶ Closing ── all I/O threads closed ──▶ Waiting (reconnect-delay) ──▶ Connecting
//!      │                                                       └── its fence begins
//!      ├── another namespace ──▶ Refused ─── reset or enabled by the operator ──▶ Connecting
//!      └── none for ctrl-loss-tmo ──▶ GaveUp ── reset or enabled by the operator ──▶ Connecting
//!
//!  Live ── disabled by the operator, nothing outstanding ──▶ Closing ──▶ Disabled ── enabled ──▶ Connecting
//!
//!  any of them ── removed ──▶ Removing (no association) ── fences lifted, I/O threads idle and told ──▶ Removed
//! ```

mod action;
mod connecting;
mod error;
mod live;
mod news;
mod outstanding;
mod report;
#[cfg(test)]
pub(crate) mod tests;
mod trial;

use std::collections::VecDeque;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, Epoch, PathId, PathStats};
use nvme_tcp::Authentication;
use nvme_tcp::host::{ControllerError, NamespaceError};

pub use self::action::{Action, ClosedAssociation, LiveAssociation};
use self::connecting::Connecting;
pub use self::error::PathError;
use self::live::{Closing, Live};
pub use self::news::PathNews;
use self::outstanding::RECHECK_INTERVAL;
pub use self::report::Report;
pub use self::trial::PathTrial;
use crate::AssociationId;
use crate::ControllerShutdown;
use crate::disks::Disks;
use crate::order::{DesiredState, Order};
use crate::settings::PathSettings;

/// The longest time between two associations that end because the ANA state is "change" all the time. The first one ends after twice
/// ANATT, and each one doubles the time: the state may stay for days, and each end is a loss of the path.
const CHANGE_LIMIT_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug)]
enum PathPhase<E: std::error::Error> {
    /// Has no association until this time, or until an order.
    Waiting {
        until: Instant,
    },
    Connecting(Box<Connecting>),
    Live(Box<Live<E>>),
    Closing(Box<Closing<E>>),
    Refused,
    GaveUp,
    Disabled,
    Removing(Removal),
    Removed,
}

/// A step of removing a path that has no association and will get no other. After the last step its id and slot may go
/// to another path.
#[derive(Debug, Clone, Copy)]
enum Removal {
    AwaitingFences,
    /// An I/O thread may hold something for the path: parts of flushes may still have to learn that writes are lost.
    AwaitingIdle {
        /// When the I/O threads are asked again. `None` while they are asked.
        ask_at: Option<Instant>,
    },
    RemovingFromThreads,
}

/// The state machine of one path.
#[derive(Debug)]
pub struct Path<E: std::error::Error> {
    id: PathId,
    settings: PathSettings,
    epoch: Epoch,
    order: Order,
    /// `order` has changed since it was last followed.
    is_ordered: bool,
    /// Resets that are done, or that found nothing to reset.
    resets: u64,
    phase: PathPhase<E>,
    /// The beginning of the latest attempt to connect.
    attempt_began: Option<Instant>,
    /// The beginning of the latest attempt that has failed or has made the path live.
    tried_at: Option<Instant>,
    /// Since when the path has had no connection.
    down_since: Instant,
    /// The largest transfer that the controller was found to accept.
    max_transfer_bytes: Option<u32>,
    /// How long the next association stays in the ANA state "change" that it begins with, if the last one has ended for that state.
    change_limit: Option<Duration>,
    actions: VecDeque<Action<E>>,
}

impl<E: std::error::Error> Path<E> {
    /// A path that connects at once. Its associations are numbered from `epoch + 1`.
    #[must_use]
    pub fn new(now: Instant, id: PathId, epoch: Epoch, order: Order, settings: PathSettings) -> Self {
        Self {
            id,
            settings,
            epoch,
            order,
            is_ordered: false,
            resets: 0,
            phase: PathPhase::Waiting { until: now },
            attempt_began: None,
            tried_at: None,
            down_since: now,
            max_transfer_bytes: None,
            change_limit: None,
            actions: VecDeque::new(),
        }
    }

    /// The latest association.
    #[must_use]
    pub fn latest(&self) -> AssociationId {
        AssociationId { path: self.id, epoch: self.epoch }
    }

    /// Whether the latest association is live.
    #[must_use]
    pub fn is_live(&self) -> bool {
        matches!(self.phase, PathPhase::Live(_))
    }

    /// Whether the path was tried.
    #[must_use]
    pub fn trial(&self) -> PathTrial {
        let is_idle = match self.phase {
            PathPhase::Waiting { .. } | PathPhase::Connecting(_) | PathPhase::Live(_) | PathPhase::Closing(_) => {
                matches!(self.order.wanted, DesiredState::Removed { .. })
            }
            PathPhase::Refused
            | PathPhase::GaveUp
            | PathPhase::Disabled
            | PathPhase::Removing(_)
            | PathPhase::Removed => true,
        };
        PathTrial { tried_at: self.tried_at, is_live: self.is_live(), is_idle }
    }

    /// Whether the ANA log of the live association is being read. `None` without a live association. What the log reports
    /// follows from [`poll`](Self::poll).
    pub(crate) fn is_reading_ana(&self) -> Option<bool> {
        match &self.phase {
            PathPhase::Live(live) => Some(live.admin.is_reading_ana()),
            _ => None,
        }
    }

    /// The disks that share the live association.
    pub(crate) fn disks(&self) -> impl Iterator<Item = DiskId> + use<E> {
        let live = if let PathPhase::Live(live) = &self.phase { Some(live) } else { None };
        live.map(|live| live.disks()).into_iter().flatten()
    }

    /// Sets the operator's order.
    pub fn order(&mut self, order: Order) {
        self.order = order;
        self.is_ordered = true;
    }

    /// Sets the secrets for associations that begin later, on all of their queues. Set them before the admin socket is reported as
    /// [`connected`](Self::connected).
    pub fn set_authentication(&mut self, authentication: Option<Authentication>) {
        self.settings.controller.authentication = authentication;
    }

    /// Reports that the socket of this queue is connected.
    pub fn connected(&mut self, now: Instant, qid: u16) {
        if let PathPhase::Connecting(connecting) = &mut self.phase
            && let Err(error) =
                connecting.connected(now, &self.settings, self.max_transfer_bytes, self.change_limit, qid)
        {
            self.attempt_failed(now, error);
        }
    }

    /// Reports that the socket of this queue could not be connected, or has failed.
    pub fn failed(&mut self, now: Instant, qid: u16, error: E) {
        match &mut self.phase {
            PathPhase::Connecting(_) => self.attempt_failed(now, PathError::Socket(error)),
            PathPhase::Live(live) if qid == 0 => live.lose(PathError::Socket(error)),
            _ => {}
        }
    }

    /// Takes bytes from the socket of this queue.
    pub fn received(&mut self, now: Instant, qid: u16, bytes: &[u8]) {
        match &mut self.phase {
            PathPhase::Connecting(connecting) => {
                if let Err(error) = connecting.received(now, qid, bytes) {
                    let term_req = connecting.term_req(qid);
                    self.actions.extend(term_req.map(|term_req| Action::SendTermReq { qid, term_req }));
                    self.attempt_failed(now, error);
                }
            }
            PathPhase::Live(live) => {
                if let Err(error) = live.admin.receive(now, bytes) {
                    let term_req = live.admin.term_req();
                    self.actions.extend(term_req.map(|term_req| Action::SendTermReq { qid, term_req }));
                    live.lose(error.into());
                }
            }
            // A failure shows again to the next user of the admin queue.
            PathPhase::Closing(closing) => drop(closing.admin.receive(now, bytes)),
            PathPhase::Waiting { .. }
            | PathPhase::Refused
            | PathPhase::GaveUp
            | PathPhase::Disabled
            | PathPhase::Removing(_)
            | PathPhase::Removed => {}
        }
    }

    /// Appends the bytes to be sent on the socket of this queue.
    pub fn fill_tx(&mut self, now: Instant, qid: u16, out: &mut Vec<u8>) {
        match &mut self.phase {
            PathPhase::Connecting(connecting) => connecting.fill_tx(now, qid, out),
            PathPhase::Live(live) => live.admin.fill_tx(out),
            PathPhase::Closing(closing) => closing.admin.fill_tx(out),
            _ => {}
        }
    }

    /// Reports the outcome of [`Action::Record`].
    pub fn recorded(&mut self, now: Instant, outcome: Result<(), E>) {
        match (&mut self.phase, outcome) {
            (PathPhase::Connecting(connecting), Ok(())) => connecting.recorded(),
            (PathPhase::Connecting(_), Err(error)) => self.attempt_failed(now, PathError::Record(error)),
            _ => {}
        }
    }

    /// Takes an I/O thread's report about the association of that number.
    pub fn reported(&mut self, now: Instant, epoch: Epoch, report: Report<E, ()>) {
        // These are news even if the association is over.
        match report {
            Report::DigestError => self.actions.push_back(Action::News(PathNews::DigestError)),
            Report::CommandError(status) => self.actions.push_back(Action::News(PathNews::CommandError(status))),
            _ => {}
        }
        if epoch != self.epoch {
            return;
        }
        match &mut self.phase {
            PathPhase::Live(live) => live.reported(now, report, &mut self.max_transfer_bytes, &mut self.actions),
            PathPhase::Closing(closing) => closing.reported(&report),
            _ => {}
        }
    }

    /// Reports the answers to [`Action::AskThreads`]: the sum of the statistics of all I/O threads. `None` if they do not
    /// have the path, or have ended.
    pub fn threads_answered(&mut self, now: Instant, stats: Option<&PathStats>) {
        match &mut self.phase {
            // A thread that has ended closes the path.
            PathPhase::Live(live) => live.idle_answered(now, stats.is_some_and(PathStats::is_drained)),
            PathPhase::Removing(Removal::AwaitingIdle { ask_at }) => {
                if stats.is_none_or(PathStats::is_forgotten) {
                    self.phase = PathPhase::Removing(Removal::RemovingFromThreads);
                    self.actions.push_back(Action::RemoveFromThreads);
                } else {
                    *ask_at = Some(now + RECHECK_INTERVAL);
                }
            }
            _ => {}
        }
    }

    /// Reports that [`Action::AwaitFences`] or [`Action::RemoveFromThreads`] is done.
    pub fn removal_step_done(&mut self) {
        match self.phase {
            PathPhase::Removing(Removal::AwaitingFences) => {
                self.phase = PathPhase::Removing(Removal::AwaitingIdle { ask_at: None });
                self.actions.push_back(Action::AskThreads);
            }
            PathPhase::Removing(Removal::RemovingFromThreads) => {
                self.phase = PathPhase::Removed;
                self.actions.push_back(Action::RemovalDone);
            }
            _ => {}
        }
    }

    /// Asks the controller of the live association to reset another controller. Returns whether
    /// [`Action::ResetAnswered`] will follow.
    pub fn reset_other(&mut self, other: nvme_tcp::wire::ControllerInstance) -> bool {
        match &mut self.phase {
            PathPhase::Live(live) => live.admin.cross_controller_reset(other).is_ok(),
            _ => false,
        }
    }

    /// When [`poll`](Self::poll) is due though nothing else has happened.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        match &self.phase {
            PathPhase::Waiting { until } => Some(*until),
            PathPhase::Connecting(connecting) => connecting.next_timeout(),
            PathPhase::Live(live) => live.next_timeout(),
            PathPhase::Removing(Removal::AwaitingIdle { ask_at }) => *ask_at,
            _ => None,
        }
    }

    /// The next action. `None` until something else has happened, or until [`next_timeout`](Self::next_timeout).
    pub fn poll<D: Disks<Error = E>>(&mut self, now: Instant, disks: &mut D) -> Option<Action<E>> {
        while self.actions.is_empty() && self.advance(now, disks) {}
        self.actions.pop_front()
    }

    /// The news among the actions that are left, which are not carried out any more.
    pub(crate) fn take_news(&mut self) -> impl Iterator<Item = PathNews<E>> + use<E> {
        let news = |action| if let Action::News(news) = action { Some(news) } else { None };
        std::mem::take(&mut self.actions).into_iter().filter_map(news)
    }

    /// Ends the path because the host ends. The I/O threads must have reported the end of their queue pairs before. Returns the
    /// shutdown of the controller of a live association. `None` if the controller may still execute writes: a controller that
    /// shuts down has no keep-alive timer (Base, "Keep Alive"), and the fence relies on that timer.
    pub fn end(&mut self, now: Instant) -> Option<ControllerShutdown> {
        match std::mem::replace(&mut self.phase, PathPhase::Removed) {
            PathPhase::Live(live) if !live.is_in_doubt() => Some(ControllerShutdown::new(now, live.admin, 0)),
            _ => None,
        }
    }

    /// Takes one step. Returns whether another may follow.
    fn advance<D: Disks<Error = E>>(&mut self, now: Instant, disks: &mut D) -> bool {
        match &mut self.phase {
            PathPhase::Removing(Removal::AwaitingIdle { ask_at }) => {
                let asks = ask_at.take_if(|at| *at <= now).is_some();
                self.actions.extend(asks.then_some(Action::AskThreads));
                asks
            }
            PathPhase::Removing(_) | PathPhase::Removed => false,
            PathPhase::Waiting { .. } | PathPhase::Refused | PathPhase::GaveUp | PathPhase::Disabled => {
                self.advance_unconnected(now)
            }
            PathPhase::Connecting(connecting) => {
                let is_removed = matches!(self.order.wanted, DesiredState::Removed { .. });
                if is_removed && !connecting.is_recording() {
                    self.actions.push_back(Action::Close);
                    self.phase = PathPhase::Waiting { until: now };
                    return true;
                }
                match connecting.advance(now, self.id, self.epoch, disks, &mut self.actions) {
                    Ok(None) => false,
                    Ok(Some(live)) => {
                        self.resets = self.order.resets;
                        self.is_ordered = true;
                        self.tried_at = self.attempt_began;
                        self.phase = PathPhase::Live(live);
                        true
                    }
                    Err(error) => {
                        self.attempt_failed(now, error);
                        true
                    }
                }
            }
            PathPhase::Live(live) => {
                let is_new = std::mem::take(&mut self.is_ordered);
                let reconnect_delay = self.settings.reconnect_delay;
                let end = live.advance(now, self.epoch, reconnect_delay, disks, &mut self.actions);
                let end = end.or_else(|| {
                    let is_unflushed = !self.settings.shared_write_cache && disks.is_unflushed(self.id);
                    live.follow_order(now, self.order, self.resets, is_new, is_unflushed, &mut self.actions)
                });
                let Some(end) = end else { return false };
                let PathPhase::Live(live) = std::mem::replace(&mut self.phase, PathPhase::Removed) else {
                    unreachable!("just seen")
                };
                let closing = live.close(end, self.settings.drain_fence);
                self.actions.push_back(Action::CloseQueues { epoch: self.epoch, half_close: closing.half_close });
                self.phase = PathPhase::Closing(Box::new(closing));
                true
            }
            PathPhase::Closing(closing) => {
                if !closing.is_over() {
                    return false;
                }
                let PathPhase::Closing(closing) = std::mem::replace(&mut self.phase, PathPhase::Removed) else {
                    unreachable!("just seen")
                };
                disks.path_down(self.id);
                self.ended(now, *closing);
                true
            }
        }
    }

    /// Takes one step of a path without an association.
    fn advance_unconnected(&mut self, now: Instant) -> bool {
        let is_ordered = std::mem::take(&mut self.is_ordered);
        match (&self.phase, self.order.wanted) {
            (_, DesiredState::Removed { .. }) => {
                self.phase = PathPhase::Removing(Removal::AwaitingFences);
                self.actions.extend([Action::News(PathNews::RemovalBegun), Action::AwaitFences]);
            }
            (PathPhase::Refused | PathPhase::GaveUp, _) if !is_ordered => return false,
            (PathPhase::Disabled, DesiredState::Disabled) => return false,
            (_, DesiredState::Disabled) => {
                self.phase = PathPhase::Disabled;
                self.actions.push_back(Action::News(PathNews::Disabled));
            }
            (PathPhase::Waiting { until }, _) if now < *until && !is_ordered => return false,
            (phase, _) => {
                if !matches!(phase, PathPhase::Waiting { .. }) {
                    self.down_since = now;
                    self.actions.push_back(Action::News(PathNews::Connecting));
                }
                self.epoch.0 += 1;
                self.attempt_began = Some(now);
                self.actions.push_back(Action::Connect { qid: 0 });
                self.phase = PathPhase::Connecting(Box::new(Connecting::new(now)));
            }
        }
        true
    }

    /// Ends an attempt to connect.
    fn attempt_failed(&mut self, now: Instant, error: PathError<E>) {
        let recorded = matches!(&self.phase, PathPhase::Connecting(connecting) if connecting.is_recording());
        self.tried_at = self.attempt_began;
        self.actions.push_back(Action::Close);
        if recorded {
            self.actions.push_back(Action::RemoveRecord { epoch: self.epoch });
        }
        if error.is_refusal() {
            self.actions.push_back(Action::News(PathNews::Refused(error)));
            self.phase = PathPhase::Refused;
        } else {
            self.actions.push_back(Action::News(PathNews::Failed(error)));
            self.rest(now);
        }
    }

    /// Waits for the next attempt, unless `ctrl-loss-tmo` has passed.
    fn rest(&mut self, now: Instant) {
        let mut delay = self.settings.reconnect_delay;
        if let Some(ctrl_loss_tmo) = self.settings.ctrl_loss_tmo {
            let left = ctrl_loss_tmo.saturating_sub(now - self.down_since);
            if left.is_zero() {
                self.actions.push_back(Action::News(PathNews::GaveUp { after: ctrl_loss_tmo }));
                self.phase = PathPhase::GaveUp;
                return;
            }
            delay = delay.min(left);
        }
        self.phase = PathPhase::Waiting { until: now + delay };
    }

    /// Records that all I/O threads have closed their queue pairs.
    fn ended(&mut self, now: Instant, closing: Closing<E>) {
        let (end, left) = closing.into_closed(self.epoch);
        self.actions.push_back(Action::Ended(Box::new(left)));
        self.down_since = now;
        self.phase = PathPhase::Waiting { until: now };
        let Some(error) = end.into_error() else {
            // The order may have been withdrawn meanwhile.
            self.actions.extend((!self.order.wanted.is_end()).then_some(Action::News(PathNews::Connecting)));
            return;
        };
        if matches!(error, PathError::Reset) {
            self.max_transfer_bytes = None;
        }
        self.change_limit = change_limit_after(&error);
        // The cause is known and over, so other disks need not wait for the reconnect delay.
        let at_once = matches!(error, PathError::Reset | PathError::Changed { .. });
        self.actions.push_back(Action::News(PathNews::Failed(error)));
        if !at_once {
            self.rest(now);
        }
    }
}

/// How long the next association stays in the ANA state "change" that it begins with, if that state has ended this one.
fn change_limit_after<E: std::error::Error>(error: &PathError<E>) -> Option<Duration> {
    match error {
        PathError::Controller(ControllerError::Namespace(NamespaceError::AnaTransition { after })) => {
            Some((*after * 2).min(CHANGE_LIMIT_MAX))
        }
        _ => None,
    }
}
