//! Histograms of latencies.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Latencies below this many ns count as equal.
const LOWEST_NS: u64 = 1_000;
/// Latencies above this many ns count as this: twice the longest injection.
const HIGHEST_NS: u64 = 120_000_000_000;
/// Significant decimal digits. 1 % is finer than the difference between two runs. Three digits would take eight times
/// the memory.
const DIGITS: u8 = 2;

/// An empty histogram of latencies in ns.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("constant bounds are valid")
}

/// An empty histogram of waits in ns, to 10 %. A disk may have hundreds of virtqueues, and the I/O thread copies all
/// their histograms for each snapshot.
pub(crate) fn waits() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, 1).expect("constant bounds are valid")
}

pub(crate) fn record(histogram: &mut Histogram<u64>, latency: Duration) {
    histogram.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
}

pub(crate) fn add(histogram: &mut Histogram<u64>, other: &Histogram<u64>) {
    histogram.add(other).expect("histograms of one shape");
}
