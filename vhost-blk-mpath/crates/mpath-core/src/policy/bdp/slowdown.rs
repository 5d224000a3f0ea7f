//! Detection of slowdowns: a path is slower than its estimate allows.

use monotonic::Duration;

/// A count and a factor. A slowdown is this many latencies in a row above this many times the expectation plus `SLACK`.
/// `VERY_LATE` needs fewer latencies, which are farther above the expectation.
const LATE: (u32, f64) = (8, 2.5);
const VERY_LATE: (u32, f64) = (3, 8.0);
/// In seconds.
const SLACK: f64 = 100e-6;
/// A slowdown is also this many bucket means in a row above this many times the expectation plus `BUCKET_SLACK`.
const BUCKETS: (u32, f64) = (2, 1.5);
/// In seconds.
const BUCKET_SLACK: f64 = 20e-6;

/// The slowdown alarm of one path and class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlowdownAlarm {
    late: u32,
    very_late: u32,
    buckets: u32,
}

/// Whether a silence (s) on a path that owes an answer is so long that the path counts as slower than expected for
/// the present.
pub(super) fn is_late(silence: f64, expected: f64) -> bool {
    silence > LATE.1 * expected + SLACK
}

/// A time for which a silence is not late. It is rounded down, and at most a second.
pub(super) fn not_late_for(expected: f64) -> Duration {
    let seconds = LATE.1 * expected + SLACK;
    Duration::from_nanos((seconds * 1e9).min(1e9) as u64).saturating_sub(Duration::from_micros(1))
}

impl SlowdownAlarm {
    /// Counts a request that took `latency` and was expected to take `expected` (s). Returns whether the path has
    /// slowed down.
    pub(super) fn answered(&mut self, latency: f64, expected: f64) -> bool {
        count(&mut self.late, is_late(latency, expected));
        count(&mut self.very_late, latency > VERY_LATE.1 * expected + SLACK);
        self.late >= LATE.0 || self.very_late >= VERY_LATE.0
    }

    /// Counts a bucket of answers with the mean `latency` and the expectation `expected` (s). Returns whether the path
    /// has slowed down.
    pub(super) fn bucket(&mut self, latency: f64, expected: f64) -> bool {
        count(&mut self.buckets, latency > BUCKETS.1 * expected + BUCKET_SLACK);
        self.buckets >= BUCKETS.0
    }
}

fn count(row: &mut u32, goes_on: bool) {
    *row = if goes_on { *row + 1 } else { 0 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_consecutive_late_answers_are_a_slowdown() {
        let mut slowdown = SlowdownAlarm::default();
        for _ in 0..100 {
            assert!(!slowdown.answered(0.030, 0.001) && !slowdown.answered(0.030, 0.001));
            assert!(!slowdown.answered(0.001, 0.001));
        }
        let rows = |latency| {
            let mut slowdown = SlowdownAlarm::default();
            (1..100).find(|_| slowdown.answered(latency, 0.001))
        };
        assert_eq!((rows(0.030), rows(0.003)), (Some(3), Some(8)));
        let mut slowdown = SlowdownAlarm::default();
        assert!((0..100).all(|_| !slowdown.answered(0.002, 0.001)));
    }

    #[test]
    fn two_late_buckets_in_a_row_are_a_slowdown() {
        let mut slowdown = SlowdownAlarm::default();
        assert!(!slowdown.bucket(0.002, 0.001) && !slowdown.bucket(0.001, 0.001) && !slowdown.bucket(0.002, 0.001));
        assert!(slowdown.bucket(0.002, 0.001));
    }
}
