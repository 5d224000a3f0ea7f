//! Paths that change during a measurement: the throughput over time, and how long it takes to recover after each change.

use crate::paths::Paths;
use std::time::Duration;

/// About the length of a bin.
pub(crate) const BIN: Duration = Duration::from_millis(100);

/// This part of the bound must be reached after a change …
const RECOVERED: f64 = 0.9;
/// … in this many bins in a row.
const BINS_IN_A_ROW: usize = 2;

/// Requests completed in a part of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bin {
    /// Since the start of the run.
    pub(crate) from_seconds: f64,
    pub(crate) to_seconds: f64,
    pub(crate) iops: f64,
}

/// A change of the paths, or the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    /// Since the start of the run.
    pub(crate) at_seconds: f64,
    /// The bound from then on.
    pub(crate) bound_iops: f64,
}

/// One run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Timeline {
    pub(crate) bins: Vec<Bin>,
    /// The changes in order. The first one is the start of the run.
    pub(crate) changes: Vec<Change>,
}

impl Timeline {
    /// The seconds from each change until throughput is 90 % of the new bound, in two bins in a row. The time ends with the first
    /// of them. It is infinite if throughput does not get there before the next change.
    pub(crate) fn recoveries(&self) -> Vec<f64> {
        let changes = self.changes.iter().enumerate().skip(1);
        let recovery = |(index, change): (usize, &Change)| {
            let end = self.changes.get(index + 1).map_or(f64::INFINITY, |next| next.at_seconds);
            let after = |bin: &&Bin| bin.from_seconds >= change.at_seconds && bin.to_seconds <= end;
            let bins: Vec<&Bin> = self.bins.iter().filter(after).collect();
            let is_enough = |bin: &&Bin| bin.iops >= RECOVERED * change.bound_iops;
            let first = bins.windows(BINS_IN_A_ROW).find(|bins| bins.iter().all(is_enough));
            first.map_or(f64::INFINITY, |bins| bins[0].to_seconds - change.at_seconds)
        };
        changes.map(recovery).collect()
    }
}

/// The mean of the bounds up to `end`; `bounds` are those at the start and after each change.
pub(crate) fn mean_bound(changes: &[(f64, Paths)], end: f64, bounds: &[f64]) -> f64 {
    let starts = std::iter::once(0.0).chain(changes.iter().map(|(at, _)| *at));
    let ends = changes.iter().map(|(at, _)| *at).chain([end]);
    starts.zip(ends).zip(bounds).map(|((start, end), bound)| (end - start) * bound).sum::<f64>() / end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recoveries(iops: &[f64], changes: &[(f64, f64)]) -> Vec<f64> {
        let bins = iops.iter().enumerate().map(|(index, &iops)| {
            let from_seconds = index as f64 / 10.0;
            Bin { from_seconds, to_seconds: from_seconds + 0.1, iops }
        });
        let changes = changes.iter().map(|&(at_seconds, bound_iops)| Change { at_seconds, bound_iops });
        Timeline { bins: bins.collect(), changes: changes.collect() }.recoveries()
    }

    #[test]
    fn recovery_takes_two_bins_in_a_row() {
        let iops = [100.0, 100.0, 100.0, 10.0, 95.0, 20.0, 90.0, 91.0, 100.0];
        let found = recoveries(&iops, &[(0.0, 100.0), (0.25, 100.0)]);
        assert!(matches!(found[..], [seconds] if (seconds - 0.45).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn a_change_without_recovery_before_the_next_is_infinite() {
        let iops = [100.0, 100.0, 10.0, 10.0, 50.0, 50.0, 50.0];
        let found = recoveries(&iops, &[(0.0, 100.0), (0.2, 100.0), (0.4, 50.0)]);
        assert!(matches!(found[..], [f64::INFINITY, seconds] if (seconds - 0.1).abs() < 1e-9), "{found:?}");
        assert!(recoveries(&iops, &[(0.0, 100.0)]).is_empty());
    }

    #[test]
    fn the_bound_of_a_series_is_weighted_by_time() {
        let changes = [(1.0, vec![]), (3.0, vec![])];
        assert!((mean_bound(&changes, 4.0, &[100.0, 200.0, 400.0]) - 225.0).abs() < 1e-9);
    }
}
