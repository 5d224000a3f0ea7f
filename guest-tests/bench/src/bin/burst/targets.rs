//! What the tables are to show, and whether they do.

use crate::plan::{COUNT, RowSpec, Table};
use crate::results::{Cell, Results, Row};
use vublk_bench::publish::{Case, Limit, Spread, Target};

const FIFO: &str = "fifo";
const PUBLISHED: &str = "burst-credit";
const OURS: &str = "burst-credit-drr";

/// Services beside the floor: every slot may just have begun with something else, and what is there for measuring.
const SERVICES: f64 = 1.1;
/// The credit of the published rule.
const CREDIT: u32 = 64;
/// Times the floor, where there is no credit left.
const KNEE: f64 = 2.0;
/// Times, for 32 requests against 32 busy flows.
const OVER_FIFO: f64 = 12.0;
const OVER_FIFO_AT: RowSpec = RowSpec { busy: 32, count: COUNT };
/// Times the floor, p50 and p99.
const NO_KNEE: [f64; 2] = [1.2, 1.5];
/// The spread of the rounds counts as a difference that says nothing, but no more of it than this, in percent.
const SPREAD: f64 = 3.0;

/// All of them.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let by_n = results.table(Table::N);
    let each = |case: &dyn Fn(&Row) -> Vec<Case>| -> Vec<Case> { results.rows.iter().flat_map(case).collect() };
    vec![
        Target::new(
            "`burst-credit` as published: p50 ≤ floor + 1.1 services for N ≤ 64 (K = 16)",
            by_n.iter().filter(|row| row.count <= CREDIT).filter_map(|row| results.held(row)).collect(),
        ),
        Target::new(
            "`burst-credit` as published: the knee, p50 > 2 × the floor for N ≥ 96 (K = 16)",
            by_n.iter().filter(|row| row.count > CREDIT).filter_map(|row| results.knee(row)).collect(),
        ),
        Target::new(
            "`burst-credit` as published: ≥ 12 × better than `fifo` at K = 32 (N = 32)",
            results.rows.iter().filter(|row| row.spec == OVER_FIFO_AT).filter_map(Row::over_fifo).collect(),
        ),
        Target::new(
            "`burst-credit-drr`: p50 and p99 ≤ floor + 1.1 services for every K ≤ 64 (N = 32) and N ≤ 128 (K = 16)",
            each(&|row| results.bounded(row)),
        ),
        Target::new(
            "`burst-credit-drr`: p50 / p99 ≤ 1.2 × / 1.5 × the floor at N = 1 and N ≥ 64 (K = 16)",
            by_n.iter()
                .filter(|row| row.count == 1 || row.count >= CREDIT)
                .flat_map(|row| results.without_a_knee(row))
                .collect(),
        ),
        Target::new("throughput within the measured spread (3 % at most) of `fifo`", each(&Row::throughput)),
    ]
}

/// How far rounds lie apart, in percent of their median.
fn range(spread: Spread) -> f64 {
    (spread.max - spread.min) / spread.median * 100.0
}

impl Results {
    /// p50 of the flow alone.
    fn floor_ms(&self, row: &Row) -> Option<f64> {
        self.floor(row.count).filter(|floor| !floor.samples.is_empty()).map(|floor| floor.p50_ms.median)
    }

    fn limit(&self, row: &Row) -> Option<Limit> {
        Some(Limit::AtMost(self.floor_ms(row)? + SERVICES * self.service_ms()))
    }

    fn held(&self, row: &Row) -> Option<Case> {
        let cell = row.cell(PUBLISHED)?;
        Some(row.case(cell, "", cell.p50_ms.median, self.limit(row)?, "ms"))
    }

    fn knee(&self, row: &Row) -> Option<Case> {
        let cell = row.cell(PUBLISHED)?;
        let times = cell.p50_ms.median / self.floor_ms(row)?;
        Some(row.case(cell, "", times, Limit::AtLeast(KNEE), "times"))
    }

    fn bounded(&self, row: &Row) -> Vec<Case> {
        let Some((cell, limit)) = row.cell(OURS).zip(self.limit(row)) else { return Vec::new() };
        cell.quantiles().map(|(name, ms)| row.case(cell, name, ms, limit, "ms")).into()
    }

    fn without_a_knee(&self, row: &Row) -> Vec<Case> {
        let Some((cell, floor)) = row.cell(OURS).zip(self.floor_ms(row)) else { return Vec::new() };
        let limits = NO_KNEE.map(Limit::AtMost).into_iter();
        let cases = cell.quantiles().into_iter().zip(limits);
        cases.map(|((name, ms), limit)| row.case(cell, name, ms / floor, limit, "times")).collect()
    }
}

impl Row {
    fn case(&self, cell: &Cell, quantile: &str, measured: f64, limit: Limit, unit: &'static str) -> Case {
        let name = self.spec.name();
        let row = if quantile.is_empty() { name } else { format!("{quantile}, {name}") };
        Case::new(&row, &cell.scheduler, Some(measured), limit, unit)
    }

    fn over_fifo(&self) -> Option<Case> {
        let (fifo, cell) = (self.cell(FIFO)?, self.cell(PUBLISHED)?);
        let times = fifo.p50_ms.median / cell.p50_ms.median;
        Some(self.case(cell, "", times, Limit::AtLeast(OVER_FIFO), "times"))
    }

    fn throughput(&self) -> Vec<Case> {
        let Some(fifo) = self.cell(FIFO) else { return Vec::new() };
        let others = self.cells.iter().filter(|cell| cell.scheduler != FIFO && !cell.samples.is_empty());
        let case = |cell: &Cell| {
            let limit = 100.0 - range(fifo.iops).max(range(cell.iops)).min(SPREAD);
            let measured = cell.iops.median / fifo.iops.median * 100.0;
            self.case(cell, "", measured, Limit::AtLeast(limit), "% of `fifo`")
        };
        others.map(case).collect()
    }
}

impl Cell {
    fn quantiles(&self) -> [(&'static str, f64); 2] {
        [("p50", self.p50_ms.median), ("p99", self.p99_ms)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::results::tests::sample;
    use std::collections::BTreeMap;
    use std::path::Path;
    use vublk_bench::publish::Machine;

    /// Floors of N + 9 ms, so a service of 10, and cells of what `of` says beside that.
    fn measured(of: impl Fn(&str, RowSpec) -> f64) -> Results {
        let mut results = Results::new(Machine::look(None::<&Path>), &plan(&Table::ALL), BTreeMap::new());
        for iops in [1290.0, 1300.0] {
            results.floors.iter_mut().for_each(|floor| floor.cell.add(sample(&[f64::from(floor.count) + 9.0], iops)));
            for row in &mut results.rows {
                let (spec, floor) = (row.spec, f64::from(row.spec.count) + 9.0);
                row.cells.iter_mut().for_each(|cell| cell.add(sample(&[floor + of(&cell.scheduler, spec)], iops)));
            }
        }
        results
    }

    /// As it is to be.
    fn good(scheduler: &str, row: RowSpec) -> f64 {
        match scheduler {
            OURS => 0.1,
            PUBLISHED if row.count <= CREDIT => 10.0,
            _ => f64::from(row.count) * row.busy as f64,
        }
    }

    fn met(results: &Results) -> Vec<Option<bool>> {
        targets(results).into_iter().map(|target| target.met).collect()
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        assert_eq!(met(&measured(good)), [Some(true); 6], "{:#?}", targets(&measured(good)));
        let slow = |scheduler: &str, _: RowSpec| if scheduler == FIFO { 0.0 } else { 1000.0 };
        let mut spoilt = measured(slow);
        spoilt.rows[0].cells[2].samples.clear();
        spoilt.rows[0].cells[2].add(sample(&[1.0], 1100.0));
        let flat = measured(|_, _| 0.0);
        assert_eq!(met(&spoilt), [Some(false), Some(true), Some(false), Some(false), Some(false), Some(false)]);
        assert_eq!(met(&flat)[1], Some(false));
    }

    #[test]
    fn limits_are_the_floor_and_services() {
        let cases = targets(&measured(|_, _| 11.1)).swap_remove(3).cases;
        assert_eq!(cases.len(), 20);
        let found = cases.iter().find(|case| case.row == "p99, N=96, K=16").unwrap();
        assert!((found.limit - 116.0).abs() < 1e-9 && !found.met, "{found:?}");
        let cases = targets(&measured(|_, _| 10.9)).swap_remove(3).cases;
        assert!(cases.iter().all(|case| case.met), "{cases:?}");
    }

    #[test]
    fn the_tail_counts_too() {
        let mut results = measured(good);
        let row = results.rows.iter_mut().find(|row| row.spec == RowSpec { busy: 64, count: 32 }).unwrap();
        let ours = row.cells.iter_mut().find(|cell| cell.scheduler == OURS).unwrap();
        ours.add(sample(&[41.0, 41.0, 41.0, 99.0], 1295.0));
        let target = targets(&results).swap_remove(3);
        let missed: Vec<&str> = target.cases.iter().filter(|case| !case.met).map(|case| &*case.row).collect();
        assert_eq!(missed, ["p99, N=32, K=64"]);
    }

    #[test]
    fn a_spread_is_no_difference() {
        let mut results = measured(good);
        let throughput = |results: &Results| targets(results).pop().unwrap();
        // The rounds lie 0.8 % apart.
        for (iops, met) in [(1290.0, true), (1280.0, false)] {
            let cell = &mut results.rows[3].cells[1];
            cell.samples.clear();
            cell.add(sample(&[1.0], iops));
            assert_eq!(throughput(&results).met, Some(met), "{iops}");
        }
        // Rounds that are all over the place excuse 3 %.
        for (iops, met) in [([1000.0, 1520.0], true), ([1000.0, 1500.0], false)] {
            let cell = &mut results.rows[3].cells[1];
            cell.samples.clear();
            for iops in iops {
                cell.add(sample(&[1.0], iops));
            }
            assert_eq!(throughput(&results).met, Some(met), "{iops:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let results = Results::new(Machine::look(None::<&Path>), &plan(&[Table::K]), BTreeMap::new());
        assert_eq!(met(&results), [None; 6]);
    }
}
