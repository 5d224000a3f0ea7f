//! When a path is tried again with requests that probes cannot measure.
//!
//! Probes are reads. A link that was silent for a while answers its writes late. Without writes nothing would show
//! that this has passed, and the path would never get one again. Its reads do show this: if they are far faster, a
//! few writes are risked. On a path that is slow only for writes, they are slow again. So the time until the next
//! trial doubles.

use monotonic::{Duration, Instant};

/// How long a path is unused before a trial, at first and at most.
const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(64);

/// The trials of one path and class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    /// The last trial, and the time until the next.
    last: Option<(Instant, Duration)>,
}

impl Trials {
    /// Whether a trial is due, which then begins. `used_at` is when the path last got a request of the class.
    pub(super) fn is_due(&mut self, now: Instant, used_at: Instant) -> bool {
        // A path that stays in use after a trial has passed it.
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

    /// How long the path was unused before its trial. Then it is used for `use_for`.
    fn next(trials: &mut Trials, now: &mut Instant, use_for: Duration) -> u64 {
        let used_at = *now;
        while !trials.is_due(*now, used_at) {
            *now += 100 * MS;
        }
        let alone = (*now - used_at).as_millis();
        *now += use_for;
        alone
    }

    #[test]
    fn the_time_doubles_until_a_trial_succeeds() {
        let (mut trials, mut now) = (Trials::default(), Instant::now());
        let failing: Vec<_> = (0..10).map(|_| next(&mut trials, &mut now, 5 * MS)).collect();
        assert_eq!(failing, [1, 2, 4, 8, 16, 32, 64, 128, 128, 128].map(|halves| halves * 500));
        assert_eq!(next(&mut trials, &mut now, 2 * LONGEST), 64_000);
        assert_eq!([(); 2].map(|()| next(&mut trials, &mut now, 5 * MS)), [500, 1000]);
    }
}
