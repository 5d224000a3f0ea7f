//! Decides: a drain lifts a fence; a controller has answered its shutdown.
//!
//! The end of a controller whose association has ended: its half-closed I/O connections, then an orderly shutdown.
//!
//! ```text
//!  HalfClosed ─ controller has closed every I/O connection in order ─▶ ShuttingDown ── shutdown complete ──▶ confirmed
//!     │                                                                     │
//!     └── a connection fails, or the time is over ──▶ not confirmed ◀───────┘
//! ```
//! With `drain-fence`, a controller that lives closes an I/O connection only when it has executed everything it
//! received there. A controller may also close its connections when it is taken down, or when its keep-alive timer
//! expires while this host stands still. It may have executed nothing then, so only its answer to the shutdown counts.

use std::iter::from_fn;

use monotonic::{Duration, Instant};
use nvme_tcp::host::{ControllerError, ControllerEvent, HostController};

use crate::settings::SHUTDOWN_MAX;

/// How long a controller may take to close half-closed connections. Linux nvmet took up to 3.7 s. The fence time
/// starts only after this wait, so a longer limit is not always better.
const HALF_CLOSED_MAX: Duration = Duration::from_secs(5);

/// The end of one controller. Its admin socket, and its half-closed I/O sockets, stay open until the outcome.
#[derive(Debug)]
pub struct ControllerShutdown {
    admin: HostController,
    /// I/O connections that the controller has not closed.
    half_closed: usize,
    until: Instant,
    outcome: Option<bool>,
}

impl ControllerShutdown {
    /// A controller with this many half-closed I/O connections: their sending sides are shut down. Without any, the
    /// shutdown begins at once.
    #[must_use]
    pub fn new(now: Instant, admin: HostController, half_closed: usize) -> Self {
        let mut ending = Self { admin, half_closed, until: now + HALF_CLOSED_MAX, outcome: None };
        if half_closed == 0 {
            ending.shut_down(now);
        }
        ending
    }

    /// Reports the end of a half-closed I/O connection, once for each. `in_order`: the stream has ended without a failure
    /// of the socket.
    pub fn queue_ended(&mut self, now: Instant, in_order: bool) {
        if !in_order {
            return self.fail();
        }
        self.half_closed = self.half_closed.checked_sub(1).expect("once for each connection");
        if self.half_closed == 0 {
            self.shut_down(now);
        }
    }

    /// Reports that the admin socket has failed, or that the controller has closed it.
    pub fn admin_ended(&mut self) {
        self.fail();
    }

    /// Appends the bytes to be sent on the admin socket. They count as given to the socket.
    pub fn fill_tx(&mut self, out: &mut Vec<u8>) {
        self.admin.fill_tx(out);
    }

    /// Takes bytes from the admin socket, split anywhere. An error ends the association without a confirmation.
    pub fn receive(&mut self, now: Instant, bytes: &[u8]) -> Result<(), ControllerError> {
        let outcome = self.admin.receive(now, bytes);
        self.look_at(outcome)
    }

    /// See [`HostController::term_req`].
    #[must_use]
    pub fn term_req(&self) -> Option<Vec<u8>> {
        self.admin.term_req()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn next_timeout(&self) -> Instant {
        self.admin.next_timeout().map_or(self.until, |at| at.min(self.until))
    }

    /// Sends keep-alives that are due, and gives up when the time is over.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<(), ControllerError> {
        if self.until <= now {
            self.fail();
        }
        let outcome = self.admin.handle_timeout(now);
        self.look_at(outcome)
    }

    /// Whether the controller has closed all connections in order and answered the shutdown afterwards: `None` while
    /// it may still do so.
    pub fn poll_confirmed(&mut self) -> Option<bool> {
        let is_complete = |event| matches!(event, ControllerEvent::ShutdownComplete);
        if from_fn(|| self.admin.poll_event()).any(is_complete) {
            self.outcome.get_or_insert(true);
        }
        self.outcome
    }

    fn shut_down(&mut self, now: Instant) {
        self.until = now + SHUTDOWN_MAX;
        self.admin.shutdown(now);
    }

    fn fail(&mut self) {
        self.outcome.get_or_insert(false);
    }

    fn look_at(&mut self, outcome: Result<(), ControllerError>) -> Result<(), ControllerError> {
        outcome.inspect_err(|_| self.fail())
    }
}

#[cfg(test)]
mod tests;
