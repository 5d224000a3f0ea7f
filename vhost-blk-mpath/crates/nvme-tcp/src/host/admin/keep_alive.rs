//! Decides: a keep-alive is due, or late.
//!
//! The keep-alive timer: when a keep-alive is due, and when its answer is late.
//!
//! At most half of KATO passes until a keep-alive is sent, and half is for its answer. So a lost controller is noticed within
//! KATO, and a silence of less than half of KATO ends no association.

use monotonic::{Duration, Instant};

/// The keep-alive timer of an admin connection.
#[derive(Debug)]
pub(super) struct KeepAlive {
    interval: Duration,
    answer_timeout: Duration,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Off,
    Due(Instant),
    Sent(Instant),
}

impl KeepAlive {
    /// A stopped timer.
    pub(super) fn new(kato: Duration) -> Self {
        Self { interval: kato / 2, answer_timeout: kato / 2, state: State::Off }
    }

    /// Starts the timer. With traffic-based keep-alive (`tbkas`) the interval is halved, because the controller may count from
    /// the start of its own interval. If the timer runs already, the next keep-alive does not come later than planned: the
    /// controller counts from the first start.
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
        matches!(self.state, State::Sent(at) if at + self.answer_timeout <= now)
    }

    pub(super) fn sent(&mut self, now: Instant) {
        self.state = State::Sent(now);
    }

    /// Takes the answer to a keep-alive. The next one is due one interval after the answered one was sent.
    pub(super) fn answered(&mut self) {
        if let State::Sent(at) = self.state {
            self.state = State::Due(at + self.interval);
        }
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match self.state {
            State::Off => None,
            State::Due(at) => Some(at),
            State::Sent(at) => Some(at + self.answer_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_does_not_delay_the_next_keep_alive() {
        const KATO: Duration = Duration::from_secs(8);
        let (mut keep_alive, start) = (KeepAlive::new(KATO), Instant::now());
        keep_alive.start(start, KATO, false);
        keep_alive.start(start + KATO / 4, KATO, false);
        assert_eq!(keep_alive.next_timeout(), Some(start + KATO / 2));
        keep_alive.start(start + KATO / 8, KATO, true);
        assert_eq!(keep_alive.next_timeout(), Some(start + KATO / 8 + KATO / 4));
    }
}
