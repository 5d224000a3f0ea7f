//! Distributions of times.

use monotonic::Duration;
use mpath_core::{LatencyCounts, TIME_BUCKETS_NS, TimeCounts, Times};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A latency distribution in whole microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Latency {
    /// Median.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Maximum.
    pub max_us: u64,
}

impl Latency {
    /// The distribution of all times. `None` without a time.
    pub(super) fn of(times: &Times) -> Option<Self> {
        let ns = times.ns();
        (!ns.is_empty()).then(|| Self::by(|quantile| Duration::from_nanos(ns.value_at_quantile(quantile))))
    }

    /// The distribution of recent latencies. `None` without a request.
    pub(super) fn recent(counts: Option<&LatencyCounts>) -> Option<Self> {
        let counts = counts?;
        counts.quantile(1.0)?;
        Some(Self::by(|quantile| counts.quantile(quantile).unwrap_or_default()))
    }

    fn by(quantile: impl Fn(f64) -> Duration) -> Self {
        let micros = |of| quantile(of).as_micros();
        Self { p50_us: micros(0.5), p99_us: micros(0.99), p999_us: micros(0.999), max_us: micros(1.0) }
    }
}

/// Times since the daemon started, counted in the buckets of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeHistogram {
    /// By bucket: longer than the previous one of [`TIME_BUCKETS_NS`], and not longer than this one. The last bucket has all
    /// longer times.
    pub counts: [u64; TIME_BUCKETS_NS.len() + 1],
    /// The sum of the times.
    pub sum: Duration,
}

impl From<&TimeCounts> for TimeHistogram {
    fn from(times: &TimeCounts) -> Self {
        Self { counts: *times.counts(), sum: times.sum() }
    }
}

impl From<&Times> for TimeHistogram {
    fn from(times: &Times) -> Self {
        times.counted().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_of_times() {
        let mut times = Times::latencies();
        assert_eq!((Latency::of(&times), TimeHistogram::from(&times)), (None, TimeHistogram::default()));
        (0..98).for_each(|_| times.record(Duration::from_micros(200)));
        (0..2).for_each(|_| times.record(Duration::from_millis(30)));
        let latency = Latency::of(&times).unwrap();
        assert!((198..=202).contains(&latency.p50_us), "{latency:?}");
        for slow in [latency.p99_us, latency.p999_us, latency.max_us] {
            assert!((29_700..=30_300).contains(&slow), "{latency:?}");
        }
        let histogram = TimeHistogram::from(&times);
        assert_eq!((histogram.counts[2], histogram.counts[9]), (98, 2));
        assert_eq!(histogram.sum, Duration::from_micros(98 * 200 + 2 * 30_000));
    }
}
