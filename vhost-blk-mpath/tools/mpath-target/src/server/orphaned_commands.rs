//! Held commands of a connection that has ended. They are executed when they are released, even if the host has given them up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use monotonic::Instant;
use rustix::event::PollFlags;

use super::association::Association;
use super::connection_registry::Registration;
use super::held_commands::HeldCommands;
use super::shared::{Port, Shared};
use super::waker::{Waker, poll};

/// The held commands of a connection that has ended. The thread of the connection executes them.
pub(super) struct OrphanedCommands {
    shared: Arc<Shared>,
    port: Arc<Port>,
    association: Arc<Association>,
    held: HeldCommands,
    waker: Arc<Waker>,
    _registration: Registration,
}

impl OrphanedCommands {
    /// Takes over `held`. Returns `None` without held commands, with too many orphans, or if the target ends.
    pub(super) fn new(
        shared: &Arc<Shared>,
        port: &Arc<Port>,
        association: Arc<Association>,
        held: HeldCommands,
    ) -> Option<Self> {
        if held.is_empty() {
            return None;
        }
        let waker = Arc::new(Waker::new().ok()?);
        let registration = shared.orphans.register(port.listener, &waker)?;
        let (shared, port) = (Arc::clone(shared), Arc::clone(port));
        Some(Self { shared, port, association, held, waker, _registration: registration })
    }

    /// Executes each command when it is released, until none is left.
    pub(super) fn run(mut self) {
        while !self.held.is_empty() && !self.waker.is_stopped() && self.execute_released() {
            let due = self.held.next_due();
            let timeout = due.map(|due| due.saturating_duration_since(Instant::now()));
            if poll(&*self.waker, PollFlags::IN, &self.waker, timeout).is_err() {
                return;
            }
            self.waker.clear();
        }
    }

    /// Executes the released commands. Returns whether held commands are left.
    fn execute_released(&mut self) -> bool {
        let now = Instant::now();
        let gate = self.association.gate();
        if gate.revoked {
            return false;
        }
        while let Some(command) = self.held.pop_released(now) {
            // There is no connection to report a failure on.
            command.execute(&self.shared);
            self.port.faults.executed_late.fetch_add(1, Ordering::Release);
        }
        !self.held.is_empty()
    }
}
