//! How much the service can do: its rate, by what was completed while something waited all the time, and a clock that counts
//! what it could have done.
//!
//! While something waits the clock counts exactly what was dispatched, so that a share of its progress is a share of the service
//! whatever the estimate is worth. While nothing waits it goes on at the estimated rate: unused service was there for anyone.

use std::time::{Duration, Instant};

/// A measurement takes at least this long and this many completions ...
const SAMPLE_MIN: (Duration, u32) = (Duration::from_millis(50), 32);
/// ... or, of a slow service, this.
const SLOW_SAMPLE_MIN: (Duration, u32) = (Duration::from_secs(1), 4);
/// Weight of a new measurement: 1 in 4, about a fifth of a second's worth.
const SMOOTHING: i64 = 4;
/// The mean cost is taken over about so many requests, and is kept in 1/256.
const MEAN_OVER: i64 = 64;
const FRACTION: u32 = 8;

#[derive(Debug)]
pub(super) struct Capacity {
    /// Cost per second; 0 until it is known.
    rate: u64,
    /// Cost of a request in the mean, in 1/256.
    mean: u64,
    clock: u64,
    /// Nothing has waited since.
    slack_since: Option<Instant>,
    /// The completion with which the present measurement began, and what has been completed since.
    sample: Option<(Instant, u64, u32)>,
}

impl Capacity {
    pub(super) fn new(now: Instant, mean: u64) -> Self {
        Self { rate: 0, mean: mean << FRACTION, clock: 0, slack_since: Some(now), sample: None }
    }

    pub(super) fn mean(&self) -> u64 {
        (self.mean >> FRACTION).max(1)
    }

    pub(super) fn clock(&self) -> u64 {
        self.clock
    }

    /// What is done in that time.
    pub(super) fn in_time(&self, time: Duration) -> u64 {
        u64::try_from(u128::from(self.rate) * time.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
    }

    /// Something waits again, or nothing waits any more.
    pub(super) fn backlog(&mut self, now: Instant, waits: bool) {
        if waits {
            if let Some(since) = self.slack_since.take() {
                self.clock = self.clock.saturating_add(self.in_time(now - since));
            }
        } else {
            self.slack_since.get_or_insert(now);
            // Completions from now on tell of the guest, not of the service.
            self.sample = None;
        }
    }

    pub(super) fn dispatched(&mut self, cost: u64) {
        self.clock = self.clock.saturating_add(cost);
        self.mean =
            self.mean.saturating_add_signed(((cost << FRACTION).cast_signed() - self.mean.cast_signed()) / MEAN_OVER);
    }

    /// A request is over. Whether the rate was measured by it.
    pub(super) fn completed(&mut self, now: Instant, cost: u64) -> bool {
        if self.slack_since.is_some() {
            return false;
        }
        // It counts from one completion to another one: neither the start nor the end is cut off in the middle of a request.
        let Some((since, done, ios)) = &mut self.sample else {
            self.sample = Some((now, 0, 0));
            return false;
        };
        (*done, *ios) = (*done + cost, *ios + 1);
        let time = now - *since;
        if ![SAMPLE_MIN, SLOW_SAMPLE_MIN].iter().any(|(least, count)| time >= *least && *ios >= *count) {
            return false;
        }
        let measured = u64::try_from(u128::from(*done) * 1_000_000_000 / time.as_nanos()).unwrap_or(u64::MAX);
        self.rate = match self.rate {
            0 => measured,
            // It has become another service, by a limit for one. To take it for the former one a little longer would be to give away
            // what it does in minutes.
            rate if measured < rate / 2 => measured,
            rate => rate.saturating_add_signed((measured.cast_signed() - rate.cast_signed()) / SMOOTHING),
        };
        self.sample = Some((now, 0, 0));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn measures_only_while_something_waits() {
        let start = Instant::now();
        let mut capacity = Capacity::new(start, 100);
        for at in 0..100 {
            assert!(!capacity.completed(start + at * MS, 100));
        }
        assert_eq!(capacity.rate, 0);
        capacity.backlog(start + 100 * MS, true);
        // Twelve at a time, every 10 ms.
        for at in 10..100 {
            (0..12).for_each(|_| _ = capacity.completed(start + at * 10 * MS, 100));
        }
        assert!((119_000..=121_000).contains(&capacity.rate), "{}", capacity.rate);
    }

    #[test]
    fn a_service_that_has_become_slow_is_that_at_once() {
        let start = Instant::now();
        let mut capacity = Capacity::new(start, 100);
        capacity.backlog(start, true);
        (0..10_000).for_each(|at| _ = capacity.completed(start + at * MS / 100, 100));
        assert!((9_900_000..=10_100_000).contains(&capacity.rate), "{}", capacity.rate);
        let slow = start + 100 * MS;
        (0..100).for_each(|at| _ = capacity.completed(slow + at * 10 * MS, 100));
        assert!((9_900..=10_100).contains(&capacity.rate), "{}", capacity.rate);
    }

    #[test]
    fn the_clock_counts_work_and_unused_time() {
        let start = Instant::now();
        let mut capacity = Capacity::new(start, 100);
        capacity.rate = 1000;
        capacity.backlog(start + 500 * MS, true);
        assert_eq!(capacity.clock(), 500);
        capacity.dispatched(70);
        capacity.backlog(start + 900 * MS, false);
        assert_eq!(capacity.clock(), 570, "while something waited, what was done");
        capacity.backlog(start + 1000 * MS, true);
        assert_eq!(capacity.clock(), 670);
    }
}
