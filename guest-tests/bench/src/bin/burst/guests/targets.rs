//! What the table is to show, and whether it does.

use super::results::{Cell, Results};
use vublk_bench::publish::{Case, Limit, Target};

const FIFO: &str = "fifo";
const OURS: &str = "burst-credit-drr";

/// How many times better than `fifo`.
const OVER_FIFO: f64 = 3.0;
/// Services beside the floor: every slot may just have begun with something else, and what is there for measuring.
const SERVICES: f64 = 1.1;
/// What the bulk guest keeps, in percent.
const KEEPS: f64 = 25.0;

/// All of them.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let ours = results.cell(OURS);
    let beside_fifo = ours.zip(results.cell(FIFO));
    vec![
        Target::new(
            "`burst-credit-drr`: p99 of a burst ≥ 3 × better than with `fifo`",
            beside_fifo.map(|(ours, fifo)| over_fifo(ours, fifo)).into_iter().collect(),
        ),
        Target::new(
            "`burst-credit-drr`: p50 and p99 of a burst ≤ those of the guest alone + 1.1 services",
            ours.into_iter().flat_map(|ours| bounded(results, ours)).collect(),
        ),
        Target::new(
            "`burst-credit-drr`: the bulk guest keeps ≥ 25 % of what it has alone",
            ours.into_iter().map(|ours| keeps(results, ours)).collect(),
        ),
    ]
}

fn over_fifo(ours: &Cell, fifo: &Cell) -> Case {
    Case::new("p99", OURS, Some(fifo.all_p99_ms / ours.all_p99_ms), Limit::AtLeast(OVER_FIFO), "times")
}

fn bounded(results: &Results, ours: &Cell) -> [Case; 2] {
    let beside = SERVICES * results.plan.delay_ms as f64;
    let alone = &results.alone;
    let quantiles = [("p50", ours.p50_ms.median, alone.p50_ms.median), ("p99", ours.all_p99_ms, alone.all_p99_ms)];
    quantiles.map(|(name, ms, floor)| Case::new(name, OURS, Some(ms), Limit::AtMost(floor + beside), "ms"))
}

fn keeps(results: &Results, ours: &Cell) -> Case {
    Case::new("bulk", OURS, Some(results.bulk_percent(ours)), Limit::AtLeast(KEEPS), "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guests::results::tests::{Times, results};

    fn met(of: &[(&str, Times)]) -> Vec<Option<bool>> {
        targets(&results(of)).into_iter().map(|target| target.met).collect()
    }

    fn times(bursts_ms: &[u64], bulk_iops: f64) -> Times {
        Times { bursts_ms: bursts_ms.into(), bulk_iops }
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
    fn what_was_not_measured_is_not_judged() {
        assert_eq!(met(&[(FIFO, times(&[200], 1200.0))]), [None; 3]);
        assert_eq!(met(&[(OURS, times(&[34], 900.0))]), [None, Some(true), Some(true)]);
    }
}
