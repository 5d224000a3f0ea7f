//! `policies`: every policy side by side, on paths whose delay and rate are known, compared with the most that is possible.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bench;
mod bound;
mod contender;
mod cpu_load;
mod paths;
mod recovery;
mod tables;
mod targets;

use bench::{PathBench, facts};
use clap::Parser;
use contender::contenders;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tables::Table;
use vublk_bench::harness::{
    self, Cell, Chart, Column, EXIT_STATUS, Failure, Layout, Machine, Panel, Part, PlannedRow, Publication, Results,
    Row, Show, Writing, grouped, measure, parse_seconds, publish, run_program,
};
use vublk_bench::stack::{MpathStack, Programs};

/// Measures every policy of the daemon side by side, in tables, and rewrites the published results: for each table
/// DOCS/results/policies-TABLE.json, .svg, and its section of DOCS/benchmarks.md. Tables that are not measured stay as they are.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// Tables to measure
    #[arg(long, value_name = "TABLES", value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    only: Vec<Table>,

    /// Policies to measure [default: all that the daemon has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,

    /// How long a cell is measured where the tail is judged; a quarter of that where only throughput is. Paths change by it too
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    #[command(flatten)]
    writing: Writing,
}

fn publication(table: Table) -> Publication {
    let [_, name, picture] = table.names();
    Publication {
        name,
        command: "make bench-policies",
        document: "benchmarks.md",
        tables: |results| {
            let name = |row: &Row| format!("{}; {}", row.name, grouped(row.fact("bound_iops")));
            let recovered = |row: &&Row| row.cells.iter().any(|cell| cell.get("recovery_1_s").is_some());
            let recoveries = results.rows.iter().filter(recovered).cloned().collect();
            let caption = "Seconds from each change to 90 % of the new bound:";
            vec![
                harness::Table::new(
                    "",
                    results.rows.clone(),
                    Layout::EachColumn("workload; bound in IOPS", name),
                    &COLUMNS,
                ),
                harness::Table::new(caption, recoveries, Layout::AllRows(["row", "policy"]), &RECOVERIES),
            ]
        },
        targets: targets::targets,
        chart: |results| {
            let panel = |row: &Row| {
                let limit = Some(row.fact("bound_iops"));
                Panel { limit, ..Panel::new(format!("{} (IOPS)", row.name), row, "iops") }
            };
            Chart { columns: 3, panels: results.rows.iter().map(panel).collect(), limit: "the bound" }
        },
        picture,
    }
}

const COLUMNS: [Column; 3] = [
    ("IOPS", Show::Near("iops", 0)),
    ("Part of the bound", Show::Percent(0, |_, row, cell| percent_of_bound(row, cell))),
    ("p99.9 in ms", Show::Millis("p99.9_us")),
];

const RECOVERIES: [Column; 2] =
    [("1st change", Show::Spread("recovery_1_s", 1)), ("2nd change", Show::Spread("recovery_2_s", 1))];

/// Throughput of a cell, in percent of the bound.
fn percent_of_bound(row: &Row, cell: &Cell) -> Option<f64> {
    Some(cell.median("mib_s")? / row.fact("bound_mib_s") * 100.0)
}

fn main() -> ExitCode {
    run_program("policies", |line: &CommandLine, interrupted| {
        let tables = Table::ALL.into_iter().filter(|table| line.only.contains(table));
        let part = |table| -> Part<'_> {
            (publication(table), Box::new(move |machine| policies(line, table, machine, interrupted)))
        };
        publish(tables.map(part).collect(), &line.writing, None)
    })
}

fn policies(line: &CommandLine, table: Table, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let specs = table.rows();
    let stack = MpathStack::start(&line.programs, specs[0].paths.len() as u16, &["--policy", "numa"])?;
    let listed = stack.control.daemon_json::<Vec<_>>(&["policy", "list"])?;
    let contenders = contenders(&listed, &line.policies, table, warmup(line.seconds))?;
    let (rows, policies, rounds) = (specs.len(), contenders.len(), line.writing.rounds());
    eprintln!("table {}: {rows} rows × {policies} policies × {rounds} rounds", table.letter());
    let changed = contenders.iter().filter(|contender| contender.name == "adaptive");
    let changed = changed.map(|contender| format!("`adaptive` ran with `{}`", contender.params.join(" ")));
    let settings = [
        ("rounds", line.writing.rounds().into()),
        ("seconds", line.seconds.as_secs_f64().into()),
        ("warmup_seconds", warmup(line.seconds).as_secs_f64().into()),
        ("changed", changed.collect::<Vec<_>>().into()),
    ];
    let mut results = Results::new(machine, &settings);
    results.commands = stack.stack.command_lines();
    let mut bench = PathBench { stack: &stack, seconds: line.seconds, interrupted, paths: None, floors: Vec::new() };
    bench.fill()?;
    let mut rows = Vec::new();
    for spec in specs {
        let facts = facts(&spec, bench.floor(&spec)?);
        let mut planned = PlannedRow::new(table.letter(), &spec.name.clone(), spec, contenders.clone(), rounds);
        planned.row.facts = facts;
        rows.push(planned);
    }
    measure(&mut rows, &mut bench, &["iops", "mib_s", "cpu_daemon_us"])?;
    results.rows = rows.into_iter().map(|planned| planned.row).collect();
    Ok(results)
}

/// How long the load runs before a cell is measured.
fn warmup(seconds: Duration) -> Duration {
    seconds / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let parse =
            |words: &str| CommandLine::try_parse_from(std::iter::once("policies").chain(words.split_whitespace()));
        assert_eq!(parse("--only d,b,d --seconds 0.2").unwrap().seconds, Duration::from_millis(200));
        for (words, message) in [
            ("--only e", "invalid value 'e' for '--only <TABLES>'"),
            ("--seconds 0", "must be from 0.1 to 600"),
            ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
        ] {
            let error = parse(words).unwrap_err().to_string();
            assert!(error.contains(message), "{words}: {error}");
        }
    }
}
