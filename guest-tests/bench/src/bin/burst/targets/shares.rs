//! Who gets what of the service when several flows send bursts, and what it costs them.

use super::{OURS, case};
use crate::cells::{Cell, Row};
use crate::results::Results;
use crate::row::{Flows, LONGER, Table};
use burst_sim::scenario::{PAUSE, SLOTS};
use vublk_bench::publish::{Case, Limit, Target};

/// Defaults of `burst-credit`: the part of the service that bursts may have, a turn of a flow in requests of 4 KiB, and for how long
/// they may hold busy flows back.
const SHARE: f64 = 0.75;
const TURN: f64 = 8.0;
const GAP_MS: f64 = 150.0;
/// What busy flows keep over all, and of any second, in percent.
const KEPT: [f64; 2] = [25.0, 20.0];
/// Requests that the allowance holds: bursts may have so many more than their share, in all of a cell.
const SAVED_UP: f64 = 64.0;

pub(super) fn targets(results: &Results) -> Vec<Target> {
    let attacks: Vec<&Row> = results.table(Table::A);
    let victims = attacks.iter().filter(|row| row.spec.interactive.flows > 0);
    let many = |of: &dyn Fn(&Cell) -> f64, which: usize| -> Vec<Case> {
        let case = |row: &Row| {
            let cell = row.timed(OURS)?;
            Some(case(row, cell, "", of(cell), Limit::AtMost(results.many_ms(row)?[which]), "ms"))
        };
        results.table(Table::M).into_iter().filter_map(case).collect()
    };
    let busy = |of: &dyn Fn(&Cell) -> Option<f64>, limit, unit| -> Vec<Case> {
        let cells = results.rows_of(&Table::SUSTAINED).into_iter().filter_map(|row| Some((row, row.cell(OURS)?)));
        cells.filter_map(|(row, cell)| Some(case(row, cell, "", of(cell)?, limit, unit))).collect()
    };
    let [all, second] = KEPT;
    let service_ms = results.cells.service_ms();
    // A request a slot of a second.
    let under_way = service_ms / 1e3 * 100.0;
    // In a second all slots answer so many requests.
    let saved_up = SAVED_UP * service_ms / (SLOTS as f64 * 1e3 * LONGER.as_secs_f64()) * 100.0;
    vec![
        Target::new(
            "`burst-credit`: m flows of 32, mean ≤ max(m·N / (share·C) − pause, m·N / C) + 1.1 services (K = 16)",
            many(&|cell| cell.mean_ms.median, 0),
        ),
        Target::new(
            "`burst-credit`: m flows of 32, p99 ≤ that and a turn of each (K = 16)",
            many(&|cell| cell.p99_ms, 1),
        ),
        Target::new(
            "`burst-credit`: busy flows have ≥ 25 % over all, less the 64 requests that the allowance holds",
            busy(&|cell| Some(cell.busy_percent.median), Limit::AtLeast(all - saved_up), "%"),
        ),
        Target::new(
            "`burst-credit`: busy flows have ≥ 20 % of any second, less a request a slot",
            busy(&|cell| cell.busy_worst_second_percent, Limit::AtLeast(second - under_way), "%"),
        ),
        Target::new(
            "`burst-credit`: no time above `gap` and a service without an answer to any busy flow",
            busy(&|cell| Some(cell.busy_longest_gap_ms), Limit::AtMost(GAP_MS + service_ms), "ms"),
        ),
        Target::new(
            "`burst-credit`: attackers together have ≤ `share`, 75 %, and these 64 requests",
            attacks
                .iter()
                .filter_map(|row| {
                    let cell = row.cell(OURS)?;
                    let limit = Limit::AtMost(100.0 * SHARE + saved_up);
                    Some(case(row, cell, "", cell.attackers_percent.median, limit, "%"))
                })
                .collect(),
        ),
        Target::new(
            "`burst-credit`: a flow within a turn and its part has p99 ≤ floor + 1.1 services beside 4 attackers",
            victims
                .filter_map(|row| {
                    let cell = row.timed(OURS)?;
                    Some(case(row, cell, "p99", cell.p99_ms, results.cells.limit(row)?, "ms"))
                })
                .collect(),
        ),
    ]
}

impl Results {
    /// The most that mean and p99 of the bursts of m flows may be. They begin again when they have been answered, so the mean is the
    /// same in whatever order they are served; in their turns each may be the last one.
    pub(crate) fn many_ms(&self, row: &Row) -> Option<[f64; 2]> {
        let Flows { flows, count } = row.spec.interactive;
        let per_second = row.timed(OURS)?.iops.median;
        let (requests, turns) = (flows as f64 * f64::from(count), flows as f64 * TURN);
        let seconds = (requests / (SHARE * per_second) - PAUSE.as_secs_f64()).max(requests / per_second);
        let mean = seconds * 1e3 + self.cells.grace_ms();
        Some([mean, mean + turns / (SHARE * per_second) * 1e3])
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::measured;
    use super::*;
    use crate::counted::Sample;
    use crate::row::RowSpec;
    use mpath_core::{SchedulerKind, SchedulerSpec};

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
        Sample {
            // Less than the floor and 1.1 services: one flow of 32 may take no more.
            bursts_ms: sample.bursts_ms.iter().map(|ms| ms * 0.8).collect(),
            busy_iops: sample.iops * 0.24,
            attackers_iops: vec![sample.iops * 0.76 / spec.attackers.flows as f64; spec.attackers.flows],
            busy_worst_second_percent: Some(19.2),
            busy_longest_gap_ms: 159.0,
            ..sample
        }
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        let all = changed(good);
        assert_eq!(met(&all), [Some(true); 7], "{all:#?}");
        assert_eq!(all.iter().map(|target| target.cases.len()).collect::<Vec<_>>(), [7, 7, 10, 10, 10, 3, 1]);
        let bad = changed(|spec, sample| Sample {
            bursts_ms: sample.bursts_ms.iter().map(|ms| ms * 20.0).collect(),
            busy_iops: sample.iops * 0.236,
            attackers_iops: vec![sample.iops * 0.764 / spec.attackers.flows.max(1) as f64; spec.attackers.flows],
            busy_worst_second_percent: Some(18.9),
            busy_longest_gap_ms: 161.0,
            ..sample
        });
        assert_eq!(met(&bad), [Some(false); 7], "{bad:#?}");
    }

    /// 1295 requests a second, services of 10 ms.
    #[test]
    fn many_flows_have_the_time_that_a_closed_loop_takes() {
        let results = measured(&[Table::M], |_, _| 20.0);
        let bounds = |flows| {
            let row = results.table(Table::M).into_iter().find(|row| row.spec.interactive.flows == flows).unwrap();
            results.many_ms(row).unwrap().map(f64::round)
        };
        // 24.7 and 11 of 32 requests, 8.2 for 8; all others together have three quarters.
        assert_eq!((bounds(1), bounds(2), bounds(16)), ([36.0, 44.0], [60.0, 77.0], [488.0, 620.0]));
        // They take 61 ms in this test.
        let missed = |which: usize| -> Vec<String> {
            let cases = targets(&results)[which].cases.clone();
            cases.into_iter().filter(|case| !case.met).map(|case| case.row).collect()
        };
        assert_eq!(
            (missed(0), missed(1)),
            (vec!["N=32, K=16".into(), "2 × N=32, K=16".into()], vec!["N=32, K=16".into()])
        );
    }

    #[test]
    fn the_defaults_are_those_of_the_scheduler() {
        let ours = SchedulerSpec::from(SchedulerKind::BurstCredit);
        let params: Vec<String> = ours.params().map(|(param, text)| format!("{}={text}", param.name())).collect();
        let burst = TURN * 32.0 * (4096.0 + 16384.0);
        assert_eq!(params.join(" "), format!("burst={burst} share={SHARE} gap={GAP_MS}ms io-cost=16384"));
    }

    #[test]
    fn a_share_of_no_second_is_not_judged() {
        let none = changed(|spec, sample| Sample { busy_worst_second_percent: None, ..good(spec, sample) });
        assert_eq!((none[3].met, none[4].met), (None, Some(true)));
    }
}
