//! When keep-alives are due, and when their answers are late.

use std::time::{Duration, Instant};

/// The keep-alive timers of an association.
#[derive(Debug)]
pub(super) struct KeepAlive {
    interval: Duration,
    patience: Duration,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Off,
    Due(Instant),
    Sent(Instant),
}

impl KeepAlive {
    /// Off. An answer may take `patience`.
    pub(super) fn new(kato: Duration, patience: Duration) -> Self {
        Self { interval: kato / 2, patience, state: State::Off }
    }

    /// Starts them. With TBKAS the controller may count from the start of its own interval, so they come twice as often.
    pub(super) fn start(&mut self, now: Instant, kato: Duration, tbkas: bool) {
        self.interval = if tbkas { kato / 4 } else { kato / 2 };
        if !matches!(self.state, State::Sent(_)) {
            self.state = State::Due(now + self.interval);
        }
    }

    pub(super) fn stop(&mut self) {
        self.state = State::Off;
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        matches!(self.state, State::Due(at) if at <= now)
    }

    pub(super) fn is_late(&self, now: Instant) -> bool {
        matches!(self.state, State::Sent(at) if at + self.patience <= now)
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.state = State::Sent(now);
    }

    /// The next one is due an interval after the last was sent.
    pub(super) fn answered(&mut self) {
        if let State::Sent(at) = self.state {
            self.state = State::Due(at + self.interval);
        }
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Off => None,
            State::Due(at) => Some(at),
            State::Sent(at) => Some(at + self.patience),
        }
    }
}
