//! One injection in force on a path, and the time after which it ends.

use std::time::Instant;

use mpath_api::types::{Injection, InjectionInForce};
use tokio::task::{AbortHandle, Id};

/// An injection in force.
#[derive(Debug)]
pub(crate) struct PathInjection {
    pub(crate) injection: Injection,
    timer: Option<Timer>,
}

/// Ends an injection after its time, unless dropped before. So there is one task at most for each injection in force.
#[derive(Debug)]
pub(crate) struct Timer {
    ends: Instant,
    task: AbortHandle,
}

impl Timer {
    /// The task ends the injection at `ends`.
    pub(crate) fn new(ends: Instant, task: AbortHandle) -> Self {
        Self { ends, task }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PathInjection {
    pub(crate) fn new(injection: Injection, timer: Option<Timer>) -> Self {
        Self { injection, timer }
    }

    /// Whether this task ends the injection.
    pub(crate) fn has_timer(&self, task: Id) -> bool {
        self.timer.as_ref().is_some_and(|timer| timer.task.id() == task)
    }

    /// The injection as the API shows it.
    pub(crate) fn for_api(&self) -> InjectionInForce {
        let left = |timer: &Timer| timer.ends.saturating_duration_since(Instant::now());
        // Rounded up, so that 0 is never shown.
        let ends_in_ms = self.timer.as_ref().map(|timer| left(timer).as_millis() as u64 + 1);
        InjectionInForce { injection: self.injection, ends_in_ms }
    }
}
