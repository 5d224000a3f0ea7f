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

    /// Starts them. With TBKAS the controller may count from the start of its own interval, so they come twice as often. Where
    /// they have been started already the next one comes no later for it: the controller counts from then.
    pub(super) fn start(&mut self, now: Instant, kato: Duration, tbkas: bool) {
        self.interval = if tbkas { kato / 4 } else { kato / 2 };
        let next = now + self.interval;
        match &mut self.state {
            State::Off => self.state = State::Due(next),
            State::Due(at) => *at = next.min(*at),
            State::Sent(_) => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_started_again_is_due_no_later() {
        const KATO: Duration = Duration::from_secs(8);
        let (mut keep_alive, start) = (KeepAlive::new(KATO, KATO / 2), Instant::now());
        keep_alive.start(start, KATO, false);
        keep_alive.start(start + KATO / 4, KATO, false);
        assert_eq!(keep_alive.next_timeout(), Some(start + KATO / 2));
        keep_alive.start(start + KATO / 8, KATO, true);
        assert_eq!(keep_alive.next_timeout(), Some(start + KATO / 8 + KATO / 4));
    }
}
