//! Conversions of mpath-core's statistics to those of the API.

use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::iterators::IterationValue;
use mpath_core::{ClassStats, FailoverTimes, OpClass, PathStats};

use super::{Latency, MovedRequests, OpStats, PathEstimate};

impl OpStats {
    /// The counters and the estimate of one class of operations on a path.
    #[must_use]
    pub fn of(path: &PathStats, class: OpClass) -> Self {
        let (stats, estimate) = (path.class(class), &path.estimates[class.index()]);
        Self { estimate: estimate.into(), ..stats.into() }
    }
}

impl From<&mpath_core::PathEstimate> for PathEstimate {
    fn from(estimate: &mpath_core::PathEstimate) -> Self {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Self {
            weight: estimate.average_weight(),
            latency_us: estimate.average_latency().map(micros),
            window_bytes: estimate.window_bytes,
            age: estimate.age,
            ignored: estimate.ignored,
            checkpoints: estimate.checkpoints,
            checkpoint_ios: estimate.checkpoint_ios,
            checkpoint_avg_us: estimate.checkpoint_average().map(micros),
        }
    }
}

impl From<&ClassStats> for OpStats {
    fn from(stats: &ClassStats) -> Self {
        Self {
            ios: stats.ios,
            ios_1s: stats.ios_1s,
            ios_60s: stats.ios_60s,
            bytes: stats.bytes,
            in_flight: stats.in_flight,
            errors: stats.errors,
            retries: stats.retries,
            latency: Latency::of(&stats.latency_ns),
            estimate: PathEstimate::default(),
        }
    }
}

impl MovedRequests {
    /// The failovers of one class of operations.
    #[must_use]
    pub fn of(moves: &FailoverTimes, class: OpClass) -> Self {
        let times = moves.class(class);
        Self { ios: times.len(), time: Latency::of(times) }
    }
}

impl Latency {
    /// The distribution of nanoseconds. `None` without a sample.
    pub(super) fn of(ns: &Histogram<u64>) -> Option<Self> {
        let micros = |ns: u64| u64::try_from(Duration::from_nanos(ns).as_micros()).unwrap_or(u64::MAX);
        (!ns.is_empty()).then(|| Self {
            p50_us: micros(ns.value_at_quantile(0.5)),
            p99_us: micros(ns.value_at_quantile(0.99)),
            p999_us: micros(ns.value_at_quantile(0.999)),
            max_us: micros(ns.max()),
            sum_us: micros(sum(ns)),
        })
    }
}

/// The sum of a histogram. It never shrinks as samples are added: every sample counts as the lowest value of its bucket.
fn sum(ns: &Histogram<u64>) -> u64 {
    let bucket =
        |it: IterationValue<u64>| ns.lowest_equivalent(it.value_iterated_to()).saturating_mul(it.count_at_value());
    ns.iter_recorded().map(bucket).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics() {
        let mut stats = ClassStats::new();
        assert_eq!(OpStats::from(&stats), OpStats::default());
        stats.ios = 100;
        stats.bytes = 409_600;
        stats.in_flight = 2;
        stats.errors = 3;
        stats.retries = 1;
        stats.latency_ns.record_n(200_000, 98).unwrap();
        stats.latency_ns.record_n(30_000_000, 2).unwrap();
        let shown = OpStats::from(&stats);
        assert_eq!((shown.ios, shown.bytes, shown.in_flight, shown.errors, shown.retries), (100, 409_600, 2, 3, 1));
        let latency = shown.latency.unwrap();
        assert!((198..=202).contains(&latency.p50_us), "{latency:?}");
        for slow in [latency.p99_us, latency.p999_us, latency.max_us] {
            assert!((29_700..=30_300).contains(&slow), "{latency:?}");
        }
        let sum_us = 98 * 200 + 2 * 30_000;
        assert!((sum_us * 99 / 100..=sum_us).contains(&latency.sum_us), "{latency:?}");
    }

    #[test]
    fn sums_never_shrink_and_zero_latencies_add_nothing() {
        let mut ns = ClassStats::new().latency_ns;
        ns.saturating_record_n(0, 1_000_000_000);
        assert_eq!(Latency::of(&ns).unwrap().sum_us, 0);
        let mut last = 0;
        for latency in (0..2000_u64).map(|n| n.pow(3) * 7 + 1) {
            ns.saturating_record_n(latency, latency % 5);
            let sum_us = Latency::of(&ns).unwrap().sum_us;
            assert!(sum_us >= last, "{sum_us} after {last}");
            last = sum_us;
        }
        ns.saturating_record_n(u64::MAX, u64::MAX / 2);
        assert!(Latency::of(&ns).unwrap().sum_us >= last);
    }
}
