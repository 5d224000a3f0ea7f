//! The most that any policy can reach.

use crate::paths::{PathSpec, Paths};
use crate::tables::RowSpec;
use mpath_sim::policies::most_requests;

/// The most requests of `mean_bytes` in a second over these paths with `depth` outstanding: [`most_requests`] with
/// `λ_i·s ≤ C_i` on each path and `Σ λ_i·(D_i + s/C_i) ≤ depth`, a request's own transfer counted. D is the path's delay plus
/// `floor_seconds`, the time of a request without any delay.
pub(crate) fn bound(paths: &[PathSpec], floor_seconds: f64, mean_bytes: f64, depth: u32) -> f64 {
    most_requests(paths.iter().map(|path| alone(*path, floor_seconds, mean_bytes)), depth.into())
}

/// The bounds of a row at the start and after each change.
pub(crate) fn bounds(row: &RowSpec, floor_seconds: f64) -> Vec<f64> {
    let at = |paths: &Paths| bound(paths, floor_seconds, row.sizes.mean_bytes(), row.outstanding());
    std::iter::once(&row.paths).chain(row.changes.iter().map(|(_, paths)| paths)).map(at).collect()
}

/// How long a request takes that meets no other on this path, and how many requests the path carries in a second.
fn alone(path: PathSpec, floor_seconds: f64, mean_bytes: f64) -> (f64, f64) {
    let delay = path.delay.as_secs_f64() + floor_seconds;
    match path.bytes_per_second() {
        Some(rate) => (delay + mean_bytes / rate, rate / mean_bytes),
        None => (delay, f64::INFINITY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const FAST: PathSpec = PathSpec { delay: Duration::from_micros(200), mib_per_second: Some(100) };
    const SLOW: PathSpec = PathSpec { delay: Duration::from_millis(30), mib_per_second: Some(100) };
    /// Each path carries 1600 requests of this size a second, each in 0.625 ms.
    const BYTES: f64 = 65_536.0;

    fn close(value: f64, expected: f64) {
        assert!((value - expected).abs() < expected * 1e-6, "{value} instead of {expected}");
    }

    #[test]
    fn one_request_takes_the_fastest_path() {
        // 0.2 + 0.625 ms.
        close(bound(&[SLOW, FAST], 0.0, BYTES, 1), 1.0 / 0.000_825);
        // With the time of a request without any delay.
        close(bound(&[SLOW, FAST], 0.000_175, BYTES, 1), 1000.0);
    }

    #[test]
    fn the_slow_path_takes_what_the_fast_path_cannot() {
        // The fast path is full with 1600 × 0.825 ms = 1.32 requests; the other 30.68 take 30.625 ms each.
        close(bound(&[FAST, SLOW], 0.0, BYTES, 32), 1600.0 + 30.68 / 0.030_625);
        // With 50 requests, the slow path has 48.68. Both paths are full only with 1.32 + 49 requests.
        close(bound(&[FAST, SLOW], 0.0, BYTES, 50), 1600.0 + 48.68 / 0.030_625);
        close(bound(&[FAST, SLOW], 0.0, BYTES, 51), 3200.0);
        close(bound(&[FAST, SLOW], 0.0, BYTES, 256), 3200.0);
    }

    #[test]
    fn agrees_with_the_published_points() {
        // Published for two pipes of 1 Gb/s with 0.2 and 30 ms, and 64 KiB: 194 and 250 MB/s. The 194 leave out the transfer's
        // own time.
        let paths =
            [200, 30_000].map(|micros| PathSpec { delay: Duration::from_micros(micros), mib_per_second: Some(119) });
        let megabytes = |depth| bound(&paths, 0.0, BYTES, depth) * BYTES / 1e6;
        assert!((megabytes(32) - 191.0).abs() < 0.5 && (megabytes(64) - 249.6).abs() < 0.1, "{}", megabytes(32));
    }

    #[test]
    fn without_a_rate_only_time_limits() {
        let path = PathSpec { delay: Duration::from_millis(1), mib_per_second: None };
        close(bound(&[path, SLOW], 0.0, BYTES, 16), 16_000.0);
    }
}
