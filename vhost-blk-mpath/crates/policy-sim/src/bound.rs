//! The most that any policy can reach.

use crate::{Model, Workload};

/// Most bytes per second over these paths: `max Σ λ·s` with `λ·s ≤ C` on each path and `Σ λ·L ≤ depth`, for request rates λ,
/// mean size s, capacities C and latencies L of requests that meet no other (Little's law).
///
/// One constraint that the paths share, and a limit for each: the paths with the least latency are filled first. No request
/// queues anywhere in it, so that jitter and mixed sizes leave a policy some way below.
#[must_use]
pub fn bound(paths: &[Model], workload: &Workload) -> f64 {
    let size = workload.mean_bytes();
    let mut paths: Vec<(f64, f64)> =
        paths.iter().map(|path| (path.latency(size), path.capacity(size, workload.one_way()))).collect();
    paths.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut depth = f64::from(workload.depth);
    let mut sum = 0.0;
    for (latency, capacity) in paths {
        let rate = capacity.min(depth * size / latency);
        depth -= rate * latency / size;
        sum += rate;
    }
    sum
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn agrees_with_the_published_points() {
        // Two pipes of 1 Gb/s, 0.2 and 30 ms, 64 KiB.
        let paths = [0.2, 30.0].map(|ms| Model::pipe(1.0, Duration::from_secs_f64(ms / 1000.0)));
        for (depth, megabytes) in [(32, 191.0), (64, 250.0)] {
            let bound = bound(&paths, &Workload::medium(depth)) / 1e6;
            assert!((bound - megabytes).abs() < 0.5, "depth {depth}: {bound}");
        }
    }

    #[test]
    fn a_single_request_takes_the_fastest_path() {
        let paths = [Model::disk(1, Duration::from_millis(10)), Model::pipe(1.0, Duration::from_micros(67))];
        let bound = bound(&paths, &Workload::small(1)) / 4096.0;
        assert!((bound - 1e6 / (67.0 + 32.768)).abs() < 1.0, "{bound}");
    }
}
