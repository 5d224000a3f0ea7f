//! Times in which the machine itself stood still. Measurements of these times say nothing about the daemon.
//!
//! A hypervisor now and then takes processors away for tens of milliseconds. Every request then takes that long, whatever the
//! daemon does. [`Watch`] notices stalls without looking at the measurement; [`Stalls`] are the stalls it has noticed.

mod steal;
mod watch;

pub use steal::StealError;
pub use watch::{How, Watch, WatchError, Watched};

use std::time::{Duration, Instant};

/// A time in which a processor did not run a thread that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stall {
    /// When the thread was due.
    pub since: Instant,
    /// When the thread ran.
    pub until: Instant,
}

/// Stalls of all processors in the order of time. Stalls that overlap are one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stalls(Vec<Stall>);

impl Stall {
    /// How long it took.
    #[must_use]
    pub fn took(self) -> Duration {
        self.until - self.since
    }

    /// How much of the stall lies between these moments.
    fn within(self, since: Instant, until: Instant) -> Duration {
        self.until.min(until).saturating_duration_since(self.since.max(since))
    }
}

impl FromIterator<Stall> for Stalls {
    fn from_iter<I: IntoIterator<Item = Stall>>(stalls: I) -> Self {
        let mut all: Vec<Stall> = stalls.into_iter().collect();
        all.sort();
        let mut merged: Vec<Stall> = Vec::new();
        for stall in all {
            match merged.last_mut() {
                Some(last) if stall.since <= last.until => last.until = last.until.max(stall.until),
                _ => merged.push(stall),
            }
        }
        Self(merged)
    }
}

impl Stalls {
    /// Every stall, in the order of time.
    pub fn iter(&self) -> impl Iterator<Item = Stall> + '_ {
        self.0.iter().copied()
    }

    /// How much of the time between these moments was stalled.
    #[must_use]
    pub fn within(&self, since: Instant, until: Instant) -> Duration {
        self.iter().map(|stall| stall.within(since, until)).sum()
    }

    /// Whether any of the time between these moments was stalled.
    #[must_use]
    pub fn hit(&self, since: Instant, until: Instant) -> bool {
        self.iter().any(|stall| !stall.within(since, until).is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn stalls(start: Instant, of: &[(u32, u32)]) -> Stalls {
        of.iter().map(|&(since, until)| Stall { since: start + since * MS, until: start + until * MS }).collect()
    }

    #[test]
    fn those_of_several_processors_are_one_where_they_overlap() {
        let start = Instant::now();
        let merged = |of: &[(u32, u32)]| {
            let ms = |at: Instant| (at - start).as_millis();
            stalls(start, of).iter().map(|stall| (ms(stall.since), ms(stall.until))).collect::<Vec<_>>()
        };
        assert_eq!(merged(&[(50, 90), (10, 30)]), [(10, 30), (50, 90)]);
        assert_eq!(merged(&[(10, 30), (20, 50), (50, 60), (61, 70)]), [(10, 60), (61, 70)]);
        // One within another, whichever was told first.
        assert_eq!(merged(&[(12, 20), (10, 30), (14, 16)]), [(10, 30)]);
        assert_eq!(merged(&[]), []);
    }

    #[test]
    fn a_time_is_hit_by_what_lies_in_it_in_part_or_around_it() {
        let start = Instant::now();
        let two = stalls(start, &[(10, 30), (50, 90)]);
        let within = |since: u32, until: u32| {
            let (since, until) = (start + since * MS, start + until * MS);
            assert_eq!(two.hit(since, until), !two.within(since, until).is_zero());
            two.within(since, until).as_millis()
        };
        assert_eq!((within(0, 100), within(0, 20), within(25, 60), within(60, 70)), (60, 10, 15, 10));
        // Before, between, behind; what ends where one begins is not hit, nor what begins where one ends.
        assert_eq!((within(0, 5), within(35, 45), within(95, 99)), (0, 0, 0));
        assert_eq!((within(0, 10), within(30, 50), within(90, 95)), (0, 0, 0));
        assert_eq!((within(0, 11), within(29, 50), within(89, 95)), (1, 1, 1));
        assert!(!Stalls::default().hit(start, start + MS));
    }

    #[test]
    fn what_took_no_time_is_not_hit() {
        let start = Instant::now();
        assert!(!stalls(start, &[(10, 30)]).hit(start + 20 * MS, start + 20 * MS));
    }
}
