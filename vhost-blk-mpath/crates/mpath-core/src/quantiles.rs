//! Quantiles of recent read latencies, by size.

use hdrhistogram::Histogram;
use monotonic::{Duration, Instant};

use crate::MAX_HEDGE_BYTES;

/// Size classes by powers of two: 512 bytes and less, up to [`MAX_HEDGE_BYTES`] and more.
const SIZES: usize = (MAX_HEDGE_BYTES.ilog2() - SMALLEST) as usize + 1;
const SMALLEST: u32 = 9;
/// How long a latency is remembered, at least; at most twice that.
const WINDOW: Duration = Duration::from_secs(5);
/// How often a quantile is computed again.
const RECOMPUTE_AFTER: Duration = Duration::from_millis(100);
/// Latencies below this many ns count as equal.
const LOWEST_NS: u64 = 1_000;
/// Latencies above this many ns count as this.
const HIGHEST_NS: u64 = 120_000_000_000;

/// One quantile of the latencies of the last seconds, for each size class.
#[derive(Debug)]
pub(crate) struct Quantiles {
    quantile: f64,
    /// With fewer latencies than this the quantile is unknown.
    samples_min: u64,
    sizes: [Option<Box<RecentLatencies>>; SIZES],
}

impl Quantiles {
    pub(crate) fn new(quantile_permille: u16, samples_min: u64) -> Self {
        Self { quantile: f64::from(quantile_permille) / 1000.0, samples_min, sizes: [const { None }; SIZES] }
    }

    pub(crate) fn record(&mut self, now: Instant, bytes: u32, latency: Duration) {
        let recent = self.sizes[size(bytes)].get_or_insert_with(|| Box::new(RecentLatencies::new(now)));
        recent.advance(now);
        recent.halves[0].saturating_record(latency.as_nanos());
    }

    /// The quantile of reads of about this size, at most a tenth of a second old.
    pub(crate) fn of(&mut self, now: Instant, bytes: u32) -> Option<Duration> {
        self.at(now, size(bytes))
    }

    /// The least quantile over all sizes.
    pub(crate) fn least(&mut self, now: Instant) -> Option<Duration> {
        (0..SIZES).filter_map(|size| self.at(now, size)).min()
    }

    fn at(&mut self, now: Instant, size: usize) -> Option<Duration> {
        let recent = self.sizes[size].as_mut()?;
        if recent.recompute_at <= now {
            recent.recompute_at = now + RECOMPUTE_AFTER;
            recent.advance(now);
            recent.known = recent.quantile(self.quantile, self.samples_min);
        }
        recent.known
    }
}

fn size(bytes: u32) -> usize {
    (bytes.max(1).ilog2().max(SMALLEST) - SMALLEST).min(SIZES as u32 - 1) as usize
}

/// Latencies of this window and of the window before.
#[derive(Debug)]
struct RecentLatencies {
    halves: [Histogram<u32>; 2],
    ends: Instant,
    known: Option<Duration>,
    recompute_at: Instant,
}

impl RecentLatencies {
    fn new(now: Instant) -> Self {
        // One digit: 6 % is fine enough for a quantile of the last seconds.
        let empty = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 1).expect("constant bounds are valid");
        Self { halves: [empty.clone(), empty], ends: now + WINDOW, known: None, recompute_at: now }
    }

    fn advance(&mut self, now: Instant) {
        if now < self.ends {
            return;
        }
        if now >= self.ends + WINDOW {
            self.halves[0].reset();
        }
        self.halves.swap(0, 1);
        self.halves[0].reset();
        self.ends = now + WINDOW;
    }

    fn quantile(&self, quantile: f64, samples_min: u64) -> Option<Duration> {
        let mut all = self.halves[0].clone();
        all.add(&self.halves[1]).expect("histograms of one shape");
        (all.len() >= samples_min).then(|| Duration::from_nanos(all.value_at_quantile(quantile)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn quantiles_are_by_size_and_within_six_percent() {
        let mut now = Instant::now();
        let mut quantiles = Quantiles::new(950, 100);
        for ms in 1..=100 {
            quantiles.record(now, 4096, ms * MS);
            quantiles.record(now, 100_000, 10 * ms * MS);
        }
        for ms in 1..=99 {
            quantiles.record(now, 8192, ms * MS);
        }
        let near = |got: Option<Duration>, ms: u32| (ms * MS..=ms * MS * 107 / 100).contains(&got.unwrap());
        assert!(near(quantiles.of(now, 4096), 95), "{:?}", quantiles.of(now, 4096));
        assert!(near(quantiles.of(now, 8000), 95), "of the same power of two");
        assert!(near(quantiles.of(now, 65_536), 950));
        assert_eq!(quantiles.of(now, 8192), None, "one too few");
        assert_eq!(quantiles.of(now, 512), None);
        assert!(near(quantiles.least(now), 95));
        // One sample more, and the quantile is computed at the next look.
        quantiles.record(now, 8192, MS);
        assert_eq!(quantiles.of(now, 8192), None);
        now += RECOMPUTE_AFTER;
        assert!(near(quantiles.of(now, 8192), 94), "{:?}", quantiles.of(now, 8192));
    }

    #[test]
    fn latencies_older_than_two_windows_are_forgotten() {
        let mut now = Instant::now();
        let mut quantiles = Quantiles::new(500, 1);
        quantiles.record(now, 512, 100 * MS);
        quantiles.record(now, 512, 100 * MS);
        assert!(quantiles.of(now, 512) > Some(90 * MS));
        now += WINDOW;
        quantiles.record(now, 512, MS);
        assert!(quantiles.of(now, 512) > Some(90 * MS), "still the majority");
        now += WINDOW;
        assert!(quantiles.of(now, 512) < Some(2 * MS));
        now += 2 * WINDOW;
        assert_eq!(quantiles.of(now, 512), None);
    }

    #[test]
    fn any_size_and_latency_can_be_recorded() {
        let now = Instant::now();
        let mut quantiles = Quantiles::new(999, 1);
        for bytes in [0, 1, 511, u32::MAX] {
            quantiles.record(now, bytes, Duration::ZERO);
            quantiles.record(now, bytes, Duration::MAX);
            assert!(quantiles.of(now, bytes) > Some(Duration::from_secs(100)));
        }
    }
}
