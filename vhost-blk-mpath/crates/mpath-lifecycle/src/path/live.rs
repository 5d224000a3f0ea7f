//! Decides: namespaces are identified again after a refusal, or while one is missing.
//!
//! A live association until it is lost or ended, and then until all I/O threads have closed it.

use std::collections::VecDeque;
use std::error::Error;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, Epoch};
use nvme_tcp::host::{ControllerEvent, ControllerInfo, HostController};

use super::outstanding::{CheckStep, OutstandingCheck};
use super::{Action, ClosedAssociation, PathError, PathNews, Report};
use crate::disks::Disks;
use crate::namespaces::Namespaces;
use crate::order::{DesiredState, Order};

#[derive(Debug)]
pub(super) struct Live<E: Error> {
    pub(super) admin: HostController,
    /// As it was at the beginning.
    info: ControllerInfo,
    namespaces: Namespaces,
    closed: CloseProgress,
    /// The number of I/O threads to which the path is suspect.
    suspicious: usize,
    /// Why the association is over.
    lost: Option<PathError<E>>,
    check: OutstandingCheck,
    /// When the controller is asked again for namespaces that cannot be used.
    identify_at: Option<Instant>,
}

/// How many I/O threads have closed their queue pairs.
#[derive(Debug)]
struct CloseProgress {
    threads: usize,
    done: usize,
    half_closed: usize,
    in_doubt: bool,
}

/// How an association ends.
#[derive(Debug)]
pub(super) enum AssociationEnd<E: Error> {
    Lost(PathError<E>),
    /// By order, with nothing in flight.
    InOrder,
    /// By order, whatever is outstanding.
    Dropped,
}

impl<E: Error> AssociationEnd<E> {
    pub(super) fn into_error(self) -> Option<PathError<E>> {
        match self {
            Self::Lost(error) => Some(error),
            Self::InOrder | Self::Dropped => None,
        }
    }
}

impl<E: Error> Live<E> {
    pub(super) fn new(admin: HostController, info: ControllerInfo, namespaces: Namespaces, threads: usize) -> Self {
        let closed = CloseProgress { threads, done: 0, half_closed: 0, in_doubt: false };
        let check = OutstandingCheck::NotStarted;
        Self { admin, info, namespaces, closed, suspicious: 0, lost: None, check, identify_at: None }
    }

    /// Whether an I/O thread has closed its queue pair while commands that change data were unanswered.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.closed.in_doubt
    }

    /// The disks that share the path.
    pub(super) fn disks(&self) -> impl Iterator<Item = DiskId> + use<E> {
        (0..self.info.namespaces.len() as u16).map(DiskId)
    }

    pub(super) fn reported(
        &mut self,
        now: Instant,
        report: Report<E, ()>,
        max_transfer_bytes: &mut Option<u32>,
        actions: &mut VecDeque<Action<E>>,
    ) {
        match report {
            Report::Lost(error) => self.lose(PathError::Lost(error)),
            Report::Closed { half_closed, in_doubt } => self.closed.add(half_closed.is_some(), in_doubt),
            Report::AnaError => {
                self.namespaces.ana_log_requested();
                self.admin.reread_ana(now);
            }
            Report::InvalidNamespace => self.reread_namespaces(now),
            // The other I/O threads find the limit themselves, if they have such requests.
            Report::SmallerTransfer { bytes } => {
                if max_transfer_bytes.is_none_or(|known| bytes < known) {
                    *max_transfer_bytes = Some(bytes);
                    actions.push_back(Action::News(PathNews::SmallerTransfer { bytes }));
                }
            }
            Report::Suspect => {
                self.suspicious += 1;
                actions.extend((self.suspicious == 1).then_some(Action::News(PathNews::Suspect)));
            }
            Report::Recovered => {
                self.suspicious -= 1;
                actions.extend((self.suspicious == 0).then_some(Action::News(PathNews::Recovered)));
            }
            Report::DigestError | Report::CommandError(_) => {}
        }
    }

    /// Ends the association. The first reason is the one reported.
    pub(super) fn lose(&mut self, error: PathError<E>) {
        self.lost.get_or_insert(error);
    }

    /// Identifies the namespaces again. A namespace that is as it was is no news: the I/O threads try again by themselves.
    fn reread_namespaces(&mut self, now: Instant) {
        self.namespaces.ana_log_requested();
        self.admin.reread_namespaces(now);
    }

    /// Takes the answer of the I/O threads whether the path is idle.
    pub(super) fn idle_answered(&mut self, now: Instant, is_idle: bool) {
        self.check.answered(now, is_idle);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        [self.check.next_timeout(), self.admin.next_timeout(), self.identify_at].into_iter().flatten().min()
    }

    /// Goes as far as it can. Returns how the association ends if it fails by itself.
    pub(super) fn advance<D: Disks<Error = E>>(
        &mut self,
        now: Instant,
        epoch: Epoch,
        reconnect_delay: Duration,
        disks: &mut D,
        actions: &mut VecDeque<Action<E>>,
    ) -> Option<AssociationEnd<E>> {
        if self.identify_at.is_some_and(|at| at <= now) {
            self.identify_at = None;
            self.reread_namespaces(now);
        }
        if self.admin.next_timeout().is_some_and(|at| at <= now)
            && let Err(error) = self.admin.handle_timeout(now)
        {
            self.lose(error.into());
        }
        while self.lost.is_none()
            && let Some(event) = self.admin.poll_event()
        {
            if let ControllerEvent::CrossControllerReset(outcome) = event {
                actions.push_back(Action::ResetAnswered(outcome));
                continue;
            }
            let info = self.admin.info().expect("the controller is live");
            match self.namespaces.on_event(disks, info, event) {
                Ok(Some(update)) => {
                    // A namespace that is back from persistent loss is presumed to have unflushed writes.
                    self.check.namespace_changed();
                    actions.push_back(Action::UpdateNamespace { epoch, update });
                }
                Ok(None) => {}
                Err((disk, error)) => self.lost = Some(PathError::Changed { disk: disks.name(disk), error }),
            }
        }
        // One odd answer must not keep a disk from the path until the controller reports a change.
        if self.namespaces.are_some_unusable() {
            self.identify_at.get_or_insert(now + reconnect_delay);
        } else {
            self.identify_at = None;
        }
        self.lost.take().map(AssociationEnd::Lost)
    }

    /// Follows the order. Returns how the association ends if the order ends it. `is_new`: the order has changed
    /// since the last call; `resets_done` of its resets are done; `is_unflushed`: its controller may cache unflushed
    /// writes.
    pub(super) fn follow_order(
        &mut self,
        now: Instant,
        Order { wanted, resets }: Order,
        resets_done: u64,
        is_new: bool,
        is_unflushed: bool,
        actions: &mut VecDeque<Action<E>>,
    ) -> Option<AssociationEnd<E>> {
        let at_once = wanted == DesiredState::Removed { at_once: true };
        if resets != resets_done && !at_once {
            return Some(AssociationEnd::Lost(PathError::Reset));
        }
        let is_to_end = wanted.is_end();
        if is_new || !is_to_end {
            self.check = OutstandingCheck::NotStarted;
        }
        match self.check {
            OutstandingCheck::NothingOutstanding => return Some(AssociationEnd::InOrder),
            // A drained path without commands in flight needs no fence, hence the check. Its unflushed writes are
            // lost.
            OutstandingCheck::Outstanding { .. } if at_once => return Some(AssociationEnd::Dropped),
            _ => {}
        }
        if is_to_end {
            actions.extend(self.check.advance(now, at_once, is_unflushed).map(|step| match step {
                CheckStep::AskThreads => Action::AskThreads,
                CheckStep::DaemonFlush => Action::DaemonFlush,
            }));
        }
        None
    }

    pub(super) fn close(self, end: AssociationEnd<E>, drain_fence: bool) -> Closing<E> {
        let half_close = match &end {
            // A controller whose admin connection has failed has ended the others too, or is out of reach.
            AssociationEnd::Lost(error) => drain_fence && !error.is_of_admin(),
            AssociationEnd::Dropped => drain_fence,
            AssociationEnd::InOrder => false,
        };
        let Self { admin, info, closed, .. } = self;
        Closing { admin, info, closed, end, half_close }
    }
}

/// An association that all I/O threads are closing.
#[derive(Debug)]
pub(super) struct Closing<E: Error> {
    pub(super) admin: HostController,
    info: ControllerInfo,
    closed: CloseProgress,
    end: AssociationEnd<E>,
    pub(super) half_close: bool,
}

impl<E: Error> Closing<E> {
    pub(super) fn reported(&mut self, report: &Report<E, ()>) {
        if let Report::Closed { half_closed, in_doubt } = *report {
            self.closed.add(half_closed.is_some(), in_doubt);
        }
    }

    /// Whether all I/O threads have closed their queue pairs.
    pub(super) fn is_over(&self) -> bool {
        self.closed.done == self.closed.threads
    }

    pub(super) fn into_closed(self, epoch: Epoch) -> (AssociationEnd<E>, ClosedAssociation) {
        let Self { admin, info, closed, end, half_close } = self;
        // A path enabled at the last moment may have been given a request after all.
        let is_clean = matches!(end, AssociationEnd::InOrder) && !closed.in_doubt;
        let is_half_closed = half_close && closed.half_closed == closed.threads;
        (end, ClosedAssociation { epoch, info, admin, is_clean, is_half_closed })
    }
}

impl CloseProgress {
    fn add(&mut self, is_half_closed: bool, in_doubt: bool) {
        self.done += 1;
        self.half_closed += usize::from(is_half_closed);
        self.in_doubt |= in_doubt;
    }
}
