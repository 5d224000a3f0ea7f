//! A live association, kept alive until it is lost or ended by order, and then until all I/O threads have closed it.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use mpath_core::Epoch;
use nvme_tcp::host::{ControllerEvent, ControllerInfo, HostController};

use super::{Action, Left, PathError, Report};
use crate::disks::Disks;
use crate::namespaces::Namespaces;
use crate::order::{Order, Wanted};

/// How often a path that is to be closed is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Live<E: Error> {
    pub(super) admin: HostController,
    /// At first.
    info: ControllerInfo,
    namespaces: Namespaces,
    closed: Closed,
    /// I/O threads to which the path is suspect.
    suspicious: usize,
    /// Why it is over.
    lost: Option<PathError<E>>,
    look: Look,
}

/// How far the I/O threads are with closing their queue pairs.
#[derive(Debug)]
struct Closed {
    threads: usize,
    done: usize,
    draining: usize,
    in_doubt: bool,
}

/// Whether a path that is to be closed owes anything.
#[derive(Debug, Clone, Copy)]
enum Look {
    NotYet,
    UnderWay,
    Owes { again_at: Instant },
    OwesNothing,
}

/// How an association ends.
#[derive(Debug)]
pub(super) enum End<E: Error> {
    Lost(PathError<E>),
    /// In order: nothing is in flight.
    InOrder,
    /// By order, whatever it owes.
    Dropped,
}

impl<E: Error> End<E> {
    pub(super) fn into_error(self) -> Option<PathError<E>> {
        match self {
            Self::Lost(error) => Some(error),
            Self::InOrder | Self::Dropped => None,
        }
    }
}

impl<E: Error> Live<E> {
    pub(super) fn new(admin: HostController, info: ControllerInfo, namespaces: Namespaces, threads: usize) -> Self {
        let closed = Closed { threads, done: 0, draining: 0, in_doubt: false };
        Self { admin, info, namespaces, closed, suspicious: 0, lost: None, look: Look::NotYet }
    }

    pub(super) fn reported(
        &mut self,
        now: Instant,
        report: Report<E>,
        max_transfer_bytes: &mut Option<u32>,
        actions: &mut VecDeque<Action<E>>,
    ) {
        match report {
            Report::Lost(error) => self.lose(PathError::Lost(error)),
            Report::Closed { drains, in_doubt } => self.closed.add(drains, in_doubt),
            Report::AnaError => {
                self.namespaces.asked();
                self.admin.reread_ana(now);
            }
            // The other I/O threads find out by themselves, if they have such requests.
            Report::SmallerTransfer { bytes } => {
                if max_transfer_bytes.is_none_or(|known| bytes < known) {
                    *max_transfer_bytes = Some(bytes);
                    actions.push_back(Action::SmallerTransfer { bytes });
                }
            }
            Report::Suspect => {
                self.suspicious += 1;
                actions.extend((self.suspicious == 1).then_some(Action::Suspect));
            }
            Report::Recovered => {
                self.suspicious -= 1;
                actions.extend((self.suspicious == 0).then_some(Action::Recovered));
            }
        }
    }

    /// It is over; the first reason is the one that is told.
    pub(super) fn lose(&mut self, error: PathError<E>) {
        self.lost.get_or_insert(error);
    }

    pub(super) fn looked(&mut self, now: Instant, owes_nothing: bool) {
        // Ordered otherwise meanwhile, it may owe something again.
        if matches!(self.look, Look::UnderWay) {
            self.look = if owes_nothing { Look::OwesNothing } else { Look::Owes { again_at: now + LOOK_AGAIN } };
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let look = if let Look::Owes { again_at } = self.look { Some(again_at) } else { None };
        [look, self.admin.next_timeout()].into_iter().flatten().min()
    }

    /// Goes as far as it can: how it ends, if it does so by itself.
    pub(super) fn go_on<D: Disks<Error = E>>(
        &mut self,
        now: Instant,
        epoch: Epoch,
        disks: &mut D,
        actions: &mut VecDeque<Action<E>>,
    ) -> Option<End<E>> {
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
                Ok(news) => actions.extend(news.map(|news| Action::News { epoch, news })),
                Err((disk, error)) => self.lost = Some(PathError::Changed { disk: disks.name(disk), error }),
            }
        }
        self.lost.take().map(End::Lost)
    }

    /// Whether an order ends it. `is_new`: the order has changed since this was asked last; `resets` of it are done.
    pub(super) fn heed(
        &mut self,
        now: Instant,
        Order { wanted, resets }: Order,
        resets_done: u64,
        is_new: bool,
        actions: &mut VecDeque<Action<E>>,
    ) -> Option<End<E>> {
        let at_once = wanted == Wanted::Removed { at_once: true };
        if resets != resets_done && !at_once {
            return Some(End::Lost(PathError::Reset));
        }
        let is_to_end = !matches!(wanted, Wanted::Enabled | Wanted::Drained);
        if is_new || !is_to_end {
            self.look = Look::NotYet;
        }
        match self.look {
            Look::OwesNothing => return Some(End::InOrder),
            // Draining, it stays without writes in flight, so that nothing needs a fence. What it has not flushed is lost.
            Look::Owes { .. } if at_once => return Some(End::Dropped),
            Look::Owes { again_at } if now < again_at => {}
            Look::NotYet | Look::Owes { .. } if is_to_end => {
                self.look = Look::UnderWay;
                actions.push_back(Action::Look { at_once });
            }
            Look::NotYet | Look::Owes { .. } | Look::UnderWay => {}
        }
        None
    }

    pub(super) fn close(self, end: End<E>, drain_fence: bool) -> Closing<E> {
        let drain = match &end {
            // A controller whose admin connection has failed has ended the others too, or is out of reach.
            End::Lost(error) => drain_fence && !error.is_of_admin(),
            End::Dropped => drain_fence,
            End::InOrder => false,
        };
        let Self { admin, info, closed, .. } = self;
        Closing { admin, info, closed, end, drain }
    }
}

/// Its end is known to all I/O threads, or soon will be.
#[derive(Debug)]
pub(super) struct Closing<E: Error> {
    pub(super) admin: HostController,
    info: ControllerInfo,
    closed: Closed,
    end: End<E>,
    pub(super) drain: bool,
}

impl<E: Error> Closing<E> {
    pub(super) fn reported(&mut self, report: &Report<E>) {
        if let Report::Closed { drains, in_doubt } = *report {
            self.closed.add(drains, in_doubt);
        }
    }

    /// All I/O threads have closed their queue pairs.
    pub(super) fn is_over(&self) -> bool {
        self.closed.done == self.closed.threads
    }

    pub(super) fn into_left(self, epoch: Epoch) -> (End<E>, Left) {
        let Self { admin, info, closed, end, drain } = self;
        // Enabled at the last moment, it may have been given something after all.
        let is_clean = matches!(end, End::InOrder) && !closed.in_doubt;
        let is_draining = drain && closed.draining == closed.threads;
        (end, Left { epoch, info, admin, is_clean, is_draining })
    }
}

impl Closed {
    fn add(&mut self, drains: bool, in_doubt: bool) {
        self.done += 1;
        self.draining += usize::from(drains);
        self.in_doubt |= in_doubt;
    }
}
