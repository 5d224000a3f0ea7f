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

use bench::PathBench;
use clap::Parser;
use contender::{Contender, Listed, contenders};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tables::{Length, RowSpec, Table};
use vublk_bench::control::Control;
use vublk_bench::harness::{
    Cell, Chart, Column, EXIT_STATUS, Failure, Machine, Panel, PlannedRow, Results, Row, Section, Target, Writing,
    grouped, measure, run_program,
};
use vublk_bench::stack::{MpathStack, Programs, command_lines, directory};
use vublk_bench::units::{about, parse_seconds};

/// Measures every policy of the daemon side by side, in tables, and rewrites the published results: for each table
/// DOCS/results/policies-TABLE.json, .svg, and its section of DOCS/benchmarks.md. Tables that are not measured stay as they are.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// mpathctl [default: in this program's folder]
    #[arg(long, value_name = "PATH", env = "MPATHCTL")]
    mpathctl: Option<PathBuf>,

    /// Tables to measure
    #[arg(long, value_name = "TABLES", value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    only: Vec<Table>,

    /// Policies to measure [default: all that the daemon has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Vec<String>,

    /// Rounds; their median is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured where the tail is judged; a quarter of that where only throughput is. Paths change by it too
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    #[command(flatten)]
    writing: Writing,
}

/// Time of a cell in addition to warm-up and measurement: switching, connecting, draining.
const OVERHEAD: Duration = Duration::from_millis(150);
/// Approximate time of a table before its first cell: starting, connecting, filling the disk, requests without any delay.
const PER_TABLE: Duration = Duration::from_secs(15);
/// The daemon starts with this policy; every cell sets its own.
const FIRST_POLICY: &str = "numa";

fn main() -> ExitCode {
    run_program("policies", policies)
}

/// Measures all tables, then writes them. So an interrupted run writes nothing.
fn policies(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    let tables: Vec<Table> = Table::ALL.into_iter().filter(|table| line.only.contains(table)).collect();
    if line.writing.render {
        return tables.iter().try_for_each(|table| table.publication().render(&line.writing)).map(|()| 0);
    }
    let machine = Machine::look_and_warn(None);
    for table in &tables {
        table.publication().check(&line.writing.docs)?;
    }
    let mut done = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        done.push((table, measure_table(line, &tables[index..], machine.clone(), interrupted)?));
    }
    for (table, results) in &done {
        table.publication().publish(&line.writing, results, &results.samples())?;
    }
    Ok(0)
}

/// Measures the first of `tables`; the others are only counted for the announcement.
fn measure_table(
    line: &CommandLine,
    tables: &[Table],
    machine: Machine,
    interrupted: &AtomicBool,
) -> Result<Results, Failure> {
    let table = tables[0];
    let specs = table.rows();
    let directory = directory("policies-")?;
    let paths = specs[0].paths.len();
    let stack = MpathStack::start(&line.programs, directory.path(), paths as u16, &["--policy", FIRST_POLICY])?;
    let control = Control::new(line.mpathctl.as_ref(), &line.programs, &stack);
    let mut bench = PathBench::new(&stack, &control, line.seconds, interrupted);
    bench.fill()?;
    control.wait_until_live(paths)?;
    let listed = Listed::all(&control)?;
    let chosen = |table| contenders(&listed, &line.policies, table, warmup(line.seconds));
    let contenders = chosen(table)?;
    let times = tables.iter().map(|table| {
        let policies = chosen(*table).map_or(0, |chosen| chosen.len());
        table_time(*table, line.seconds, line.rounds, policies)
    });
    eprintln!(
        "table {}: {} ({} rows × {} policies × {} rounds); {} to the end of the run",
        table.letter(),
        table.title(),
        specs.len(),
        contenders.len(),
        line.rounds,
        about(times.sum())
    );
    let settings = [
        ("rounds", line.rounds.into()),
        ("seconds", line.seconds.as_secs_f64().into()),
        ("warmup_seconds", warmup(line.seconds).as_secs_f64().into()),
        ("changed", contenders.iter().filter_map(Contender::changed).collect::<Vec<_>>().into()),
    ];
    let mut results = Results::new(machine, &settings);
    results.commands = command_lines(&stack.processes(), directory.path());
    let mut rows = Vec::new();
    for spec in specs {
        let mut planned = PlannedRow::new(table.letter(), &spec.name.clone(), spec, contenders.clone(), line.rounds);
        planned.row.facts = bench.facts(&planned.spec)?;
        rows.push(planned);
    }
    measure(&mut rows, &mut bench, &["iops", "mib_s", "cpu_daemon_us"])?;
    results.rows = rows.into_iter().map(|planned| planned.row).collect();
    Ok(results)
}

/// What runs before each cell is measured. A series is measured from its start.
fn warmup(seconds: Duration) -> Duration {
    seconds / 10
}

/// About how long a table takes.
fn table_time(table: Table, seconds: Duration, rounds: u16, policies: usize) -> Duration {
    let cell = |row: &RowSpec| {
        let warmup = if matches!(row.length, Length::Series(_)) { Duration::ZERO } else { warmup(seconds) };
        warmup + row.length.time(seconds) + OVERHEAD
    };
    PER_TABLE + table.rows().iter().map(cell).sum::<Duration>() * u32::from(rounds) * policies as u32
}

/// Throughput of a cell, in percent of the bound.
fn percent_of_bound(row: &Row, cell: &Cell) -> Option<f64> {
    Some(cell.median("mib_s")? / row.fact("bound_mib_s") * 100.0)
}

fn section(results: &Results, targets: &[Target], section: &mut Section) {
    let Some(table) = Table::of(results) else { return };
    section.paragraph(&table.note());
    let ms = |head, figure| Column::value(head, 2, "", move |_, cell| Some(cell.median(figure)? / 1e3));
    let cpu = |_: &Row, cell: &Cell| {
        let times = ["cpu_daemon_us", "cpu_target_us"].into_iter().filter_map(|role| cell.median(role));
        times.map(|time| format!("{time:.1}")).collect::<Vec<_>>().join(" + ")
    };
    let columns = [
        Column::spread("IOPS", "iops", 0),
        Column::value("of bound", 0, " %", percent_of_bound),
        ms("p50 ms", "p50_us"),
        ms("p99.9 ms", "p99.9_us"),
        ms("p99.99 ms", "p99.99_us"),
        Column::new("CPU µs", cpu),
    ];
    let heading = |row: &Row| {
        let [iops, mib_s] = ["bound_iops", "bound_mib_s"].map(|name| grouped(row.fact(name)));
        format!("{}; bound {iops} IOPS, {mib_s} MiB/s:", row.name)
    };
    section.tables("policy", results.rows.iter(), heading, &columns);
    let has_recovered = |row: &&Row| row.cells.iter().any(|cell| cell.get("recovery_1_s").is_some());
    if results.rows.iter().any(|row| has_recovered(&row)) {
        section.paragraph("Seconds from each change to 90 % of the new bound:");
        let columns =
            [Column::spread("1st change", "recovery_1_s", 1), Column::spread("2nd change", "recovery_2_s", 1)];
        section.table(["row", "policy"], results.rows.iter().filter(has_recovered), &columns);
    }
    section.targets(targets);
    let floors = results.rows.iter().map(|row| row.fact("floor_us"));
    let (least, most) = floors.fold((f64::INFINITY, 0.0f64), |(least, most), us| (least.min(us), most.max(us)));
    section.paragraph(&format!(
        "Median (least–most) of {} rounds, policies in turn; `--seconds {}`, {:.2} s of warm-up before each cell. CPU µs: user and system \
         time of daemon + target for each I/O. The front-end runs on the same cores. The part of the bound goes by bytes. A \
         median of fewer than 10,000 requests a cell has the largest latency as p99.99.",
        results.setting("rounds"),
        results.setting("seconds"),
        results.number("warmup_seconds")
    ));
    section.paragraph(&format!(
        "The bound is the most that any policy can reach: max Σ λ with λ·s ≤ C on each path and Σ λ·(D + s/C) ≤ depth. D is the path's \
         delay and what a request takes here without any delay: {least:.0} to {most:.0} µs, measured before the rounds at depth 1. At depth, \
         processors may be the limit before the paths. s is the mean size on every path. So a policy that sends the large \
         requests to a slow path can exceed the bound of mixed sizes."
    ));
    for changed in results.settings.get("changed").and_then(|value| value.as_array()).into_iter().flatten() {
        section.paragraph(&format!(
            "{}, in proportion to the length of the cells. The default fits runs of minutes.",
            changed.as_str().unwrap_or_default()
        ));
    }
    section.machine(results, "", table.title(), table.publication().name);
}

fn chart(results: &Results) -> Chart {
    let contenders: Vec<String> = results.contenders().into_iter().map(str::to_owned).collect();
    let panel = |row: &Row| {
        Panel::new(&format!("{} (IOPS)", row.name), row, "iops", &contenders).with_limit(row.fact("bound_iops"))
    };
    let panels = results.rows.iter().map(panel).collect();
    Chart { contenders: contenders.clone(), columns: 3, panels, limit: "the bound".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Duration = Duration::from_secs(3);

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

    /// Nine policies, and two more to compare with in table a. The manual promises an hour; a busy machine takes longer than planned.
    #[test]
    fn the_default_run_takes_less_than_an_hour() {
        let policies = |table| if table == Table::A { 11 } else { 9 };
        let total: Duration = Table::ALL.iter().map(|table| table_time(*table, SECONDS, 5, policies(*table))).sum();
        assert!((Duration::from_mins(30)..Duration::from_mins(56)).contains(&total), "{total:?}");
        let cells = |rounds, policies| table_time(Table::A, SECONDS, rounds, policies).saturating_sub(PER_TABLE);
        assert_eq!(cells(10, 4), cells(5, 1) * 8);
    }
}
