//! The last minute of each path, one sample a second.

use std::collections::{HashMap, VecDeque};

use mpath_api::types::{OpStats, Path};
use mpath_config::PathAddress;

use super::figures::quantile;

/// Seconds that are kept.
pub(super) const SECONDS: usize = 60;

/// A path of a disk. The index of a path may pass to another one.
pub(super) type PathKey = (String, PathAddress);

pub(super) fn key(path: &Path) -> PathKey {
    (path.disk.clone(), path.address.clone())
}

/// What a sparkline shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Measure {
    /// The 99th percentile of reads and writes, in microseconds.
    #[default]
    Latency,
    Iops,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    p99_us: Option<u64>,
    iops: u64,
}

#[derive(Debug, Default)]
pub(super) struct History {
    /// The newest sample is the last. `None` stands for a second without an answer of the daemon.
    paths: HashMap<PathKey, VecDeque<Option<Sample>>>,
}

impl History {
    /// Adds a look at the paths, which stands for this number of seconds.
    pub(super) fn add(&mut self, paths: &[Path], seconds: usize) {
        self.paths.retain(|of, _| paths.iter().any(|path| key(path) == *of));
        for path in paths {
            let classes: [&OpStats; 2] = [&path.read, &path.write];
            let sample = Sample { p99_us: quantile(classes.into_iter(), 0.99), iops: path.ios_1s() };
            push(self.paths.entry(key(path)).or_default(), Some(sample), seconds);
        }
    }

    /// Adds seconds without an answer.
    pub(super) fn add_gap(&mut self, seconds: usize) {
        self.paths.values_mut().for_each(|samples| push(samples, None, seconds));
    }

    /// The last minute of a path in this number of cells, the newest last. A cell has the largest value of its seconds.
    pub(super) fn cells(&self, path: &PathKey, measure: Measure, cells: usize) -> Vec<Option<u64>> {
        let empty = VecDeque::new();
        let samples = self.paths.get(path).unwrap_or(&empty);
        let value = |sample: &Option<Sample>| {
            sample.and_then(|sample| match measure {
                Measure::Latency => sample.p99_us,
                Measure::Iops => Some(sample.iops),
            })
        };
        let values: Vec<_> =
            std::iter::repeat_n(None, SECONDS - samples.len()).chain(samples.iter().map(value)).collect();
        values.chunks(SECONDS.div_ceil(cells)).map(|chunk| chunk.iter().copied().max().flatten()).collect()
    }
}

fn push(samples: &mut VecDeque<Option<Sample>>, sample: Option<Sample>, seconds: usize) {
    for _ in 0..seconds.min(SECONDS) {
        if samples.len() == SECONDS {
            samples.pop_front();
        }
        samples.push_back(sample);
    }
}

/// Bars from one eighth to eight eighths of a cell. A cell without a value is empty.
pub(super) fn sparkline(cells: &[Option<u64>], full: u64) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |value: &Option<u64>| {
        value.map_or(' ', |value| BARS[(value.saturating_mul(7).div_ceil(full.max(1)) as usize).min(7)])
    };
    cells.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_with_the_value_and_gaps_are_empty() {
        assert_eq!(sparkline(&[None, Some(0), Some(1), Some(50), Some(100)], 100), " ▁▂▅█");
        assert_eq!(sparkline(&[Some(0)], 0), "▁");
    }
}
