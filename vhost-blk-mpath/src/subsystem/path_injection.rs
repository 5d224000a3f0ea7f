//! One injection in force on a path, and the time after which it ends.

use std::time::SystemTime;

use monotonic::Instant;
use mpath_api::types::{ChangeSource, Injection, InjectionInForce, LastChange};
use mpath_api_server::caller;
use tokio::task::{AbortHandle, Id};

use crate::events::utc;

/// An injection in force.
#[derive(Debug)]
pub(crate) struct PathInjection {
    pub(crate) injection: Injection,
    timer: Option<Timer>,
    set: LastChange,
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
        let set = LastChange { at: utc(SystemTime::now()), source: ChangeSource::Operator, by: caller() };
        Self { injection, timer, set }
    }

    /// Whether this task ends the injection.
    pub(crate) fn has_timer(&self, task: Id) -> bool {
        self.timer.as_ref().is_some_and(|timer| timer.task.id() == task)
    }

    /// The injection as the API shows it.
    pub(crate) fn for_api(&self) -> InjectionInForce {
        let left = |timer: &Timer| timer.ends.saturating_duration_since(Instant::now());
        // Rounded up, so that 0 is never shown.
        let ends_in_ms = self.timer.as_ref().map(|timer| left(timer).as_millis() + 1);
        InjectionInForce { injection: self.injection, ends_in_ms, changed: Some(self.set.clone()) }
    }
}
