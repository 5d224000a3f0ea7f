//! When a path is tried again with what no probe tells of.
//!
//! Probes are reads. A path that is not given writes, say, because its last ones took long would never be given one again: a link
//! that is silent for a while answers late what it held, and nothing says afterwards that this is over. What reads take there
//! does: if it is far less, some writes are risked. On a path that is slow for writes alone they are slow again, and so the
//! time until the next ones doubles.

use std::time::{Duration, Instant};

/// How long it is not used before it is tried, at first and at most.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(64);

/// The trials of one path and class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Retrial {
    /// The last one, and how long the path is to be left alone after it.
    last: Option<(Instant, Duration)>,
}

impl Retrial {
    /// Whether it is time for one, and then this is it. `used_at` is when the path was last given such a request.
    pub(super) fn is_due(&mut self, now: Instant, used_at: Instant) -> bool {
        // A path that goes on being used after a trial has passed it.
        let failed = self.last.filter(|(at, wait)| used_at.saturating_duration_since(*at) < *wait);
        let wait = failed.map_or(FIRST, |(_, wait)| wait);
        let due = now.saturating_duration_since(used_at) >= wait;
        if due {
            self.last = Some((now, LONGEST.min(2 * wait)));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// How long the path has been left alone when it is tried; it is used for `use_for` from then on.
    fn next(retrial: &mut Retrial, now: &mut Instant, use_for: Duration) -> u128 {
        let used_at = *now;
        while !retrial.is_due(*now, used_at) {
            *now += 100 * MS;
        }
        let alone = (*now - used_at).as_millis();
        *now += use_for;
        alone
    }

    #[test]
    fn the_time_doubles_until_a_trial_goes_well() {
        let (mut retrial, mut now) = (Retrial::default(), Instant::now());
        let failing: Vec<_> = (0..10).map(|_| next(&mut retrial, &mut now, 5 * MS)).collect();
        assert_eq!(failing, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128].map(|halves| halves * 500));
        assert_eq!(next(&mut retrial, &mut now, 2 * LONGEST), 64_000);
        assert_eq!([(); 2].map(|()| next(&mut retrial, &mut now, 5 * MS)), [500, 1000]);
    }
}
