//! Conversions of mpath-core's statistics to those of the API.

use monotonic::Duration;
use mpath_core::{ClassStats, FailoverTimes, OpClass, PathStats, Times};

use super::{FenceWaits, Latency, MovedRequests, OpStats, PathEstimate};

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
            latency: Latency::of(&stats.latency),
            latency_1s: Latency::recent(stats.latency_1s.as_deref()),
            latency_60s: Latency::recent(stats.latency_60s.as_deref()),
            histogram: (&stats.latency).into(),
            estimate: PathEstimate::default(),
        }
    }
}

impl MovedRequests {
    /// The failovers of one class of operations.
    #[must_use]
    pub fn of(moves: &FailoverTimes, class: OpClass) -> Self {
        moves.class(class).into()
    }

    /// The first failover at each failure of a path.
    #[must_use]
    pub fn first(moves: &FailoverTimes) -> Self {
        moves.first().into()
    }
}

impl From<&Times> for MovedRequests {
    fn from(times: &Times) -> Self {
        Self { ios: times.ns().len(), time: Latency::of(times), histogram: times.into() }
    }
}

impl From<mpath_core::FenceWaits> for FenceWaits {
    fn from(waits: mpath_core::FenceWaits) -> Self {
        Self { ios: waits.requests, total_ms: waits.time.as_millis() }
    }
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
        stats.latency.record(Duration::from_micros(200));
        let shown = OpStats::from(&stats);
        assert_eq!((shown.ios, shown.bytes, shown.in_flight, shown.errors, shown.retries), (100, 409_600, 2, 3, 1));
        assert!((198..=202).contains(&shown.latency.unwrap().max_us), "{shown:?}");
        assert_eq!((shown.latency_1s, shown.latency_60s), (None, None));
        assert_eq!((shown.histogram.counts[2], shown.histogram.sum), (1, Duration::from_micros(200)));
    }
}
