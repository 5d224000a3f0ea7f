//! Commands that were accepted and are not executed yet, though nothing but this target keeps them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::execute::Change;
use super::faults::Until;
use super::shared::Port;

/// The held commands of one connection, counted at their port.
pub(super) struct HeldCommands {
    port: Arc<Port>,
    commands: Vec<(Until, Change)>,
}

impl HeldCommands {
    pub(super) fn new(port: Arc<Port>) -> Self {
        Self { port, commands: Vec::new() }
    }

    pub(super) fn push(&mut self, until: Until, change: Change) {
        self.port.faults.held.fetch_add(1, Ordering::Relaxed);
        self.commands.push((until, change));
    }

    /// The first one, in the order of their arrival, that is to be executed now.
    pub(super) fn pop_over(&mut self, now: Instant) -> Option<Change> {
        let index = self.commands.iter().position(|(until, _)| until.is_over(now, &self.port.faults))?;
        self.port.faults.held.fetch_sub(1, Ordering::Relaxed);
        Some(self.commands.remove(index).1)
    }

    /// When the next one is due, unless they are released earlier.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.commands.iter().filter_map(|(until, _)| until.due).min()
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
