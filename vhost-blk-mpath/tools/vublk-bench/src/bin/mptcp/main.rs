//! `mptcp`: TCP multipath, MPTCP and both together over several links, from a front-end to a target, and plain sockets to
//! compare with. `guest-tests/mptcp/measure` makes the links and measures; this program judges and publishes.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod outage;
mod targets;

use clap::{Parser, ValueEnum};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Cell, Chart, Column, EXIT_STATUS, Failure, Layout, Machine, Panel, Publication, Results, Row, Show, Table, Writing,
    measure_rows, parse_seconds, publish, run_program,
};

/// The tables, each of which can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One, two and four equal links
    A,
    /// Links of 200 and 50 Mbit/s
    B,
    /// Links that lose packets
    C,
    /// A link that is lost, and returns
    D,
}

/// Measures TCP multipath, MPTCP and both together over links of the network lab, and plain sockets, and rewrites
/// the published results: DOCS/results/mptcp.json, mptcp.svg and the section of DOCS/mptcp.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    /// What to measure; the section then has nothing else
    #[arg(long, value_name = "TABLES", value_enum, value_delimiter = ',', default_value = "a,b,c,d")]
    only: Vec<Part>,

    /// How long a cell of tables a, b and c is measured, after 0.8 s of warm-up
    #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The program that measures
    #[arg(long, default_value = "guest-tests/mptcp/measure", value_name = "PATH")]
    measure: PathBuf,

    #[command(flatten)]
    writing: Writing,
}

const PUBLICATION: Publication = Publication {
    name: "mptcp",
    command: "make bench-mptcp",
    document: "mptcp.md",
    tables: |results| {
        let name = |row: &Row| format!("{}; {:.1}", row.name, row.fact("payload_mib_s"));
        let layout = Layout::EachColumn("links and load; payload in MiB/s", name);
        let table = |name, heading| Table::new(heading, results.table(name), layout, &COLUMNS);
        vec![
            table("a", "#### Equal links"),
            table("b", "#### Unequal links"),
            table("c", "#### Lossy links"),
            outage::table(results),
        ]
    },
    targets: targets::targets,
    chart: |results| {
        let rows = results.rows.iter().filter(|row| row.table != "d" && !row.name.ends_with(": randread"));
        let panel = |row: &Row| {
            let limit = Some(row.fact("payload_mib_s"));
            Panel { limit, ..Panel::new(format!("{} (MiB/s)", row.name), row, "mib_s") }
        };
        Chart { columns: 2, panels: rows.map(panel).collect(), limit: "what the links can carry" }
    },
    picture: "MiB/s by method and links",
};

const COLUMNS: [Column; 4] = [
    ("MiB/s", Show::Near("mib_s", 1)),
    (
        "Part of what the links carry",
        Show::Percent(0, |_, row, cell| Some(cell.median("mib_s")? / row.fact("payload_mib_s") * 100.0)),
    ),
    ("p99 in ms", Show::Median("p99_ms", 2)),
    ("CPU s/GiB", Show::Median("cpu_s_per_gib", 2)),
];

/// Slow start and the policies need this long.
const WARM_UP_SECONDS: f64 = 0.8;

fn main() -> ExitCode {
    run_program("mptcp", |line: &CommandLine, interrupted| {
        publish(vec![(PUBLICATION, Box::new(|machine| mptcp(line, machine, interrupted)))], &line.writing, None)
    })
}

fn mptcp(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let only = line.only.iter().filter_map(|table| Some(table.to_possible_value()?.get_name().to_owned()));
    let (only, seconds) = (only.collect::<Vec<_>>().join(","), line.seconds.as_secs_f64());
    let rounds = line.writing.rounds.unwrap_or(3);
    let mut command = Command::new(&line.measure);
    command.args(["--only", &only, "--rounds", &rounds.to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--warm-up", &WARM_UP_SECONDS.to_string()]);
    let settings =
        [("rounds", rounds.into()), ("seconds", seconds.into()), ("warm_up_seconds", WARM_UP_SECONDS.into())];
    let mut results = measure_rows(command, Results::new(machine, &settings), interrupted)?;
    for row in &mut results.rows {
        let links = row.fact("links");
        for cell in &mut row.cells {
            if row.table == "d" { outage::judge(cell, links) } else { add_cpu(cell) }
        }
    }
    Ok(results)
}

/// CPU time of all rounds together, because it comes in ticks of 10 ms.
fn add_cpu(cell: &mut Cell) {
    let [cpu, gib] = ["cpu_seconds", "gib"].map(|name| {
        cell.figures.remove(name);
        cell.samples.iter().filter_map(|sample| sample.figures.get(name)).sum::<f64>()
    });
    if gib > 0.0 {
        cell.set("cpu_s_per_gib", cpu / gib);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vublk_bench::harness::Sample;

    #[test]
    fn cpu_time_is_that_of_all_rounds() {
        let cell = |samples: &[&[(&str, f64)]]| {
            let mut cell = Cell::new("tcp-1");
            for sample in samples {
                cell.add(Sample::new(sample));
            }
            add_cpu(&mut cell);
            cell
        };
        let found = cell(&[&[("cpu_seconds", 0.1), ("gib", 0.1)], &[("cpu_seconds", 0.2), ("gib", 0.05)]]);
        assert!((found.median("cpu_s_per_gib").unwrap() - 2.0).abs() < 1e-9 && found.get("gib").is_none(), "{found:?}");
        assert!(cell(&[&[("mib_s", 20.0)]]).get("cpu_s_per_gib").is_none());
    }
}
