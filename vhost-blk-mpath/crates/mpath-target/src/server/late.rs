//! What a lost connection leaves behind: held commands, executed long after their host has given them up.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::PollFlags;

use super::association::Association;
use super::connection::poll;
use super::hold::HeldCommands;
use super::registry::Registration;
use super::shared::{Port, Shared};
use super::wake::Wake;

/// The held commands of a connection that is gone, in the hands of its thread.
pub(super) struct Late {
    shared: Arc<Shared>,
    port: Arc<Port>,
    association: Arc<Association>,
    held: HeldCommands,
    wake: Arc<Wake>,
    _registration: Registration,
}

impl Late {
    /// Takes over `held`; `None` if there is nothing to take over, no room for it, or the target ends.
    pub(super) fn new(
        shared: &Arc<Shared>,
        port: &Arc<Port>,
        association: Arc<Association>,
        held: HeldCommands,
    ) -> Option<Self> {
        if held.is_empty() {
            return None;
        }
        let wake = Arc::new(Wake::new().ok()?);
        let registration = shared.late.register(port.listener, &wake)?;
        let (shared, port) = (Arc::clone(shared), Arc::clone(port));
        Some(Self { shared, port, association, held, wake, _registration: registration })
    }

    /// Executes them when their time comes, until none is left.
    pub(super) fn run(mut self) {
        while !self.held.is_empty() && !self.wake.is_stopped() && self.turn() {
            let due = self.held.next_due();
            let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
            if poll(&*self.wake, PollFlags::IN, &self.wake, timeout).is_err() {
                return;
            }
            self.wake.drain();
        }
    }

    /// Executes those whose time has come; whether the others still wait for theirs.
    fn turn(&mut self) -> bool {
        let now = Instant::now();
        let gate = self.association.gate();
        if gate.revoked {
            return false;
        }
        while let Some(change) = self.held.pop_over(now) {
            // Nobody is left to be told of a failure.
            change.make(&self.shared);
            self.port.faults.late.fetch_add(1, Ordering::Release);
        }
        !self.held.is_empty()
    }
}
