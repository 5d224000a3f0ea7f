//! What the tables are to show, and whether they do.

mod shares;

use crate::cells::{Cell, Cells, Row};
use crate::results::Results;
use crate::row::{COUNT, RowSpec, Table};
use crate::threads::{Divided, LIMIT_IOPS};
use mpath_core::SchedulerKind;
use vublk_bench::publish::{Case, Limit, Spread, Target};

pub(crate) const FIFO: &str = SchedulerKind::Fifo.name();
const PUBLISHED: &str = SchedulerKind::Published.name();
pub(crate) const OURS: &str = SchedulerKind::BurstCredit.name();

/// Services beside the floor: every slot may just have begun with something else, and what is there for measuring.
pub(crate) const SERVICES: f64 = 1.1;
/// The burst of the published rule.
const CREDIT: u32 = 64;
/// Times the floor, where a burst is longer.
const KNEE: f64 = 2.0;
/// Times, for 32 requests against 32 busy flows.
const OVER_FIFO: f64 = 12.0;
const OVER_FIFO_AT: usize = 32;
/// The spread of the rounds counts as a difference that says nothing, but no more of it than this, in percent.
const SPREAD: f64 = 3.0;
/// How far a limit may be missed on either side, as a ratio.
const LIMIT_HELD: f64 = 0.02;

/// All of them.
pub(crate) fn targets(results: &Results) -> Vec<Target> {
    let by_n = results.table(Table::N);
    let published = results.rows_of(&Table::PUBLISHED);
    let threads = &results.threads;
    let mut targets = vec![
        Target::new(
            "`published`: p50 ≤ floor + 1.1 services for N ≤ 64 (K = 16)",
            by_n.iter().filter(|row| row.count() <= CREDIT).filter_map(|row| results.held(row)).collect(),
        ),
        Target::new(
            "`published`: the knee, p50 > 2 × the floor for N ≥ 96 (K = 16)",
            by_n.iter().filter(|row| row.count() > CREDIT).filter_map(|row| results.knee(row)).collect(),
        ),
        Target::new(
            "`published`: ≥ 12 × better than `fifo` at K = 32 (N = 32)",
            results.cells.row(RowSpec::one(COUNT, OVER_FIFO_AT)).and_then(Row::over_fifo).into_iter().collect(),
        ),
        Target::new(
            "`burst-credit`: p50 and p99 ≤ floor + 1.1 services for every K ≤ 64 (N = 32) and N ≤ 128 (K = 16)",
            published.iter().flat_map(|row| results.bounded(row)).collect(),
        ),
        Target::new(
            "throughput within the measured spread (3 % at most) of `fifo`",
            published.iter().flat_map(|row| row.throughput()).collect(),
        ),
    ];
    targets.extend(shares::targets(results));
    targets.push(Target::new(
        "`burst-credit` in one I/O thread or two: p50 and p99 ≤ floor in as many + 1.1 services (N = 32, K = 16)",
        threads.iter().flat_map(Divided::bounded).collect(),
    ));
    targets.push(Target::new(
        "a disk's limit of 500 IOPS holds within 2 % in one I/O thread or two",
        threads.iter().flat_map(Divided::limit_held).collect(),
    ));
    targets
}

/// How far rounds lie apart, in percent of their median.
fn range(spread: Spread) -> f64 {
    (spread.max - spread.min) / spread.median * 100.0
}

impl Results {
    fn held(&self, row: &Row) -> Option<Case> {
        let cell = row.timed(PUBLISHED)?;
        Some(case(row, cell, "", cell.p50_ms.median, self.cells.limit(row)?, "ms"))
    }

    fn knee(&self, row: &Row) -> Option<Case> {
        let cell = row.timed(PUBLISHED)?;
        let times = cell.p50_ms.median / self.cells.floor_ms(row)?;
        Some(case(row, cell, "", times, Limit::AtLeast(KNEE), "times"))
    }

    fn bounded(&self, row: &Row) -> Vec<Case> {
        let Some((cell, limit)) = row.timed(OURS).zip(self.cells.limit(row)) else { return Vec::new() };
        cell.quantiles().map(|(name, ms)| case(row, cell, name, ms, limit, "ms")).into()
    }
}

impl Cells {
    /// Of what nobody else may delay.
    fn limit(&self, row: &Row) -> Option<Limit> {
        Some(Limit::AtMost(self.floor_ms(row)? + self.grace_ms()))
    }

    fn grace_ms(&self) -> f64 {
        SERVICES * self.service_ms()
    }
}

impl Row {
    /// Requests of a burst.
    fn count(&self) -> u32 {
        self.spec.interactive.count
    }

    fn over_fifo(&self) -> Option<Case> {
        let (fifo, cell) = (self.timed(FIFO)?, self.timed(PUBLISHED)?);
        let times = fifo.p50_ms.median / cell.p50_ms.median;
        Some(case(self, cell, "", times, Limit::AtLeast(OVER_FIFO), "times"))
    }

    fn throughput(&self) -> Vec<Case> {
        let Some(fifo) = self.cell(FIFO) else { return Vec::new() };
        let others = self.cells.iter().filter(|cell| cell.scheduler != FIFO && !cell.samples.is_empty());
        let case = |cell: &Cell| {
            let limit = 100.0 - range(fifo.iops).max(range(cell.iops)).min(SPREAD);
            let measured = cell.iops.median / fifo.iops.median * 100.0;
            case(self, cell, "", measured, Limit::AtLeast(limit), "% of `fifo`")
        };
        others.map(case).collect()
    }
}

impl Divided {
    fn bounded(&self) -> Vec<Case> {
        let row = self.together();
        let cell = row.and_then(|row| Some((row, row.timed(OURS)?, self.cells.limit(row)?)));
        let Some((row, cell, limit)) = cell else { return Vec::new() };
        let name = |quantile| format!("{quantile}, {}, {}", row.spec.name(), self.name());
        cell.quantiles().map(|(quantile, ms)| Case::new(&name(quantile), cell.scheduler, Some(ms), limit, "ms")).into()
    }

    fn limit_held(&self) -> Vec<Case> {
        let (wanted, name) = (f64::from(LIMIT_IOPS), self.name());
        let limits = [Limit::AtMost(wanted * (1.0 + LIMIT_HELD)), Limit::AtLeast(wanted * (1.0 - LIMIT_HELD))];
        let case = |cell: &Cell, limit| Case::new(&name, cell.scheduler, Some(cell.iops.median), limit, "IOPS");
        self.limited().map_or_else(Vec::new, |cell| limits.map(|limit| case(cell, limit)).into())
    }
}

/// A row under a scheduler.
fn case(row: &Row, cell: &Cell, quantile: &str, measured: f64, limit: Limit, unit: &'static str) -> Case {
    let name = row.spec.name();
    let row = if quantile.is_empty() { name } else { format!("{quantile}, {name}") };
    Case::new(&row, cell.scheduler, Some(measured), limit, unit)
}

impl Cell {
    fn quantiles(&self) -> [(&'static str, f64); 2] {
        [("p50", self.p50_ms.median), ("p99", self.p99_ms)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::counted::Sample;
    use crate::results::tests::nothing;
    use crate::threads::tests::threads;

    /// Floors of N + 9 ms, so a service of 10, and cells of what `of` says beside that.
    pub(super) fn measured(tables: &[Table], of: impl Fn(&str, RowSpec) -> f64) -> Results {
        let mut results = nothing(tables);
        for iops in [1290.0, 1300.0] {
            for row in results.cells.floors.iter_mut().chain(&mut results.cells.rows) {
                let (spec, floor) = (row.spec, f64::from(row.spec.interactive.count) + 9.0);
                let beside = |scheduler: &str| if spec.busy == 0 { 0.0 } else { of(scheduler, spec) };
                row.cells.iter_mut().for_each(|cell| cell.add(sample(&[floor + beside(cell.scheduler)], iops)));
            }
        }
        results
    }

    /// As it is to be.
    fn good(scheduler: &str, row: RowSpec) -> f64 {
        match scheduler {
            OURS => 0.1,
            PUBLISHED if row.interactive.count <= CREDIT => 10.0,
            _ => f64::from(row.interactive.count) * row.busy as f64,
        }
    }

    /// Those of the published tables.
    fn met(results: &Results) -> Vec<Option<bool>> {
        targets(results).into_iter().map(|target| target.met).take(5).collect()
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        assert_eq!(
            met(&measured(&Table::PUBLISHED, good)),
            [Some(true); 5],
            "{:#?}",
            targets(&measured(&Table::PUBLISHED, good))
        );
        let slow = |scheduler: &str, _: RowSpec| if scheduler == FIFO { 0.0 } else { 1000.0 };
        let mut spoilt = measured(&Table::PUBLISHED, slow);
        spoilt.cells.rows[0].cells[2].samples.clear();
        spoilt.cells.rows[0].cells[2].add(sample(&[1.0], 1100.0));
        let flat = measured(&Table::PUBLISHED, |_, _| 0.0);
        assert_eq!(met(&spoilt), [Some(false), Some(true), Some(false), Some(false), Some(false)]);
        assert_eq!(met(&flat)[1], Some(false));
    }

    #[test]
    fn limits_are_the_floor_and_services() {
        let cases = targets(&measured(&Table::PUBLISHED, |_, _| 11.1)).swap_remove(3).cases;
        assert_eq!(cases.len(), 20);
        let found = cases.iter().find(|case| case.row == "p99, N=96, K=16").unwrap();
        assert!((found.limit - 116.0).abs() < 1e-9 && !found.met, "{found:?}");
        let cases = targets(&measured(&Table::PUBLISHED, |_, _| 10.9)).swap_remove(3).cases;
        assert!(cases.iter().all(|case| case.met), "{cases:?}");
    }

    #[test]
    fn the_tail_counts_too() {
        let mut results = measured(&Table::PUBLISHED, good);
        let row = results.cells.rows.iter_mut().find(|row| row.spec == RowSpec::one(32, 64)).unwrap();
        let ours = row.cells.iter_mut().find(|cell| cell.scheduler == OURS).unwrap();
        ours.add(sample(&[41.0, 41.0, 41.0, 99.0], 1295.0));
        let target = targets(&results).swap_remove(3);
        let missed: Vec<&str> = target.cases.iter().filter(|case| !case.met).map(|case| &*case.row).collect();
        assert_eq!(missed, ["p99, N=32, K=64"]);
    }

    /// A p99 of nothing would be 0 ms.
    #[test]
    fn what_was_set_aside_as_a_whole_is_not_judged() {
        let mut results = measured(&Table::PUBLISHED, good);
        let row = results.cells.rows.iter_mut().find(|row| row.spec == RowSpec::one(32, 64)).unwrap();
        for cell in &mut row.cells {
            for sample in &mut cell.samples {
                sample.set_aside_ms = std::mem::take(&mut sample.bursts_ms);
            }
            cell.add(Sample::default());
        }
        let counts =
            |results: &Results| targets(results)[..5].iter().map(|target| target.cases.len()).collect::<Vec<_>>();
        assert_eq!(counts(&measured(&Table::PUBLISHED, good)), [4, 2, 1, 20, 20]);
        // Its throughput is.
        assert_eq!(counts(&results), [4, 2, 1, 18, 20]);
    }

    #[test]
    fn a_spread_is_no_difference() {
        let mut results = measured(&Table::PUBLISHED, good);
        let throughput = |results: &Results| targets(results).swap_remove(4);
        // The rounds lie 0.8 % apart.
        for (iops, met) in [(1290.0, true), (1280.0, false)] {
            let cell = &mut results.cells.rows[3].cells[1];
            cell.samples.clear();
            cell.add(sample(&[1.0], iops));
            assert_eq!(throughput(&results).met, Some(met), "{iops}");
        }
        // Rounds that are all over the place excuse 3 %.
        for (iops, met) in [([1000.0, 1520.0], true), ([1000.0, 1500.0], false)] {
            let cell = &mut results.cells.rows[3].cells[1];
            cell.samples.clear();
            for iops in iops {
                cell.add(sample(&[1.0], iops));
            }
            assert_eq!(throughput(&results).met, Some(met), "{iops:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let results = nothing(&Table::ALL);
        assert!(targets(&results).iter().all(|target| target.met.is_none()), "{:#?}", targets(&results));
    }

    #[test]
    fn threads_have_their_own_floor_and_one_limit() {
        let of = |bursts_ms, limited_iops| {
            let results = Results { threads: threads(bursts_ms, limited_iops), ..nothing(&[]) };
            let [bounded, held] = targets(&results).split_off(12).try_into().unwrap();
            [bounded, held]
        };
        let [bounded, held]: [Target; 2] = of(40.9, 495.0);
        assert_eq!((bounded.met, bounded.cases.len(), held.met, held.cases.len()), (Some(true), 4, Some(true), 4));
        let [bounded, held] = of(60.0, 511.0);
        // One thread's floor is 30 ms, that of two is 60.
        let missed: Vec<bool> = bounded.cases.iter().map(|case| !case.met).collect();
        assert_eq!((missed, held.met), (vec![true, true, false, false], Some(false)));
        assert_eq!(of(1.0, 489.0)[1].met, Some(false));
    }
}
