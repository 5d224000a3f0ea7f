//! Rows under every scheduler, with what the rounds came to.

use crate::counted::Sample;
use crate::plan;
use crate::row::{Flows, RowSpec};
use burst_sim::quantile_ms;
use burst_sim::scenario::{measure, uniform};
use mpath_core::SchedulerKind;
use serde::Serialize;
use std::time::Duration;
use vublk_bench::publish::Spread;

/// A single request, which tells what a service takes.
const SINGLE: Flows = Flows { flows: 1, count: 1 };

/// Rows, and what their interactive flows take without any other flow.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cells {
    pub(crate) floors: Vec<Row>,
    pub(crate) rows: Vec<Row>,
}

/// A row under every scheduler.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) spec: RowSpec,
    pub(crate) cells: Vec<Cell>,
}

/// A row under a scheduler.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cell {
    pub(crate) scheduler: &'static str,
    /// Bursts of all interactive flows in all rounds that count.
    pub(crate) bursts: usize,
    /// Those that do not, as the machine stood still meanwhile.
    pub(crate) set_aside: usize,
    /// Whether that were too many in some round, and again when it was repeated.
    pub(crate) unreliable: bool,
    /// Of each round.
    pub(crate) p50_ms: Spread,
    pub(crate) mean_ms: Spread,
    /// Of the bursts of all rounds together: one round has too few of them.
    pub(crate) p99_ms: f64,
    /// With those that were set aside.
    pub(crate) p99_of_all_ms: f64,
    pub(crate) iops: Spread,
    pub(crate) busy_iops: Spread,
    /// The busy flow that has least, and the one that has most.
    pub(crate) busy_flow_iops: [Spread; 2],
    pub(crate) busy_percent: Spread,
    /// Of all rounds together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) busy_worst_second_percent: Option<f64>,
    /// Of all rounds together.
    pub(crate) busy_longest_gap_ms: f64,
    /// Of all of them together.
    pub(crate) attackers_percent: Spread,
    /// The same core in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) virtual_time: Option<VirtualTime>,
    pub(crate) samples: Vec<Sample>,
}

/// What a burst takes in it.
#[derive(Debug, Clone, Copy, Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit")]
pub(crate) struct VirtualTime {
    pub(crate) p50_ms: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Cells {
    /// Without samples.
    pub(crate) fn new(alone: &[plan::Row], rows: &[plan::Row]) -> Self {
        let empty = |rows: &[plan::Row]| rows.iter().map(Row::new).collect();
        Self { floors: empty(alone), rows: empty(rows) }
    }

    /// Beside each cell what the model makes of it.
    pub(crate) fn add_virtual_time(&mut self, seed: u64) {
        for row in self.floors.iter_mut().chain(&mut self.rows) {
            for cell in &mut row.cells {
                cell.virtual_time = cell.scheduler.parse().ok().and_then(|kind| VirtualTime::of(row.spec, kind, seed));
            }
        }
    }

    /// Adds a round of a row under a scheduler.
    pub(crate) fn add(&mut self, spec: RowSpec, scheduler: &str, sample: Sample) {
        let rows = self.floors.iter_mut().chain(&mut self.rows).filter(|row| row.spec == spec);
        if let Some(cell) = rows.flat_map(|row| &mut row.cells).find(|cell| cell.scheduler == scheduler) {
            cell.add(sample);
        }
    }

    pub(crate) fn row(&self, spec: RowSpec) -> Option<&Row> {
        self.rows.iter().find(|row| row.spec == spec)
    }

    /// What one request takes alone, and so occupies a slot; zero if that was not measured.
    pub(crate) fn service_ms(&self) -> f64 {
        self.floor(SINGLE).map_or(0.0, |floor| floor.p50_ms.median)
    }

    /// Interactive flows alone.
    pub(crate) fn floor(&self, interactive: Flows) -> Option<&Cell> {
        let floor = self.floors.iter().find(|floor| floor.spec.interactive == interactive);
        floor.and_then(|floor| floor.cells.first())
    }

    /// p50 of the row's interactive flows alone, if that was measured.
    pub(crate) fn floor_ms(&self, row: &Row) -> Option<f64> {
        self.floor(row.spec.interactive).filter(|floor| floor.bursts > 0).map(|floor| floor.p50_ms.median)
    }
}

impl Row {
    pub(crate) fn new(planned: &plan::Row) -> Self {
        let cell = |scheduler: &SchedulerKind| Cell { scheduler: scheduler.name(), ..Cell::default() };
        Self { spec: planned.spec, cells: planned.schedulers.iter().map(cell).collect() }
    }

    /// A cell with bursts that count.
    pub(crate) fn timed(&self, scheduler: &str) -> Option<&Cell> {
        self.cell(scheduler).filter(|cell| cell.bursts > 0)
    }

    /// A cell that was measured.
    pub(crate) fn cell(&self, scheduler: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.scheduler == scheduler && !cell.samples.is_empty())
    }
}

impl Cell {
    /// Adds a round.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
        let spread = |of: &dyn Fn(&Sample) -> f64| Spread::of(self.samples.iter().map(of));
        (self.iops, self.busy_iops) = (spread(&|sample| sample.iops), spread(&|sample| sample.busy_iops));
        self.busy_flow_iops = [0, 1].map(|which| spread(&|sample| sample.busy_flow_iops[which]));
        self.busy_percent = spread(&|sample| sample.percent(sample.busy_iops));
        self.attackers_percent = spread(&|sample| sample.percent(sample.attackers_iops.iter().sum()));
        let with_bursts = || self.samples.iter().filter(|sample| !sample.bursts_ms.is_empty());
        self.p50_ms = Spread::of(with_bursts().map(Sample::p50_ms));
        self.mean_ms = Spread::of(with_bursts().map(Sample::mean_ms));
        let counted = || self.samples.iter().flat_map(|sample| sample.bursts_ms.iter().copied());
        let aside = || self.samples.iter().flat_map(|sample| sample.set_aside_ms.iter().copied());
        (self.bursts, self.set_aside) = (counted().count(), aside().count());
        self.p99_ms = if self.bursts == 0 { 0.0 } else { quantile(counted(), 0.99) };
        let any = self.bursts + self.set_aside > 0;
        self.p99_of_all_ms = if any { quantile(counted().chain(aside()), 0.99) } else { 0.0 };
        self.unreliable = !self.samples.iter().all(Sample::is_reliable);
        let worst = self.samples.iter().filter_map(|sample| sample.busy_worst_second_percent);
        self.busy_worst_second_percent = worst.min_by(f64::total_cmp);
        self.busy_longest_gap_ms = self.samples.iter().map(|sample| sample.busy_longest_gap_ms).fold(0.0, f64::max);
    }
}

impl Sample {
    pub(crate) fn p50_ms(&self) -> f64 {
        quantile(self.bursts_ms.iter().copied(), 0.5)
    }

    fn mean_ms(&self) -> f64 {
        self.bursts_ms.iter().sum::<f64>() / self.bursts_ms.len() as f64
    }

    /// Of all that was answered.
    fn percent(&self, iops: f64) -> f64 {
        if self.iops > 0.0 { iops / self.iops * 100.0 } else { 0.0 }
    }
}

/// As the simulator takes it.
pub(crate) fn quantile(ms: impl Iterator<Item = f64>, quantile: f64) -> f64 {
    quantile_ms(ms.map(|ms| Duration::from_secs_f64(ms / 1e3)), quantile)
}

impl VirtualTime {
    /// Of the interactive flows, if there are any.
    fn of(spec: RowSpec, scheduler: SchedulerKind, seed: u64) -> Option<Self> {
        let flows = Some(spec.interactive.flows).filter(|flows| *flows > 0)?;
        let measured = measure(&uniform(scheduler.into(), spec.load(), seed));
        let [p50_ms, p99_ms] = [0.5, 0.99].map(|quantile| measured.burst_ms(0..flows, quantile));
        Some(Self { p50_ms, mean_ms: measured.mean_burst_ms(0..flows), p99_ms })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use crate::row::Table;

    /// Three quarters of the service are the busy flows', a tenth each of two attackers.
    pub(crate) fn sample(bursts_ms: &[f64], iops: f64) -> Sample {
        Sample {
            bursts_ms: bursts_ms.into(),
            iops,
            set_aside_ms: Vec::new(),
            stalls_ms: Vec::new(),
            repeated: false,
            busy_iops: iops * 0.75,
            busy_flow_iops: [iops / 40.0, iops / 10.0],
            busy_worst_second_percent: Some(iops / 20.0),
            busy_longest_gap_ms: iops / 10.0,
            attackers_iops: vec![iops * 0.12, iops * 0.08],
        }
    }

    #[test]
    fn medians_of_rounds_and_the_tail_of_all_bursts() {
        let mut cell = Cell::default();
        let long: Vec<f64> = (0..100).map(f64::from).collect();
        for (bursts, iops) in [(&[30.0, 40.0, 20.0][..], 1000.0), (&long, 1100.0), (&[500.0], 1200.0)] {
            cell.add(sample(bursts, iops));
        }
        assert_eq!((cell.p50_ms, cell.bursts), (Spread { median: 50.0, min: 30.0, max: 500.0 }, 104));
        assert_eq!((cell.iops.median, cell.busy_iops.median, cell.busy_percent.median), (1100.0, 825.0, 75.0));
        assert_eq!(cell.mean_ms, Spread { median: 49.5, min: 30.0, max: 500.0 });
        // Of 104 the second largest: 500, 99, …
        assert!((cell.p99_ms - 99.0).abs() < 1e-9, "{}", cell.p99_ms);
    }

    #[test]
    fn what_was_set_aside_is_counted_and_counts_nowhere_else() {
        let mut cell = Cell::default();
        let with = |bursts: &[f64], aside: &[f64]| Sample { set_aside_ms: aside.into(), ..sample(bursts, 1000.0) };
        cell.add(with(&[30.0; 19], &[31.0, 250.0]));
        assert_eq!((cell.bursts, cell.set_aside, cell.unreliable), (19, 2, false));
        assert_eq!((cell.p99_ms, cell.p99_of_all_ms, cell.p50_ms.max), (30.0, 250.0, 30.0));
        // A round of which nothing is left has no p50.
        cell.add(with(&[], &[300.0]));
        assert_eq!((cell.bursts, cell.set_aside, cell.unreliable), (19, 3, true));
        assert_eq!(cell.p50_ms, Spread { median: 30.0, min: 30.0, max: 30.0 });
    }

    #[test]
    fn shares_are_medians_and_the_worst_is_that_of_any_round() {
        let mut cell = Cell::default();
        let none = Sample { busy_worst_second_percent: None, ..sample(&[], 900.0) };
        for sample in [sample(&[], 1000.0), none, sample(&[], 1200.0)] {
            cell.add(sample);
        }
        assert!((cell.attackers_percent.median - 20.0).abs() < 1e-9);
        assert_eq!((cell.busy_worst_second_percent, cell.busy_longest_gap_ms), (Some(50.0), 120.0));
        let [least, most] = cell.busy_flow_iops;
        assert_eq!((least.median, most.median), (25.0, 100.0));
        // Attackers alone have no bursts that count.
        assert_eq!((cell.bursts, cell.p50_ms, cell.p99_ms), (0, Spread::default(), 0.0));
        cell.add(Sample::default());
        assert!((cell.busy_percent.min).abs() < 1e-9, "nothing of nothing is no number");
    }

    #[test]
    fn a_sample_goes_to_its_row_or_floor() {
        let plan = plan(&[Table::M]);
        let mut cells = Cells::new(&plan.alone(), &plan.rows());
        let four = plan.rows()[2].spec;
        cells.add(four, "burst-credit", sample(&[60.0], 1.0));
        cells.add(four.alone(), "fifo", sample(&[50.0], 1.0));
        cells.add(RowSpec::one(1, 0), "fifo", sample(&[10.0], 1.0));
        let row = cells.row(four).unwrap();
        assert!(row.cell("fifo").is_none() && row.cell("burst-credit").is_some());
        assert!(row.timed("fifo").is_none() && row.timed("burst-credit").is_some());
        assert_eq!((cells.floor_ms(row), cells.service_ms()), (Some(50.0), 10.0));
        assert_eq!(cells.floor_ms(cells.row(plan.rows()[1].spec).unwrap()), None, "not measured");
        cells.add(four, "fifo", Sample { set_aside_ms: vec![99.0], ..sample(&[], 1.0) });
        let row = cells.row(four).unwrap();
        assert!(row.cell("fifo").is_some() && row.timed("fifo").is_none(), "all of it set aside");
    }

    #[test]
    fn virtual_time_has_the_same_flows() {
        let victim = Table::A.rows()[1];
        let of = |spec| VirtualTime::of(spec, SchedulerKind::BurstCredit, 1);
        let beside = of(victim).unwrap();
        assert!(beside.p50_ms > 10.0 && beside.p99_ms < 20.0, "{beside:?}");
        assert!(of(Table::A.rows()[0]).is_none(), "no interactive flow");
    }
}
