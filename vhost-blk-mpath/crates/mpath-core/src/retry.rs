//! How long a path rests after a path error.

use std::time::{Duration, Instant};

/// The first rest after a path error.
const FIRST_HOLD: Duration = Duration::from_millis(100);
/// The longest rest: the typical ANA transition time (ANATT).
const LONGEST_HOLD: Duration = Duration::from_secs(10);

/// The rest of a path after a path error. Requests then neither return to the path at once nor use up their failovers
/// while it changes state. The rest ends by time, or with an event about the ANA state. It doubles with each further
/// error.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    since: Option<Instant>,
    until: Option<Instant>,
    errors: u32,
}

impl Hold {
    /// A request bound at `bound_at` ended in a path error.
    pub(crate) fn path_error(&mut self, now: Instant, bound_at: Instant) {
        // Requests that were already in flight when the rest began are no further evidence.
        if self.since.is_some_and(|since| bound_at <= since) {
            return;
        }
        let rest = FIRST_HOLD * (1 << self.errors.min(7));
        self.errors = self.errors.saturating_add(1);
        self.since = Some(now);
        self.until = Some(now + rest.min(LONGEST_HOLD));
    }

    /// A request bound at `bound_at` succeeded.
    pub(crate) fn success(&mut self, bound_at: Instant) {
        if self.until.is_some_and(|until| bound_at >= until) {
            *self = Self::default();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_on(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When the rest ends, if it has not ended yet.
    pub(crate) fn ends(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_per_failed_attempt_not_per_failed_request() {
        let start = Instant::now();
        let mut hold = Hold::default();
        hold.path_error(start, start);
        hold.path_error(start, start);
        assert_eq!(hold.ends(start), Some(start + FIRST_HOLD));
        let again = start + FIRST_HOLD;
        assert!(!hold.is_on(again));
        hold.path_error(again, again);
        assert_eq!(hold.ends(again), Some(again + 2 * FIRST_HOLD));
    }

    #[test]
    fn is_bounded_and_ends_with_success() {
        let mut now = Instant::now();
        let mut hold = Hold::default();
        for _ in 0..40 {
            hold.path_error(now, now);
            let end = hold.ends(now).expect("resting");
            assert!(end - now <= LONGEST_HOLD);
            now = end;
        }
        hold.success(now);
        hold.path_error(now, now);
        assert_eq!(hold.ends(now), Some(now + FIRST_HOLD));
    }
}
