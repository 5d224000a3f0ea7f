//! A controller that ends.

use std::error::Error;

use monotonic::Instant;

use super::PathSurroundings;
use crate::AssociationId;
use crate::controller_shutdown::ControllerShutdown;

/// A controller that ends, with the sockets of its association that are still open.
#[derive(Debug)]
pub(super) struct Ending<S, D> {
    inner: ControllerShutdown,
    admin: S,
    /// The half-closed sockets of the I/O queues.
    queues: Vec<D>,
    /// The association whose fence the end may lift. `None` if nothing of it can be executed any more.
    pub(super) fence: Option<AssociationId>,
}

impl<S, D> Ending<S, D> {
    pub(super) fn new(inner: ControllerShutdown, admin: S, queues: Vec<D>, fence: Option<AssociationId>) -> Self {
        Self { inner, admin, queues, fence }
    }

    pub(super) fn admin(&self) -> &S {
        &self.admin
    }

    pub(super) fn queues(&self) -> &[D] {
        &self.queues
    }

    pub(super) fn next_timeout(&self) -> Instant {
        self.inner.next_timeout()
    }

    /// Moves bytes. Returns whether more may follow at once.
    pub(super) fn turn<E: Error>(&mut self, now: Instant, host: &mut impl PathSurroundings<E, S, D>) -> bool {
        let Self { inner, admin, queues, .. } = self;
        // Answers are dropped: their requests are held, and will be repeated.
        for queue in std::mem::take(queues) {
            let mut queue = queue;
            match host.read_to_end(&mut queue) {
                None => queues.push(queue),
                Some(in_order) => {
                    inner.queue_ended(now, in_order);
                    host.close_half_closed(queue);
                }
            }
        }
        let is_new = match host.exchange(admin, |out| inner.fill_tx(out)) {
            Ok(Some(bytes)) => {
                if inner.receive(now, bytes).is_err()
                    && let Some(term_req) = inner.term_req()
                {
                    host.send_term_req(admin, &term_req);
                }
                true
            }
            Ok(None) => false,
            Err(_) => {
                inner.admin_ended();
                false
            }
        };
        // A controller that sends without pause must not delay its end.
        let is_due = inner.next_timeout() <= now;
        if is_due {
            // An error is an outcome.
            let _ = inner.handle_timeout(now);
        }
        is_new || is_due
    }

    /// Whether the end is confirmed, once that is known.
    pub(super) fn poll_confirmed(&mut self) -> Option<bool> {
        self.inner.poll_confirmed()
    }

    /// Closes its sockets.
    pub(super) fn close<E: Error>(self, host: &mut impl PathSurroundings<E, S, D>) {
        self.queues.into_iter().for_each(|queue| host.close_half_closed(queue));
        host.close(self.admin);
    }
}
