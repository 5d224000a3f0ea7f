//! The published tables and the picture of the measurement by sockets.

use crate::rows::{RowSpec, STACKS, Table, stack_name};
use crate::targets::targets;
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{published_by_k, published_by_n};
use vublk_bench::harness::{self, Cell, Chart, Column, Layout, Panel, Publication, Results, Row, Show};

pub(crate) const PUBLICATION: Publication = Publication {
    name: "burst",
    command: "make bench-burst",
    document: "scheduler-results.md",
    tables: |results| {
        let flows = Layout::AllRows(["flows", "scheduler"]);
        let each = Layout::EachRow("scheduler", |row| format!("{}:", row.name));
        let rows = |table| rows(results, table, STACKS[0]);
        let by_k = "One flow with bursts of 32 against K busy flows:";
        let by_n = "One flow with bursts of N against 16 busy flows:";
        let mut tables = vec![
            harness::Table::new(by_k, rows(Table::K), flows, &BY_K),
            harness::Table::new(by_n, rows(Table::N), flows, &BY_N),
            harness::Table::new("Attackers, and a victim in one row.", rows(Table::A), each, &ATTACKS),
            harness::Table::new("Several flows with bursts of 32 at once.", rows(Table::M), each, &MANY),
        ];
        for stack in &STACKS[1..] {
            let rows = self::rows(results, Table::T, *stack);
            tables.push(harness::Table::new(&format!("{}:", stack_name(*stack)), rows, flows, &THREADS));
        }
        tables
    },
    targets,
    chart,
    picture: "p50 of a burst by K, N and m",
};

const P50: Column = ("p50 ms", Show::Spread("p50_ms", 1));
const P99: Column = ("p99 ms", Show::Median("p99_ms", 1));
const BURSTS: Column = ("bursts", Show::Text(bursts));
const BUSY: Column = ("busy", Show::Percent(0, |_, _, cell| cell.median("busy_percent")));
const BUSY_SPREAD: Column = ("busy %", Show::Spread("busy_percent", 1));
const WORST_SECOND: Column = ("worst second", Show::Least("worst_second_percent", 1));
const GAP: Column = ("gap ms", Show::Most("longest_gap_ms", 0));

const BY_K: [Column; 6] =
    [P50, P99, BURSTS, ("published", Show::Text(|_, row, cell| published(Table::K, row, cell))), IOPS, BUSY];
const BY_N: [Column; 6] =
    [P50, P99, BURSTS, ("published", Show::Text(|_, row, cell| published(Table::N, row, cell))), IOPS, BUSY];
const IOPS: Column =
    ("IOPS", Show::Text(|_, _, cell| Some(cell.get("iops").filter(|_| cell.contender != ALONE)?.text(0))));
const ATTACKS: [Column; 7] =
    [("attackers %", Show::Median("attackers_percent", 1)), BUSY_SPREAD, WORST_SECOND, GAP, P50, P99, BURSTS];
const MANY: [Column; 7] = [("mean ms", Show::Median("mean_ms", 1)), P50, P99, BURSTS, BUSY_SPREAD, WORST_SECOND, GAP];
const THREADS: [Column; 5] =
    [P50, P99, ("IOPS", Show::Spread("iops", 0)), BUSY, ("busy flow", Show::Text(least_and_most))];

/// The contender that stands for the floor.
pub(crate) const ALONE: &str = "alone";

/// The rows of a table, each with its floor as the first cell.
fn rows(results: &Results, table: Table, stack: (usize, usize)) -> Vec<Row> {
    let row = |(spec, row): (RowSpec, &Row)| {
        let mut row = row.clone();
        let floor = results.row(&stack_name(stack), &spec.alone().name()).and_then(|floor| floor.cells.first());
        if let Some(floor) = floor.filter(|floor| spec.interactive.flows > 0 && floor.get("p50_ms").is_some()) {
            row.cells.insert(0, Cell { contender: ALONE.to_owned(), ..floor.clone() });
        }
        row
    };
    table.rows(results, stack).into_iter().map(row).collect()
}

/// The number of bursts that count, plus the number of those set aside. `!` if too many were set aside.
fn bursts(_: &Results, _: &Row, cell: &Cell) -> Option<String> {
    let unreliable = if cell.get("unreliable").is_some() { " !" } else { "" };
    Some(format!("{} + {}{unreliable}", cell.median("bursts")?, cell.median("set_aside").unwrap_or(0.0)))
}

/// The figure of the publication, without credits (`fifo`) or with credits (`published`).
fn published(table: Table, row: &Row, cell: &Cell) -> Option<String> {
    let spec = table.specs().into_iter().find(|spec| spec.name() == row.name)?;
    let figures = if table == Table::K { published_by_k(spec.busy) } else { published_by_n(spec.interactive.count) };
    let figure = match (figures, cell.contender.parse()) {
        (Some([without, _]), Ok(SchedulerKind::Fifo)) => without.to_string(),
        (Some([_, with]), Ok(SchedulerKind::Published)) => with.to_string(),
        _ => String::new(),
    };
    Some(figure)
}

/// The IOPS of the busy flow that has least, and of the one that has most.
fn least_and_most(_: &Results, _: &Row, cell: &Cell) -> Option<String> {
    Some(format!("{:.0} / {:.0}", cell.median("busy_least_iops")?, cell.median("busy_most_iops")?))
}

fn chart(results: &Results) -> Chart {
    let panel = |(table, title): (Table, &str)| {
        let groups = table.specs().into_iter().zip(rows(results, table, STACKS[0])).map(|(spec, row)| {
            let label = match table {
                Table::K => format!("K={}", spec.busy),
                Table::M => format!("m={}", spec.interactive.flows),
                _ => format!("N={}", spec.interactive.count),
            };
            (label, Panel::bars(&row, "p50_ms"))
        });
        Panel { title: title.to_owned(), groups: groups.collect(), limit: None, is_logarithmic: true }
    };
    let panels = [
        (Table::K, "Bursts of 32 against K busy flows: p50 in ms, logarithmic"),
        (Table::N, "Bursts of N against 16 busy flows"),
        (Table::M, "m flows with bursts of 32 against 16 busy flows"),
    ];
    let panels = panels.map(panel).into_iter().filter(|panel| !panel.groups.is_empty());
    Chart { columns: 1, panels: panels.collect(), limit: "" }
}
