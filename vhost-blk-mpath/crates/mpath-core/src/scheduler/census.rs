//! How many did something lately.

use std::time::{Duration, Instant};

/// What "lately" means: this second and the one before.
const PERIOD: Duration = Duration::from_secs(1);

/// When one was last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(u64);

/// Sums up the weights of those that are marked, each once a period.
#[derive(Debug)]
pub(super) struct Census {
    /// Grows with each period, and is never that of a [`Seen`] that nobody has marked.
    period: u64,
    ends: Instant,
    sum: u64,
    before: u64,
}

impl Census {
    pub(super) fn new(now: Instant) -> Self {
        Self { period: 1, ends: now + PERIOD, sum: 0, before: 0 }
    }

    fn turn(&mut self, now: Instant) {
        if now >= self.ends {
            // Of a period that passed in silence nothing is left.
            self.before = if now < self.ends + PERIOD { self.sum } else { 0 };
            (self.period, self.ends, self.sum) = (self.period + 1, now + PERIOD, 0);
        }
    }

    /// Whether this is news.
    pub(super) fn mark(&mut self, now: Instant, seen: &mut Seen, weight: u64) -> bool {
        self.turn(now);
        let news = seen.0 != self.period;
        if news {
            seen.0 = self.period;
            self.sum += weight;
        }
        news
    }

    /// Whether there is one.
    pub(super) fn any(&mut self, now: Instant) -> bool {
        self.turn(now);
        self.sum + self.before > 0
    }

    /// At least 1.
    pub(super) fn sum(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.sum.max(self.before).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_once_and_forgets() {
        let start = Instant::now();
        let mut census = Census::new(start);
        let mut flows = [Seen::default(); 3];
        for _ in 0..5 {
            for flow in &mut flows {
                census.mark(start, flow, 100);
            }
        }
        assert_eq!(census.sum(start), 300);
        census.mark(start + PERIOD, &mut flows[0], 100);
        assert_eq!(census.sum(start + PERIOD), 300, "the period that has just begun knows little");
        census.mark(start + 2 * PERIOD, &mut flows[0], 100);
        assert_eq!(census.sum(start + 2 * PERIOD), 100);
        census.mark(start + 9 * PERIOD, &mut flows[1], 50);
        assert_eq!(census.sum(start + 9 * PERIOD), 50);
        assert_eq!(census.sum(start + 20 * PERIOD), 1, "also if nobody asks in between");
    }
}
