//! Who gets what of the service when several flows send bursts, and what it costs them.

use super::{OURS, SERVICES, WITHOUT_RHO, case};
use crate::cells::{Cell, Row};
use crate::results::Results;
use crate::row::Table;
use std::time::Duration;
use vublk_bench::publish::{Case, Limit, Target};

/// Of attackers together, in percent; 74 and a part for measuring.
const TOGETHER: f64 = 75.0;
/// Times that of as many interactive flows alone.
const MANY: f64 = 1.6;
/// Of any second.
const KEPT_PERCENT: f64 = 25.0;
const GAP_MS: f64 = 180.0;

pub(super) fn targets(results: &Results) -> Vec<Target> {
    let each = |table, case: &dyn Fn(&Row) -> Option<Case>| -> Vec<Case> {
        results.table(table).into_iter().filter_map(case).collect()
    };
    let ours = |row: &Row, of: &dyn Fn(&Cell) -> Option<f64>, limit, unit| {
        let cell = row.cell(OURS)?;
        Some(case(row, cell, "", of(cell)?, limit, unit))
    };
    vec![
        Target::new(
            "`burst-credit-drr`: attackers together have ≤ 75 % of the service (K = 16)",
            each(Table::A, &|row| ours(row, &|cell| Some(cell.attackers_percent.median), Limit::AtMost(TOGETHER), "%")),
        ),
        Target::new(
            "`burst-credit-drr` with `rho=0`: an attacker has ≤ its fair share and one burst (K = 16)",
            each(Table::A, &|row| results.fair(row)),
        ),
        Target::new(
            "`burst-credit-drr`, with `rho=0` too: a flow within its fair share has p99 ≤ floor + 1.1 services under 4 attackers",
            results.table(Table::A).into_iter().flat_map(|row| results.victim(row)).collect(),
        ),
        Target::new(
            "`burst-credit-drr`: m flows of 32 at once have p50 ≤ 1.6 × that of the same alone (K = 16)",
            each(Table::M, &|row| {
                let alone = results.cells.floor_ms(row)?;
                ours(row, &|cell| Some(cell.p50()? / alone), Limit::AtMost(MANY), "times")
            }),
        ),
        Target::new(
            "`burst-credit-drr`: busy flows have ≥ 25 % of any second",
            each(Table::S, &|row| ours(row, &|cell| cell.busy_worst_second_percent, Limit::AtLeast(KEPT_PERCENT), "%")),
        ),
        Target::new(
            "`burst-credit-drr`: no time over 180 ms without an answer to any busy flow",
            each(Table::S, &|row| ours(row, &|cell| Some(cell.busy_longest_gap_ms), Limit::AtMost(GAP_MS), "ms")),
        ),
    ]
}

impl Results {
    /// A flow's part if all had the same, in percent.
    pub(crate) fn fair_percent(row: &Row) -> f64 {
        100.0 / (row.spec.busy + row.spec.attackers.flows) as f64
    }

    fn fair(&self, row: &Row) -> Option<Case> {
        let cell = row.cell(WITHOUT_RHO)?;
        let answers = cell.iops.median * Table::A.time(Duration::from_secs_f64(self.seconds)).as_secs_f64();
        let limit = Self::fair_percent(row) + f64::from(row.spec.attackers.count) / answers * 100.0;
        Some(case(row, cell, "", cell.attacker_percent.median, Limit::AtMost(limit), "%"))
    }

    fn victim(&self, row: &Row) -> Vec<Case> {
        let Some(floor) = self.cells.floor_ms(row) else { return Vec::new() };
        let limit = Limit::AtMost(floor + SERVICES * self.cells.service_ms());
        let cells = [OURS, WITHOUT_RHO].into_iter().filter_map(|scheduler| row.timed(scheduler));
        cells.map(|cell| case(row, cell, "p99", cell.p99_ms, limit, "ms")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::*;
    use crate::counted::Sample;
    use crate::row::RowSpec;

    /// Every cell of these tables once more, changed.
    fn changed(change: impl Fn(RowSpec, Sample) -> Sample) -> Vec<Target> {
        let mut results = measured(&Table::ALL, |_, _| 0.1);
        for row in &mut results.cells.rows {
            let spec = row.spec;
            for cell in &mut row.cells {
                let samples = std::mem::take(&mut cell.samples);
                for sample in samples {
                    cell.add(change(spec, sample));
                }
            }
        }
        targets(&results)
    }

    fn met(targets: &[Target]) -> Vec<Option<bool>> {
        targets.iter().map(|target| target.met).collect()
    }

    fn good(spec: RowSpec, sample: Sample) -> Sample {
        let each = sample.iops * 0.05;
        Sample {
            attackers_iops: vec![each; spec.attackers.flows],
            busy_worst_second_percent: Some(29.0),
            busy_longest_gap_ms: 120.0,
            ..sample
        }
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        let all = changed(good);
        assert_eq!(met(&all), [Some(true); 6], "{all:#?}");
        assert_eq!(all.iter().map(|target| target.cases.len()).collect::<Vec<_>>(), [2, 2, 2, 6, 2, 2]);
        let bad = changed(|spec, sample| Sample {
            bursts_ms: sample.bursts_ms.iter().map(|ms| ms * 4.0).collect(),
            attackers_iops: vec![sample.iops * 0.76 / spec.attackers.flows.max(1) as f64; spec.attackers.flows],
            busy_worst_second_percent: Some(24.0),
            busy_longest_gap_ms: 181.0,
            ..sample
        });
        assert_eq!(met(&bad), [Some(false); 6], "{bad:#?}");
    }

    #[test]
    fn an_attacker_may_have_its_fair_share_and_a_burst() {
        let case = |percent: f64| {
            let most = |spec, sample: Sample| Sample {
                attackers_iops: vec![sample.iops * percent / 100.0],
                ..good(spec, sample)
            };
            changed(most)[1].cases[0].clone()
        };
        // 1 of 17 is 5.88 %, and 64 of 1295 × 2 are 2.47 %.
        assert!((case(5.0).limit - 8.35).abs() < 0.01, "{:?}", case(5.0));
        assert!(case(8.3).met && !case(8.4).met);
    }

    /// Every row for itself.
    #[test]
    fn many_flows_that_take_too_long_are_told() {
        let slow = |spec: RowSpec| if [3, 6].contains(&spec.interactive.flows) { 25.0 } else { 24.0 };
        let all = targets(&measured(&[Table::M], |_, spec| slow(spec)));
        let missed: Vec<_> = all[3].cases.iter().filter(|case| !case.met).map(|case| &*case.row).collect();
        // Alone they take 41 ms in this test.
        assert_eq!(missed, ["3 × N=32, K=16", "6 × N=32, K=16"]);
    }

    #[test]
    fn a_share_of_no_second_is_not_judged() {
        let none = changed(|spec, sample| Sample { busy_worst_second_percent: None, ..good(spec, sample) });
        assert_eq!((none[4].met, none[5].met), (None, Some(true)));
    }
}
