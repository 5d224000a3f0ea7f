//! Whether a path has become another one: slower than it can be by what is known of it.

/// So many latencies in a row of so many times what was expected, plus `SLACK`, are a change. Few if they are far off.
const LATE: (u32, f64) = (8, 2.5);
const VERY_LATE: (u32, f64) = (3, 8.0);
/// s.
const SLACK: f64 = 100e-6;
/// So many bucket means in a row of so many times what was expected, plus `BUCKET_SLACK`.
const BUCKETS: (u32, f64) = (2, 1.5);
/// s.
const BUCKET_SLACK: f64 = 20e-6;

/// The alarm of one path and class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Alarm {
    late: u32,
    very_late: u32,
    buckets: u32,
}

/// Whether a path that owes an answer has been silent for so long (s) that it counts as slower than it was expected to be, for the
/// time being.
pub(super) fn is_late(silence: f64, expected: f64) -> bool {
    silence > LATE.1 * expected + SLACK
}

impl Alarm {
    /// A request took `latency`, where `expected` was to be expected (s). Whether the path has changed.
    pub(super) fn answered(&mut self, latency: f64, expected: f64) -> bool {
        count(&mut self.late, is_late(latency, expected));
        count(&mut self.very_late, latency > VERY_LATE.1 * expected + SLACK);
        self.late >= LATE.0 || self.very_late >= VERY_LATE.0
    }

    /// The same of a bucket's mean.
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
    fn a_row_is_needed() {
        let mut alarm = Alarm::default();
        for _ in 0..100 {
            assert!(!alarm.answered(0.030, 0.001) && !alarm.answered(0.030, 0.001));
            assert!(!alarm.answered(0.001, 0.001));
        }
        let rows = |latency| {
            let mut alarm = Alarm::default();
            (1..100).find(|_| alarm.answered(latency, 0.001))
        };
        assert_eq!((rows(0.030), rows(0.003)), (Some(3), Some(8)));
        let mut alarm = Alarm::default();
        assert!((0..100).all(|_| !alarm.answered(0.002, 0.001)));
    }

    #[test]
    fn two_buckets_in_a_row() {
        let mut alarm = Alarm::default();
        assert!(!alarm.bucket(0.002, 0.001) && !alarm.bucket(0.001, 0.001) && !alarm.bucket(0.002, 0.001));
        assert!(alarm.bucket(0.002, 0.001));
    }
}
