//! All samples with their medians and spread: the content of `burst.json`.

use crate::bursts::{PAUSE_LEAST, PAUSE_MOST};
use crate::counted::Sample;
use crate::plan::{Plan, RowSpec, Table};
use burst_sim::scenario::{DEPTH, SERVICE, SLOTS, against};
use burst_sim::{Measured, quantile_ms};
use mpath_core::SchedulerKind;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use vublk_bench::publish::{Machine, Spread, Target};

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// The window of the path.
    pub(crate) slots: usize,
    /// What the target holds each answer back, in the mean.
    pub(crate) delay_ms: f64,
    /// How far that varies either way.
    pub(crate) jitter_ms: f64,
    /// Of each busy flow.
    pub(crate) depth: u32,
    /// Least and most.
    pub(crate) pause_ms: [f64; 2],
    pub(crate) rounds: u16,
    /// `--seconds`
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    /// The command line of each process.
    pub(crate) commands: BTreeMap<&'static str, String>,
    pub(crate) schedulers: Vec<String>,
    pub(crate) targets: Vec<Target>,
    /// The flow alone, by N.
    pub(crate) floors: Vec<Floor>,
    pub(crate) rows: Vec<Row>,
}

/// What bursts of so many take without any other flow.
#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    pub(crate) count: u32,
    pub(crate) cell: Cell,
}

/// A row under every scheduler.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    #[serde(skip)]
    pub(crate) spec: RowSpec,
    pub(crate) count: u32,
    pub(crate) busy: usize,
    /// In the order of [`Results::schedulers`].
    pub(crate) cells: Vec<Cell>,
}

/// A row under a scheduler.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cell {
    pub(crate) scheduler: String,
    /// Bursts of all rounds.
    pub(crate) bursts: usize,
    /// Of each round.
    pub(crate) p50_ms: Spread,
    /// Of the bursts of all rounds together: one round has too few of them.
    pub(crate) p99_ms: f64,
    pub(crate) iops: Spread,
    pub(crate) busy_iops: Spread,
    /// The same core in virtual time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) virtual_time: Option<Quantiles>,
    pub(crate) samples: Vec<Sample>,
}

/// Of the time of a burst.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Results {
    /// Without samples.
    pub(crate) fn new(machine: Machine, plan: &Plan, commands: BTreeMap<&'static str, String>) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let cell = |scheduler: &SchedulerKind| Cell { scheduler: scheduler.to_string(), ..Cell::default() };
        let row = |spec: RowSpec| Row {
            spec,
            count: spec.count,
            busy: spec.busy,
            cells: plan.schedulers.iter().map(cell).collect(),
        };
        let floor = |count| Floor { count, cell: cell(&SchedulerKind::Fifo) };
        Self {
            machine,
            slots: SLOTS,
            delay_ms: ms(SERVICE),
            jitter_ms: ms(plan.jitter),
            depth: DEPTH,
            pause_ms: [ms(PAUSE_LEAST), ms(PAUSE_MOST)],
            rounds: plan.rounds,
            seconds: plan.seconds.as_secs_f64(),
            seed: plan.seed,
            commands,
            schedulers: plan.schedulers.iter().map(ToString::to_string).collect(),
            targets: Vec::new(),
            floors: plan.alone().counts.into_iter().map(floor).collect(),
            rows: plan.rows().into_iter().map(row).collect(),
        }
    }

    /// Beside each cell what the model makes of it.
    pub(crate) fn add_virtual_time(&mut self, plan: &Plan) {
        let model = |scheduler: SchedulerKind, row: RowSpec| {
            Some(Quantiles::of(&against(scheduler.into(), row.count, row.busy, plan.seed)))
        };
        for floor in &mut self.floors {
            floor.cell.virtual_time = model(SchedulerKind::Fifo, RowSpec { busy: 0, count: floor.count });
        }
        for row in &mut self.rows {
            for (cell, scheduler) in row.cells.iter_mut().zip(&plan.schedulers) {
                cell.virtual_time = model(*scheduler, row.spec);
            }
        }
    }

    /// Adds a round of a row under a scheduler; without busy flows of a floor.
    pub(crate) fn add(&mut self, row: RowSpec, scheduler: &str, sample: Sample) {
        let floors = self.floors.iter_mut().filter(|floor| row == RowSpec { busy: 0, count: floor.count });
        let rows = self.rows.iter_mut().filter(|measured| measured.spec == row).flat_map(|row| &mut row.cells);
        let mut cells = floors.map(|floor| &mut floor.cell).chain(rows);
        if let Some(cell) = cells.find(|cell| cell.scheduler == scheduler) {
            cell.add(sample);
        }
    }

    /// What one request takes alone, and so occupies a slot; zero if that was not measured.
    pub(crate) fn service_ms(&self) -> f64 {
        self.floor(1).map_or(0.0, |floor| floor.p50_ms.median)
    }

    /// The flow alone.
    pub(crate) fn floor(&self, count: u32) -> Option<&Cell> {
        self.floors.iter().find(|floor| floor.count == count).map(|floor| &floor.cell)
    }

    /// The rows of a table that were measured: all or none.
    pub(crate) fn table(&self, table: Table) -> Vec<&Row> {
        let rows = table.rows();
        let found: Vec<&Row> = self.rows.iter().filter(|row| rows.contains(&row.spec)).collect();
        if found.len() == rows.len() { found } else { Vec::new() }
    }
}

impl Row {
    /// A cell that was measured.
    pub(crate) fn cell(&self, scheduler: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.scheduler == scheduler && !cell.samples.is_empty())
    }
}

impl Cell {
    /// Adds a round.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
        let spread = |of: fn(&Sample) -> f64| Spread::of(self.samples.iter().map(of));
        (self.iops, self.busy_iops) = (spread(|sample| sample.iops), spread(|sample| sample.busy_iops));
        self.p50_ms = spread(Sample::p50_ms);
        let all = self.samples.iter().flat_map(|sample| sample.bursts_ms.iter().copied());
        self.p99_ms = quantile(all, 0.99);
        self.bursts = self.samples.iter().map(|sample| sample.bursts_ms.len()).sum();
    }
}

impl Sample {
    pub(crate) fn p50_ms(&self) -> f64 {
        quantile(self.bursts_ms.iter().copied(), 0.5)
    }
}

/// As the simulator takes it.
pub(crate) fn quantile(ms: impl Iterator<Item = f64>, quantile: f64) -> f64 {
    quantile_ms(ms.map(|ms| Duration::from_secs_f64(ms / 1e3)), quantile)
}

impl Quantiles {
    fn of(measured: &Measured) -> Self {
        Self { p50_ms: measured.burst_ms([0], 0.5), p99_ms: measured.burst_ms([0], 0.99) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::tests::plan;
    use std::path::Path;

    pub(crate) fn sample(bursts_ms: &[f64], iops: f64) -> Sample {
        Sample { bursts_ms: bursts_ms.into(), iops, busy_iops: iops * 0.75 }
    }

    /// Both tables, three rounds of these bursts everywhere, and of half as long ones without busy flows.
    pub(crate) fn results(bursts_ms: &[f64]) -> Results {
        let commands = BTreeMap::from([("daemon", "vhost-blk-mpath --api $DIR/api.sock".to_owned())]);
        let mut results = Results::new(Machine::look(None::<&Path>), &plan(&Table::ALL), commands);
        for iops in [1290.0, 1300.0, 1280.0] {
            let half: Vec<f64> = bursts_ms.iter().map(|ms| ms / 2.0).collect();
            results.floors.iter_mut().for_each(|floor| floor.cell.add(sample(&half, iops)));
            let cells = results.rows.iter_mut().flat_map(|row| &mut row.cells);
            cells.for_each(|cell| cell.add(sample(bursts_ms, iops)));
        }
        results
    }

    #[test]
    fn medians_of_rounds_and_the_tail_of_all_bursts() {
        let mut cell = Cell::default();
        let long: Vec<f64> = (0..100).map(f64::from).collect();
        for (bursts, iops) in [(&[30.0, 40.0, 20.0][..], 1000.0), (&long, 1100.0), (&[500.0], 1200.0)] {
            cell.add(sample(bursts, iops));
        }
        assert_eq!((cell.p50_ms, cell.bursts), (Spread { median: 50.0, min: 30.0, max: 500.0 }, 104));
        assert_eq!((cell.iops.median, cell.busy_iops.median), (1100.0, 825.0));
        // Of 104 the second largest: 500, 99, …
        assert!((cell.p99_ms - 99.0).abs() < 1e-9, "{}", cell.p99_ms);
    }

    #[test]
    fn a_table_has_all_of_its_rows_or_none() {
        let results = results(&[30.0]);
        assert_eq!(results.table(Table::K).iter().map(|row| row.busy).collect::<Vec<_>>(), [4, 8, 16, 32, 64]);
        let counts = results.table(Table::N).iter().map(|row| row.count).collect::<Vec<_>>();
        assert_eq!(counts, [1, 8, 32, 64, 96, 128]);
        let one = Results::new(Machine::look(None::<&Path>), &plan(&[Table::K]), BTreeMap::new());
        assert!(one.table(Table::N).is_empty() && one.table(Table::K).len() == 5);
        assert!(one.table(Table::K)[0].cell("fifo").is_none(), "nothing was measured");
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let json = serde_json::to_value(results(&[30.0, 34.0])).unwrap();
        assert_eq!((&json["slots"], &json["delay_ms"], &json["pause_ms"][1]), (&13.into(), &10.0.into(), &55.0.into()));
        let row = &json["rows"][0];
        assert_eq!((&row["busy"], &row["count"]), (&4.into(), &32.into()));
        let cell = &row["cells"][2];
        assert_eq!((&cell["scheduler"], &cell["bursts"]), (&"burst-credit-drr".into(), &6.into()));
        assert_eq!(cell["samples"][2]["bursts_ms"][1], 34.0);
        assert_eq!((&json["floors"][5]["count"], &json["floors"][5]["cell"]["p99_ms"]), (&128.into(), &17.0.into()));
    }
}
