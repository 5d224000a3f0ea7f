//! What the table is to show, and whether it does.

use super::results::{Cell, Results};
use crate::targets::{FIFO, OURS, SERVICES};
use vublk_bench::publish::{Case, Limit, Target};

/// How many times better than `fifo`.
const OVER_FIFO: f64 = 3.0;
/// What the bulk guest keeps, in percent.
const KEEPS: f64 = 25.0;

/// All of them.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let ours: Vec<&Cell> = results.together.iter().filter(|cell| cell.scheduler == OURS).collect();
    vec![
        Target::new(
            "`burst-credit`: p99 of a burst ≥ 3 × better than with `fifo`, where all virtqueues count the same",
            ours.iter().filter_map(|ours| over_fifo(results, ours)).collect(),
        ),
        Target::new(
            "`burst-credit`: p50 and p99 of a burst ≤ those of the guest alone + 1.1 services",
            ours.iter().flat_map(|ours| bounded(results, ours)).collect(),
        ),
        Target::new(
            "`burst-credit`: the bulk guest keeps ≥ 25 % of what it has alone",
            ours.iter().map(|ours| keeps(results, ours)).collect(),
        ),
    ]
}

fn row(name: &str, cell: &Cell) -> String {
    format!("{name}, bulk of weight {}", cell.bulk_weight)
}

fn over_fifo(results: &Results, ours: &Cell) -> Option<Case> {
    let fifo = results.cell(ours.bulk_weight, FIFO).filter(|fifo| results.plan.by_virtqueue(fifo.bulk_weight))?;
    let times = fifo.all_p99_ms / ours.all_p99_ms;
    Some(Case::new(&row("p99", ours), OURS, Some(times), Limit::AtLeast(OVER_FIFO), "times"))
}

fn bounded(results: &Results, ours: &Cell) -> [Case; 2] {
    let beside = SERVICES * results.plan.delay_ms as f64;
    let alone = &results.alone;
    let quantiles = [("p50", ours.p50_ms.median, alone.p50_ms.median), ("p99", ours.all_p99_ms, alone.all_p99_ms)];
    quantiles.map(|(name, ms, floor)| Case::new(&row(name, ours), OURS, Some(ms), Limit::AtMost(floor + beside), "ms"))
}

fn keeps(results: &Results, ours: &Cell) -> Case {
    Case::new(&row("bulk", ours), OURS, Some(results.bulk_percent(ours)), Limit::AtLeast(KEEPS), "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::results::tests::{Times, results, times};

    fn met(of: &[(&str, Times)]) -> Vec<Option<bool>> {
        targets(&results(of)).into_iter().map(|target| target.met).collect()
    }

    /// The guest alone has bursts of 30 ms, the bulk one 1300 IOPS alone.
    #[test]
    fn every_target_can_be_met_and_missed() {
        let fifo = || (FIFO, times(&[200, 230], 1200.0));
        assert_eq!(met(&[fifo(), (OURS, times(&[34, 41], 330.0))]), [Some(true); 3]);
        assert_eq!(met(&[fifo(), (OURS, times(&[34, 77], 330.0))]), [Some(false), Some(false), Some(true)]);
        assert_eq!(met(&[fifo(), (OURS, times(&[42, 42], 324.0))]), [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn beside_an_equal_disk_fifo_is_no_measure() {
        let results = results(&[(FIFO, times(&[60], 700.0)), (OURS, times(&[34], 900.0))]);
        let cases = targets(&results).into_iter().map(|target| target.cases.len());
        assert_eq!(cases.collect::<Vec<_>>(), [1, 4, 2]);
        assert_eq!(targets(&results)[0].cases[0].row, "p99, bulk of weight 800");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(met(&[(FIFO, times(&[200], 1200.0))]), [None; 3]);
        assert_eq!(met(&[(OURS, times(&[34], 900.0))]), [None, Some(true), Some(true)]);
    }
}
