//! A measurement under way: throughput by time, and how long each change takes to be made up for.

use crate::tables::Series;
use serde::Serialize;
use std::time::Duration;

/// Length of a bin, about: it ends when somebody looks.
pub(crate) const BIN: Duration = Duration::from_millis(100);

/// So much of the bound must be reached after a change …
const RECOVERED: f64 = 0.9;
/// … in so many bins in a row.
const BINS_IN_A_ROW: usize = 2;

/// Requests completed in a part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Bin {
    /// Since the start of the run.
    pub(crate) from_seconds: f64,
    pub(crate) to_seconds: f64,
    pub(crate) iops: f64,
}

/// A change that was made.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Change {
    /// When, since the start of the run.
    pub(crate) at_seconds: f64,
    /// The bound from then on.
    pub(crate) bound_iops: f64,
}

/// One run.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Timeline {
    pub(crate) bins: Vec<Bin>,
    /// The first is the start.
    pub(crate) changes: Vec<Change>,
}

impl Timeline {
    /// How long after each change until 90 % of the new bound are reached; `None` if that was not before the next change. The end of the
    /// first bin counts, since only then it is known.
    pub(crate) fn recoveries(&self) -> Vec<Option<f64>> {
        let changes = self.changes.iter().enumerate().skip(1);
        let recovery = |(index, change): (usize, &Change)| {
            let end = self.changes.get(index + 1).map_or(f64::INFINITY, |next| next.at_seconds);
            let after = |bin: &&Bin| bin.from_seconds >= change.at_seconds && bin.to_seconds <= end;
            let bins: Vec<&Bin> = self.bins.iter().filter(after).collect();
            let enough = |bin: &Bin| bin.iops >= RECOVERED * change.bound_iops;
            let first = bins.windows(BINS_IN_A_ROW).find(|bins| bins.iter().all(|bin| enough(bin)))?.first()?;
            Some(first.to_seconds - change.at_seconds)
        };
        changes.map(recovery).collect()
    }
}

/// The bound's mean over a series; `bounds` are the one at the start and the one after each change.
pub(crate) fn mean_bound(series: &Series, bounds: &[f64]) -> f64 {
    let starts = std::iter::once(0.0).chain(series.changes.iter().map(|(at, _)| *at));
    let ends = series.changes.iter().map(|(at, _)| *at).chain(std::iter::once(series.end));
    let sum: f64 = starts.zip(ends).zip(bounds).map(|((start, end), bound)| (end - start) * bound).sum();
    sum / series.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeline(iops: &[f64], changes: &[(f64, f64)]) -> Timeline {
        let bins = iops.iter().enumerate().map(|(index, &iops)| {
            let from_seconds = index as f64 / 10.0;
            Bin { from_seconds, to_seconds: from_seconds + 0.1, iops }
        });
        let changes = changes.iter().map(|&(at_seconds, bound_iops)| Change { at_seconds, bound_iops });
        Timeline { bins: bins.collect(), changes: changes.collect() }
    }

    #[test]
    fn recovery_takes_two_bins_in_a_row() {
        let iops = [100.0, 100.0, 100.0, 10.0, 95.0, 20.0, 90.0, 91.0, 100.0];
        let found = timeline(&iops, &[(0.0, 100.0), (0.25, 100.0)]).recoveries();
        assert!(matches!(found[..], [Some(seconds)] if (seconds - 0.45).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn what_is_not_made_up_for_before_the_next_change_never_is() {
        let iops = [100.0, 100.0, 10.0, 10.0, 50.0, 50.0, 50.0];
        let found = timeline(&iops, &[(0.0, 100.0), (0.2, 100.0), (0.4, 50.0)]).recoveries();
        assert!(matches!(found[..], [None, Some(seconds)] if (seconds - 0.1).abs() < 1e-9), "{found:?}");
        assert!(timeline(&iops, &[(0.0, 100.0)]).recoveries().is_empty());
    }

    #[test]
    fn the_bound_of_a_series_is_weighted_by_time() {
        let series = Series { changes: vec![(1.0, vec![]), (3.0, vec![])], end: 4.0, jumps: true };
        assert!((mean_bound(&series, &[100.0, 200.0, 400.0]) - 225.0).abs() < 1e-9);
    }
}
