//! Decides: a path rests after a path error.
//!
//! How long a path rests after a path error.

use monotonic::{Duration, Instant};

/// The first rest after a path error.
const FIRST_REST: Duration = Duration::from_millis(100);
/// The longest rest: the typical ANA transition time (ANATT).
const LONGEST_REST: Duration = Duration::from_secs(10);

/// The rest of a path after a path error: requests do not return to the path at once. The rest ends by time, or with an event
/// about the namespace. It doubles with each further error. After the rest the path is tried again. Until a request succeeds,
/// the path does not count as leading to the disk. A request may succeed although it was bound no earlier than the refused one.
/// Then the path serves the disk, and its error speaks of the refused request alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathErrorRest {
    since: Option<Instant>,
    /// When the refused request was bound that began the rest.
    refused_bound_at: Option<Instant>,
    until: Option<Instant>,
    errors: u32,
}

impl PathErrorRest {
    /// Begins or lengthens the rest after a path error of a request that was bound at `bound_at`.
    pub(crate) fn path_error(&mut self, now: Instant, bound_at: Instant) {
        // Requests that were already in flight when the rest began are no further evidence.
        if self.since.is_some_and(|since| bound_at <= since) {
            return;
        }
        let rest = FIRST_REST * (1 << self.errors.min(7));
        self.errors = self.errors.saturating_add(1);
        (self.since, self.refused_bound_at) = (Some(now), Some(bound_at));
        self.until = Some(now + rest.min(LONGEST_REST));
    }

    /// Forgets earlier path errors if a request succeeded that was bound no earlier than the refused one, at `bound_at`. Returns
    /// whether there were any.
    pub(crate) fn success(&mut self, bound_at: Instant) -> bool {
        let forgets = self.refused_bound_at.is_some_and(|refused| bound_at >= refused);
        if forgets {
            *self = Self::default();
        }
        forgets
    }

    /// Whether no request has succeeded since the path error.
    pub(crate) fn is_refusing(&self) -> bool {
        self.since.is_some()
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
        let mut rest = PathErrorRest::default();
        rest.path_error(start, start);
        rest.path_error(start, start);
        assert_eq!(rest.ends(start), Some(start + FIRST_REST));
        let again = start + FIRST_REST;
        assert!(!rest.is_on(again));
        rest.path_error(again, again);
        assert_eq!(rest.ends(again), Some(again + 2 * FIRST_REST));
    }

    #[test]
    fn is_bounded_and_ends_with_success() {
        let mut now = Instant::now();
        let mut rest = PathErrorRest::default();
        for _ in 0..40 {
            rest.path_error(now, now);
            let end = rest.ends(now).expect("resting");
            assert!(end - now <= LONGEST_REST);
            now = end;
        }
        rest.success(now);
        rest.path_error(now, now);
        assert_eq!(rest.ends(now), Some(now + FIRST_REST));
    }

    /// Refusals are fast, so they arrive before the successes of requests that were sent with them.
    #[test]
    fn a_request_that_alone_is_refused_keeps_no_others_waiting() {
        let (before, ms) = (Instant::now(), Duration::from_millis(1));
        let start = before + ms;
        let mut rest = PathErrorRest::default();
        rest.path_error(start + ms, start);
        assert!(!rest.success(before), "sent before the path began to refuse");
        assert!(rest.is_refusing());
        assert!(rest.success(start));
        assert!(!rest.is_refusing() && !rest.is_on(start + ms));
    }
}
