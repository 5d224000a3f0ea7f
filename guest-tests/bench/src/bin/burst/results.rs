//! All samples with their medians and spread: the content of `burst.json`.

use crate::bursts::{PAUSE_LEAST, PAUSE_MOST};
use crate::cells::{Cell, Cells, Row};
use crate::plan::Plan;
use crate::row::{RowSpec, Table};
use crate::threads::Divided;
use burst_sim::scenario::{DEPTH, SERVICE, SLOTS};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use vublk_bench::publish::{Machine, Target};
use vublk_bench::stalls::Watched;

/// The published file.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    /// When it stood still meanwhile.
    pub(crate) watched: Option<Watched>,
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
    #[serde(flatten)]
    pub(crate) cells: Cells,
    /// One I/O thread beside two.
    pub(crate) threads: Vec<Divided>,
}

impl Results {
    /// Without samples.
    pub(crate) fn new(machine: Machine, plan: &Plan) -> Self {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        Self {
            machine,
            watched: None,
            slots: SLOTS,
            delay_ms: ms(SERVICE),
            jitter_ms: ms(plan.jitter),
            depth: DEPTH,
            pause_ms: [ms(PAUSE_LEAST), ms(PAUSE_MOST)],
            rounds: plan.rounds,
            seconds: plan.seconds.as_secs_f64(),
            seed: plan.seed,
            commands: BTreeMap::new(),
            schedulers: plan.schedulers.iter().map(ToString::to_string).collect(),
            targets: Vec::new(),
            cells: Cells::new(&plan.alone(), &plan.rows()),
            threads: Vec::new(),
        }
    }

    /// What a single request takes alone, in the tables or, if those were not measured, in an I/O thread.
    pub(crate) fn service_ms(&self) -> f64 {
        let threads = self.threads.iter().map(|threads| &threads.cells);
        std::iter::once(&self.cells).chain(threads).map(Cells::service_ms).find(|ms| *ms > 0.0).unwrap_or(0.0)
    }

    /// Of all rows and floors.
    pub(crate) fn all_cells(&self) -> impl Iterator<Item = &Cell> {
        let threads = self.threads.iter().map(|threads| &threads.cells);
        let rows = std::iter::once(&self.cells).chain(threads).flat_map(|cells| cells.floors.iter().chain(&cells.rows));
        rows.flat_map(|row| &row.cells)
    }

    /// The rows of a table that were measured: all or none.
    pub(crate) fn table(&self, table: Table) -> Vec<&Row> {
        let rows = table.rows();
        let found: Vec<&Row> = rows.iter().filter_map(|spec| self.cells.row(*spec)).collect();
        if found.len() == rows.len() { found } else { Vec::new() }
    }

    /// The rows of those of these tables that were measured, each once.
    pub(crate) fn rows_of(&self, tables: &[Table]) -> Vec<&Row> {
        let specs: Vec<RowSpec> = tables.iter().flat_map(|table| self.table(*table)).map(|row| row.spec).collect();
        self.cells.rows.iter().filter(|row| specs.contains(&row.spec)).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::plan::tests::plan;
    use std::path::Path;

    /// These tables without a sample.
    pub(crate) fn nothing(tables: &[Table]) -> Results {
        let mut results = Results::new(Machine::look(None::<&Path>), &plan(tables));
        results.commands = BTreeMap::from([("daemon", "vhost-blk-mpath --api $DIR/api.sock".to_owned())]);
        results
    }

    /// All tables, three rounds of these bursts everywhere, and of half as long ones without busy flows.
    pub(crate) fn results(bursts_ms: &[f64]) -> Results {
        let mut results = nothing(&Table::ALL);
        for iops in [1290.0, 1300.0, 1280.0] {
            let half: Vec<f64> = bursts_ms.iter().map(|ms| ms / 2.0).collect();
            results
                .cells
                .floors
                .iter_mut()
                .flat_map(|row| &mut row.cells)
                .for_each(|cell| cell.add(sample(&half, iops)));
            let cells = results.cells.rows.iter_mut().flat_map(|row| &mut row.cells);
            cells.for_each(|cell| cell.add(sample(bursts_ms, iops)));
        }
        results
    }

    #[test]
    fn a_table_has_all_of_its_rows_or_none() {
        let results = results(&[30.0]);
        assert_eq!(results.table(Table::K).iter().map(|row| row.spec.busy).collect::<Vec<_>>(), [4, 8, 16, 32, 64]);
        let counts = results.table(Table::N).iter().map(|row| row.spec.interactive.count).collect::<Vec<_>>();
        assert_eq!(counts, [1, 8, 32, 64, 96, 128]);
        assert_eq!((results.table(Table::M).len(), results.table(Table::A)[1].spec.attackers.flows), (7, 4));
        assert_eq!(results.rows_of(&Table::PUBLISHED).len(), 10);
        let one = nothing(&[Table::K]);
        assert!(one.table(Table::N).is_empty() && one.table(Table::K).len() == 5);
        assert!(one.rows_of(&Table::SUSTAINED).is_empty(), "one row of m is in k");
        assert!(one.table(Table::K)[0].cell("fifo").is_none(), "nothing was measured");
    }

    #[test]
    fn the_file_has_everything_in_it() {
        let json = serde_json::to_value(results(&[30.0, 34.0])).unwrap();
        assert_eq!((&json["slots"], &json["delay_ms"], &json["pause_ms"][1]), (&13.into(), &10.0.into(), &55.0.into()));
        let row = &json["rows"][0];
        assert_eq!((&row["busy"], &row["interactive"]["count"]), (&4.into(), &32.into()));
        let cell = &row["cells"][2];
        assert_eq!((&cell["scheduler"], &cell["bursts"]), (&"burst-credit".into(), &6.into()));
        assert_eq!(cell["samples"][2]["bursts_ms"][1], 34.0);
        let floors = json["floors"].as_array().unwrap();
        let floor = floors.iter().find(|floor| floor["interactive"]["count"] == 128).unwrap();
        assert_eq!((&floor["busy"], &floor["cells"][0]["p99_ms"]), (&0.into(), &17.0.into()));
    }
}
