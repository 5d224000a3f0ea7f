//! Counts and latency histograms, kept per queue and merged at the end.

use crate::request::Kind;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// The longest latency that is kept. Longer latencies count as this one. Latencies have three digits.
const LONGEST_LATENCY_NANOS: u64 = 3_600_000_000_000;

/// The counts and latencies of one class of operations.
#[derive(Debug, Clone)]
struct ClassStats {
    bytes: u64,
    /// Requests that count for rates. All others completed after the measured time.
    ios_in_time: u64,
    bytes_in_time: u64,
    latency_nanos: Histogram<u64>,
}

impl Default for ClassStats {
    fn default() -> Self {
        let latency_nanos = Histogram::new_with_bounds(1, LONGEST_LATENCY_NANOS, 3).expect("constant bounds are valid");
        Self { bytes: 0, ios_in_time: 0, bytes_in_time: 0, latency_nanos }
    }
}

/// The counts and latencies of one queue, or of all queues.
#[derive(Debug, Clone, Default)]
pub struct Stats {
    /// Reads, writes, and the rest.
    classes: [ClassStats; 3],
    /// Requests that completed with another status than OK.
    pub errors: u64,
}

impl Stats {
    /// Records one successful request. A request that is not `in_time` was submitted in the measured time and completed later.
    /// The request and its latency count. It does not count for rates, because all such requests would raise the rate by the
    /// depth over the time.
    pub fn record(&mut self, kind: Kind, bytes: u32, latency: Duration, in_time: bool) {
        let class = &mut self.classes[match kind {
            Kind::Read => 0,
            Kind::Write => 1,
            Kind::Flush | Kind::Discard | Kind::WriteZeroes { .. } => 2,
        }];
        class.bytes += u64::from(bytes);
        if in_time {
            class.ios_in_time += 1;
            class.bytes_in_time += u64::from(bytes);
        }
        class.latency_nanos.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds the counts and latencies of another queue.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.classes.iter_mut().zip(&other.classes) {
            mine.bytes += theirs.bytes;
            mine.ios_in_time += theirs.ios_in_time;
            mine.bytes_in_time += theirs.bytes_in_time;
            mine.latency_nanos.add(&theirs.latency_nanos).expect("all histograms have the same bounds");
        }
        self.errors += other.errors;
    }

    /// The summary, with rates over the time `measured`.
    pub fn summary(&self, measured: Duration) -> Summary {
        let [read, write, other] = [0, 1, 2].map(|class| self.classes[class].summary(measured));
        Summary { read, write, other, errors: self.errors }
    }
}

impl ClassStats {
    fn summary(&self, measured: Duration) -> ClassSummary {
        let seconds = measured.as_secs_f64().max(f64::MIN_POSITIVE);
        let latency = &self.latency_nanos;
        let at = |quantile| latency.value_at_quantile(quantile) as f64 / 1000.0;
        ClassSummary {
            ios: latency.len(),
            bytes: self.bytes,
            iops: self.ios_in_time as f64 / seconds,
            mib_per_second: self.bytes_in_time as f64 / 1_048_576.0 / seconds,
            latency_us: (!latency.is_empty()).then(|| Latency {
                min: latency.min() as f64 / 1000.0,
                mean: latency.mean() / 1000.0,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p99_9: at(0.999),
                p99_99: at(0.9999),
                max: latency.max() as f64 / 1000.0,
            }),
        }
    }
}

/// [`Stats`] as reported; `other` are flushes, discards and write-zeroes.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub read: ClassSummary,
    pub write: ClassSummary,
    pub other: ClassSummary,
    /// Requests with another status than OK.
    pub errors: u64,
}

/// A class of operations as reported.
#[derive(Debug, Clone, Serialize)]
pub struct ClassSummary {
    /// Completed requests, those included that were in flight when the measured time was over.
    pub ios: u64,
    pub bytes: u64,
    /// Requests completed per second of the measured time.
    pub iops: f64,
    pub mib_per_second: f64,
    pub latency_us: Option<Latency>,
}

/// Latency in microseconds, from submission to the completion seen in the used ring.
#[derive(Debug, Clone, Serialize)]
pub struct Latency {
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    #[serde(rename = "p99.99")]
    pub p99_99: f64,
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_rates_and_merge() {
        let mut first = Stats::default();
        let mut second = Stats::default();
        for micros in 1..=100u64 {
            let target = if micros % 2 == 0 { &mut first } else { &mut second };
            target.record(Kind::Read, 4096, Duration::from_micros(micros), true);
        }
        second.record(Kind::Read, 4096, Duration::from_micros(50), false);
        second.record(Kind::Flush, 0, Duration::from_secs(100_000), true);
        second.errors = 3;
        first.merge(&second);
        let summary = first.summary(Duration::from_secs(2));
        assert_eq!((summary.read.ios, summary.write.ios, summary.other.ios, summary.errors), (101, 0, 1, 3));
        assert!((summary.read.iops - 50.0).abs() < 1e-9);
        assert!((summary.read.mib_per_second - 0.195_312_5).abs() < 1e-9);
        let latency = summary.read.latency_us.unwrap();
        assert!((latency.p50 - 50.0).abs() < 0.1 && (latency.p99 - 99.0).abs() < 0.1, "{latency:?}");
        assert!((latency.max - 100.0).abs() < 0.2);
        assert!(summary.write.latency_us.is_none());
    }
}
