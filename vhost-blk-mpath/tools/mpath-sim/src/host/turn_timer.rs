//! The time of the next turn of a task or thread.

use monotonic::{Duration, Instant};

use crate::clock::{Clock, Event};
use crate::rng::Rng;

/// The typical time until a woken task runs.
const TASK_WAKE: Duration = Duration::from_micros(50);
/// The typical time if the control thread is busy.
const TASK_WAKE_BUSY: Duration = Duration::from_millis(10);

/// The next turn, which an event begins.
#[derive(Debug)]
pub(super) struct TurnTimer {
    event: Event,
    at: Option<Instant>,
}

impl TurnTimer {
    pub(super) fn new(event: Event) -> Self {
        Self { event, at: None }
    }

    /// Sets the time of the next turn, if it is earlier.
    pub(super) fn set(&mut self, clock: &mut Clock, at: Instant) {
        if self.at.is_none_or(|turn| at < turn) {
            self.at = Some(at);
            clock.at(at, self.event);
        }
    }

    /// Wakes a task of the control thread.
    pub(super) fn wake_task(&mut self, clock: &mut Clock, rng: &mut Rng) {
        let typical = if rng.percent(2) { TASK_WAKE_BUSY } else { TASK_WAKE };
        let at = clock.now() + rng.tail(typical);
        self.set(clock, at);
    }

    /// Handles the event of a turn. Returns whether the turn is due now. The event may also be that of an earlier plan.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        self.at.take_if(|at| *at == now).is_some()
    }
}
