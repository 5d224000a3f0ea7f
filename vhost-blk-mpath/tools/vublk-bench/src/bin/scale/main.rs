//! `scale`: how the daemon's cost grows with disks, virtqueues, paths and requests.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bench;
mod sweeps;

use bench::{IDLE, ScaleBench, WARMUP, allow_open_files};
use clap::{Parser, ValueEnum};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use sweeps::{OWN, OWN_ONE, SHARED, SHARED_ONE, Sweep};
use vublk_bench::harness::{
    Case, Cell, Chart, Column, EXIT_STATUS, Failure, Layout, Limit, Machine, Panel, PlannedRow, Publication, Results,
    Row, Show, Table, Target, Writing, measure, publish, run_program,
};
use vublk_bench::stack::Programs;
use vublk_bench::units::parse_duration;

/// Measures what the daemon costs with many disks, virtqueues, paths and requests, and rewrites the published results:
/// DOCS/results/scale.json, scale.svg and the section of DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    #[command(flatten)]
    programs: Programs,

    /// What to measure; the section then has nothing else
    #[arg(
        long,
        value_name = "SWEEPS",
        value_enum,
        value_delimiter = ',',
        default_value = "disks,virtqueues,paths,requests,idle"
    )]
    only: Vec<Sweep>,

    /// Length of each measurement
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,

    #[command(flatten)]
    writing: Writing,
}

const PUBLICATION: Publication = Publication {
    name: "scale",
    command: "make bench-scale",
    document: "benchmarks.md",
    tables: |results| {
        let loaded = SWEEPS.iter().map(|(sweep, caption, first)| {
            Table::new(caption, results.table(&sweep.name()), Layout::AllRows(*first), &LOADED)
        });
        let busy = results.table(&Sweep::Idle.name());
        let mut held = busy.clone();
        for row in &mut held {
            row.cells.retain(|cell| cell.get("idle_percent").is_some());
        }
        let idle = [
            ("#### One busy disk among idle ones", busy, &BUSY[..]),
            ("#### What these daemons hold", held, &HELD[..]),
        ];
        let layout = Layout::AllRows(["disk", "paths and requests"]);
        loaded.chain(idle.map(|(caption, rows, columns)| Table::new(caption, rows, layout, columns))).collect()
    },
    targets,
    chart: |results| {
        let panel = |(sweep, caption, _): &(Sweep, &str, _), (what, figure): (&str, &str)| {
            let groups =
                results.table(&sweep.name()).into_iter().map(|row| (row.name.clone(), Panel::bars(&row, figure)));
            let title = format!("{}: {what}", caption.trim_start_matches("#### "));
            Panel { title, groups: groups.collect(), ..Panel::default() }
        };
        let figures = [("daemon CPU µs", "cpu_daemon_us"), ("IOPS", "iops")];
        let panels = SWEEPS.iter().flat_map(|sweep| figures.map(|figure| panel(sweep, figure)));
        Chart { columns: 2, panels: panels.filter(|panel| !panel.groups.is_empty()).collect(), limit: "" }
    },
    picture: "CPU time per request and IOPS by disks, virtqueues, paths and requests in flight",
};

/// The sweeps with load on all disks: caption and first heads of the tables.
const SWEEPS: [(Sweep, &str, [&str; 2]); 4] = [
    (Sweep::Disks, "#### Busy disks", ["disks", "paths and requests"]),
    (Sweep::Virtqueues, "#### Virtqueues", ["virtqueues", "I/O threads"]),
    (Sweep::Paths, "#### Paths", ["paths", "of"]),
    (Sweep::Requests, "#### Requests in flight", ["requests", "of"]),
];

const LOADED: [Column; 7] = [
    ("CPU µs", Show::Spread("cpu_daemon_us", 2)),
    ("IOPS", Show::Spread("iops", 0)),
    ("p50 µs", Show::Median("p50_us", 0)),
    ("p99 µs", Show::Median("p99_us", 0)),
    ("RSS MiB", Show::Median("rss_mib", 1)),
    ("threads", Show::Median("threads", 0)),
    ("open files", Show::Median("open_files", 0)),
];

const BUSY: [Column; 5] = [
    ("CPU µs", Show::Spread("cpu_daemon_us", 2)),
    ("of that alone", Show::Percent(0, |results, row, cell| Some(to_alone(results, row, &cell.contender)? * 100.0))),
    ("IOPS", Show::Spread("iops", 0)),
    ("p50 µs", Show::Median("p50_us", 0)),
    ("p99 µs", Show::Median("p99_us", 0)),
];

const HELD: [Column; 6] = [
    ("start ms", Show::Spread("start_ms", 0)),
    ("RSS MiB", Show::Median("rss_mib", 1)),
    ("PSS MiB", Show::Median("pss_mib", 1)),
    ("threads", Show::Median("threads", 0)),
    ("open files", Show::Median("open_files", 0)),
    ("idle CPU", Show::Percent(2, |_, _, cell: &Cell| cell.median("idle_percent"))),
];

/// The CPU time per request of a busy disk among idle disks, as a multiple of that of a disk alone.
fn to_alone(results: &Results, row: &Row, contender: &str) -> Option<f64> {
    let alone = results.row(&row.table, &Sweep::Idle.row_name(1))?;
    Some(row.median(contender, "cpu_daemon_us")? / alone.median(contender, "cpu_daemon_us")?)
}

fn targets(results: &Results) -> Vec<Target> {
    let judged = |description: &str, disks, unit, limit, measured: fn(&Results, &Row, &str) -> Option<f64>| {
        let row = results.row(&Sweep::Idle.name(), &Sweep::Idle.row_name(disks));
        let case = |contender| {
            row.and_then(|row| {
                Some(Case::new(&row.name, contender, measured(results, row, contender)?, Limit::AtMost(limit), unit))
            })
        };
        Target::new(description, [OWN, SHARED, OWN_ONE, SHARED_ONE].into_iter().filter_map(case))
    };
    vec![
        judged("a busy disk among 63 idle ones takes ≤ 1.05 × the CPU time of one alone", 64, "times", 1.05, to_alone),
        judged("a busy disk among 255 idle ones takes ≤ 1.1 × the CPU time of one alone", 256, "times", 1.1, to_alone),
        judged("64 idle disks take ≤ 0.3 % of a processor", 64, "%", 0.3, |_, row, contender| {
            row.median(contender, "idle_percent")
        }),
    ]
}

fn main() -> ExitCode {
    run_program("scale", |line: &CommandLine, interrupted| {
        publish(vec![(PUBLICATION, Box::new(|machine| scale(line, machine, interrupted)))], &line.writing, None)
    })
}

fn scale(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let rounds = line.writing.rounds();
    let sweeps = Sweep::value_variants().iter().filter(|sweep| line.only.contains(sweep));
    let mut rows: Vec<PlannedRow<_, _>> = sweeps.flat_map(|sweep| sweep.rows(rounds)).collect();
    let open_files = rows.iter().flat_map(|row| &row.contenders).map(|contender| contender.setup.open_files());
    allow_open_files(open_files.max().unwrap_or_default())?;
    let settings = [
        ("rounds", rounds.into()),
        ("seconds", line.time.as_secs_f64().into()),
        ("warmup_seconds", WARMUP.as_secs_f64().into()),
        ("idle_seconds", IDLE.as_secs_f64().into()),
    ];
    let mut results = Results::new(machine, &settings);
    let mut bench = ScaleBench { programs: &line.programs, time: line.time, interrupted, commands: Vec::new() };
    measure(
        &mut rows,
        &mut bench,
        &["cpu_daemon_us", "iops", "rss_mib", "threads", "open_files", "start_ms", "idle_percent"],
    )?;
    results.commands = bench.commands;
    results.rows = rows.into_iter().map(|planned| planned.row).collect();
    Ok(results)
}
