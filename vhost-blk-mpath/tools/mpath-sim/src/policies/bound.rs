//! The most that any policy can reach.

use super::{Model, Workload};

/// Most requests per second over the paths, with `depth` requests outstanding. Each path is given by two figures: the time of a
/// request that meets no other, in seconds, and the most requests per second that fit through. The bound is `max Σ λ` with
/// `λ ≤ most` on each path and `Σ λ·seconds ≤ depth` (Little's law).
///
/// There is one constraint that the paths share, and a limit for each path. So the paths on which requests take least are filled
/// first. No request queues anywhere in this bound. Jitter, mixed sizes and whole requests therefore leave a policy some way below.
pub fn most_requests(paths: impl IntoIterator<Item = (f64, f64)>, depth: f64) -> f64 {
    let mut paths: Vec<(f64, f64)> = paths.into_iter().collect();
    paths.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut left, mut sum) = (depth, 0.0);
    for (seconds, most) in paths {
        let rate = most.min(left / seconds);
        left -= rate * seconds;
        sum += rate;
    }
    sum
}

/// Most bytes per second over these paths, by [`most_requests`]: latencies L and capacities C of requests of the mean size s, so that
/// `λ·s ≤ C` and `Σ λ·L ≤ depth`.
pub fn bound(paths: &[Model], workload: &Workload) -> f64 {
    let size = workload.mean_bytes();
    let paths = paths.iter().map(|path| (path.latency(size), path.capacity(size, workload.one_way()) / size));
    size * most_requests(paths, workload.depth.into())
}

#[cfg(test)]
mod tests {
    use monotonic::Duration;

    use super::super::scenario::link;
    use super::*;

    #[test]
    fn agrees_with_the_published_points() {
        // Two pipes of 1 Gb/s, 0.2 and 30 ms, 64 KiB.
        let paths = [0.2, 30.0].map(|ms| link(1.0, ms));
        for (depth, megabytes) in [(32, 191.0), (64, 250.0)] {
            let bound = bound(&paths, &Workload::medium(depth)) / 1e6;
            assert!((bound - megabytes).abs() < 0.5, "depth {depth}: {bound}");
        }
    }

    #[test]
    fn a_single_request_takes_the_fastest_path() {
        let paths = [Model::disk(1, Duration::from_millis(10)), link(1.0, 0.067)];
        let bound = bound(&paths, &Workload::small(1)) / 4096.0;
        assert!((bound - 1e6 / (67.0 + 32.768)).abs() < 1.0, "{bound}");
    }
}
