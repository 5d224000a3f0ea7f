//! The rate of a path: the highest rate of about the last second. Each rate is measured over a *bucket*, a run of
//! answers.

use std::collections::VecDeque;

use monotonic::{Duration, Instant};

/// How long a rate counts, at least, and in latencies of the path.
const WINDOW: Duration = Duration::from_secs(1);
const WINDOW_LATENCIES: f64 = 20.0;
/// A bucket ends when it has this many answers, has lasted this long in s, and has lasted this many latencies of the
/// path: during the search, and after it.
const SEARCH: (u32, f64, f64) = (8, 0.005, 1.0);
const CRUISE: (u32, f64, f64) = (32, 0.020, 2.0);
/// A bucket ends after this time, or two latencies, in any case.
const LONGEST: Duration = Duration::from_millis(500);

/// The result of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delivered {
    /// Bytes per second.
    pub(super) rate: f64,
    /// The path's window was full most of the time, so the path could not get more.
    pub(super) loaded: bool,
    /// The mean latency in s, and the mean size in bytes.
    pub(super) latency: f64,
    pub(super) size: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The time of the first answer, which `bytes` does not count.
    began: Instant,
    /// [`LONGEST`] after that.
    until: Instant,
    bytes: f64,
    count: u32,
    full: u32,
    latencies: f64,
    sizes: f64,
}

/// The rate filter of one path and class.
#[derive(Clone, Debug, Default)]
pub(super) struct RateFilter {
    bucket: Option<Bucket>,
    /// Times and rates, in falling order of rates: the first is the maximum.
    rates: VecDeque<(Instant, f64)>,
    full: u32,
}

impl RateFilter {
    /// Counts a bound request that fills the window.
    pub(super) fn filled(&mut self) {
        self.full += 1;
    }

    /// Counts an answer after `latency`. Returns whether the bucket may end: [`RateFilter::end_bucket`] follows.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, bytes: f64, latency: f64, searching: bool) -> bool {
        let Some(bucket) = &mut self.bucket else {
            self.open(now);
            return false;
        };
        bucket.bytes += bytes;
        bucket.count += 1;
        bucket.latencies += latency;
        bucket.sizes += bytes;
        bucket.count >= if searching { SEARCH.0 } else { CRUISE.0 } || now >= bucket.until
    }

    /// Closes the bucket if it is time. `path_latency` is the estimated latency.
    pub(super) fn end_bucket(&mut self, now: Instant, path_latency: f64, searching: bool) -> Option<Delivered> {
        let bucket = self.bucket.as_ref()?;
        let (count, least, latencies) = if searching { SEARCH } else { CRUISE };
        let elapsed = (now - bucket.began).as_secs_f64();
        let enough = bucket.count >= count && elapsed >= least.max(latencies * path_latency);
        let forced = bucket.count >= 2 && elapsed >= LONGEST.as_secs_f64().max(2.0 * path_latency);
        if !enough && !forced {
            return None;
        }
        let count = f64::from(bucket.count);
        let delivered = Delivered {
            rate: bucket.bytes / elapsed,
            loaded: 2 * (self.full - bucket.full) >= bucket.count,
            latency: bucket.latencies / count,
            size: bucket.sizes / count,
        };
        self.open(now);
        Some(delivered)
    }

    /// Opens a bucket with this answer.
    fn open(&mut self, began: Instant) {
        self.full = 0;
        let until = began + LONGEST;
        self.bucket = Some(Bucket { began, until, bytes: 0.0, count: 0, full: 0, latencies: 0.0, sizes: 0.0 });
    }

    /// Drops the open bucket.
    pub(super) fn restart(&mut self) {
        self.bucket = None;
    }

    /// Remembers a rate and forgets old ones. One rate always remains.
    pub(super) fn remember(&mut self, now: Instant, rate: f64, path_latency: f64) {
        while self.rates.back().is_some_and(|(_, last)| *last <= rate) {
            self.rates.pop_back();
        }
        self.rates.push_back((now, rate));
        let window = WINDOW.max(Duration::from_secs_f64((WINDOW_LATENCIES * path_latency).min(1000.0)));
        while self.rates.len() > 1 && self.rates.front().is_some_and(|(at, _)| now - *at > window) {
            self.rates.pop_front();
        }
    }

    /// The highest recent rate, a lower bound of the limit; `None`: unknown.
    pub(super) fn max(&self) -> Option<f64> {
        self.rates.front().map(|(_, rate)| *rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// An answer of 1000 bytes after the latency of the path.
    fn answered(filter: &mut RateFilter, now: Instant, latency: f64, searching: bool) -> Option<Delivered> {
        let may_end = filter.answered(now, 1000.0, latency, searching);
        may_end.then(|| filter.end_bucket(now, latency, searching)).flatten()
    }

    #[test]
    fn a_bucket_ends_with_enough_answers_and_time() {
        let start = Instant::now();
        for (searching, answers) in [(true, 9), (false, 33)] {
            let mut filter = RateFilter::default();
            let ends = (0..).find_map(|n| {
                filter.filled();
                answered(&mut filter, start + n * MS, 0.001, searching).map(|delivered| (n + 1, delivered))
            });
            let (n, delivered) = ends.expect("a bucket ends");
            assert_eq!(n, answers, "the first answer opens it");
            assert!((delivered.rate - 1e6).abs() < 1.0 && delivered.loaded, "{delivered:?}");
        }
        let mut filter = RateFilter::default();
        let few = [0, 400, 600].map(|ms| answered(&mut filter, start + ms * MS, 0.2, false));
        assert!(few[1].is_none() && few[2].is_some_and(|delivered| !delivered.loaded), "{few:?}");
    }

    #[test]
    fn the_highest_recent_rate_counts_and_the_last_is_kept() {
        let start = Instant::now();
        let mut filter = RateFilter::default();
        assert_eq!(filter.max(), None);
        for (ms, rate, max) in [(0, 5.0, 5.0), (500, 3.0, 5.0), (900, 4.0, 5.0), (1100, 1.0, 4.0), (9000, 2.0, 2.0)] {
            filter.remember(start + ms * MS, rate, 0.001);
            assert_eq!(filter.max(), Some(max), "at {ms} ms");
        }
    }
}
