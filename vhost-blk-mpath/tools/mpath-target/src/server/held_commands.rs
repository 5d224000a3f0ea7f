//! Commands that were accepted and are deliberately not executed until later.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use monotonic::Instant;

use super::execute::ModifyingCommand;
use super::faults::HoldPeriod;
use super::shared::Port;

/// The held commands of one connection. The port counts them.
pub(super) struct HeldCommands {
    port: Arc<Port>,
    commands: Vec<(HoldPeriod, ModifyingCommand)>,
}

impl HeldCommands {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self { port, commands: Vec::new() }
    }

    pub(super) fn push(&mut self, period: HoldPeriod, command: ModifyingCommand) {
        self.port.faults.held.fetch_add(1, Ordering::Relaxed);
        self.commands.push((period, command));
    }

    /// Removes the first released command, in order of arrival.
    pub(super) fn pop_released(&mut self, now: Instant) -> Option<ModifyingCommand> {
        let index = self.commands.iter().position(|(period, _)| period.is_over(now, &self.port.faults))?;
        self.port.faults.held.fetch_sub(1, Ordering::Relaxed);
        Some(self.commands.remove(index).1)
    }

    /// When the next command is due, unless all are released earlier.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.commands.iter().filter_map(|(period, _)| period.due).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }
}

impl Drop for HeldCommands {
    fn drop(&mut self) {
        self.port.faults.held.fetch_sub(self.commands.len(), Ordering::Relaxed);
    }
}
