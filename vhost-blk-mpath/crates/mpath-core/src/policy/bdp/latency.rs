//! The latency of a path for a request that is alone on the path: the smallest of the recent means.
//!
//! The filter uses means, because with scattered latencies the least single one is far below the expectation. It
//! stores the mean size with each mean latency, because the part that is due to size is known only with the rate.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

/// A mean covers this many answers, or this time.
const SLOT_SAMPLES: u32 = 256;
const SLOT: Duration = Duration::from_millis(500);
/// Fewer answers than this are little evidence.
const FEW: u32 = 4;
/// The number of means that are remembered: the best of each stretch of time.
const STRETCHES: u32 = 32;
/// The least part of a latency that does not depend on size.
const FLOOR: f64 = 0.05;

/// Mean latency (s) and mean size (bytes) of some answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) latency: f64,
    pub(super) size: f64,
}

impl Mean {
    /// The part of the latency that does not depend on size, on a path of this rate.
    pub(super) fn delay(self, rate: f64) -> f64 {
        (self.latency - self.size / rate).max(FLOOR * self.latency)
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The slot ends at this time, if it has enough answers by then.
    until: Instant,
    latencies: f64,
    sizes: f64,
    count: u32,
}

impl Slot {
    fn mean(self) -> Mean {
        let count = f64::from(self.count);
        Mean { latency: self.latencies / count, size: self.sizes / count }
    }
}

/// The latency filter of one path and class.
#[derive(Clone, Debug, Default)]
pub(super) struct LatencyFilter {
    slot: Option<Slot>,
    best: VecDeque<(Instant, Mean)>,
}

impl LatencyFilter {
    /// Adds an answer. Returns whether the mean is complete: [`LatencyFilter::end_slot`] follows.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, latency: f64, size: f64) -> bool {
        let empty = || Slot { until: now + SLOT, latencies: 0.0, sizes: 0.0, count: 0 };
        let slot = self.slot.get_or_insert_with(empty);
        slot.latencies += latency;
        slot.sizes += size;
        slot.count += 1;
        slot.count >= SLOT_SAMPLES || now >= slot.until && slot.count >= FEW
    }

    /// Remembers a mean. `rate` is the estimated limit of the path, and `memory` how long a mean counts.
    pub(super) fn end_slot(&mut self, now: Instant, rate: f64, memory: Duration) {
        let Some(mean) = self.slot.take().map(Slot::mean) else { return };
        let stretch = memory / STRETCHES;
        match self.best.back_mut() {
            Some((at, best)) if now - *at < stretch => {
                if mean.delay(rate) < best.delay(rate) {
                    *best = mean;
                }
            }
            _ => self.best.push_back((now, mean)),
        }
        while self.best.len() > 1 && self.best.front().is_some_and(|(at, _)| now - *at > memory) {
            self.best.pop_front();
        }
    }

    /// Replaces everything by this mean.
    pub(super) fn replace(&mut self, now: Instant, mean: Mean) {
        self.slot = None;
        self.best.clear();
        self.best.push_back((now, mean));
    }

    /// The mean with the least delay; `None`: unknown.
    pub(super) fn best(&self, rate: f64) -> Option<Mean> {
        let by_delay = |a: &Mean, b: &Mean| a.delay(rate).total_cmp(&b.delay(rate));
        let best = self.best.iter().map(|(_, mean)| *mean).min_by(by_delay);
        best.or_else(|| self.slot.map(Slot::mean))
    }

    /// Whether the only evidence is a few answers of the open slot.
    pub(super) fn is_young(&self) -> bool {
        self.best.is_empty() && self.slot.is_none_or(|slot| slot.count < FEW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Duration = Duration::from_secs(10);

    fn feed(filter: &mut LatencyFilter, from: Instant, latency: f64, size: f64) -> Instant {
        for n in 0..SLOT_SAMPLES {
            let now = from + n * Duration::from_millis(1);
            if filter.answered(now, latency, size) {
                filter.end_slot(now, 1e6, MEMORY);
            }
        }
        from + SLOT_SAMPLES * Duration::from_millis(1)
    }

    #[test]
    fn the_least_mean_counts_until_it_expires() {
        let mut filter = LatencyFilter::default();
        assert!(filter.best(1e6).is_none() && filter.is_young());
        let mut now = feed(&mut filter, Instant::now(), 0.002, 1000.0);
        now = feed(&mut filter, now, 0.005, 1000.0);
        assert!((filter.best(1e6).expect("fed").latency - 0.002).abs() < 1e-9);
        for _ in 0..50 {
            now = feed(&mut filter, now, 0.005, 1000.0);
        }
        assert!((filter.best(1e6).expect("fed").latency - 0.005).abs() < 1e-9);
        assert!(filter.best.len() <= STRETCHES as usize + 1, "bounded: {}", filter.best.len());
    }

    #[test]
    fn latencies_of_large_requests_are_not_delays() {
        let mut filter = LatencyFilter::default();
        let now = feed(&mut filter, Instant::now(), 0.004, 1000.0);
        feed(&mut filter, now + MEMORY / 4, 0.005, 4000.0);
        // At 1 MB/s, 3 ms against 1 ms.
        let best = filter.best(1e6).expect("fed");
        assert!((best.delay(1e6) - 0.001).abs() < 1e-9, "{best:?}");
        // With an unlimited rate the other mean would be the best.
        assert!((filter.best(f64::INFINITY).expect("fed").latency - 0.004).abs() < 1e-9);
        assert!((best.delay(1e3) - FLOOR * 0.005).abs() < 1e-9, "some of it always is");
    }
}
