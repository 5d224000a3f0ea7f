//! `native`: Linux's own NVMe multipath and the daemon in one guest. `guest-tests/native/measure` starts the guest and measures; this
//! program publishes.

use clap::Parser;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Cell, Chart, Column, EXIT_STATUS, Failure, Layout, Machine, Panel, Publication, Results, Row, Show, Table, Writing,
    measure_rows, parse_seconds, publish, run_program,
};

/// Measures Linux's native NVMe multipath and the daemon in one guest, on two paths of which one is 30 ms slower, and rewrites the
/// published results: DOCS/results/native.json, native.svg and the section of DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    /// How long a cell is measured; a third of that is warm-up before it
    #[arg(long, default_value = "0.6", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,

    /// The program that measures
    #[arg(long, default_value = "guest-tests/native/measure", value_name = "PATH")]
    measure: PathBuf,

    #[command(flatten)]
    writing: Writing,
}

const PUBLICATION: Publication = Publication {
    name: "native",
    command: "make bench-native",
    document: "benchmarks.md",
    tables: |results| {
        let layout = Layout::EachColumn("workload", |row| row.name.clone());
        let table = |(name, heading)| Table::new(heading, results.table(name), layout, &COLUMNS);
        TABLES.map(table).into()
    },
    targets: |_| Vec::new(),
    chart: |results| {
        let panel = |row: &Row| Panel::new(format!("{}, {} (IOPS)", row.name, row.table), row, "iops");
        Chart { columns: 3, panels: results.rows.iter().map(panel).collect(), limit: "" }
    },
    picture: "Linux's native multipath and the daemon",
};

/// Name and heading of a table.
const TABLES: [(&str, &str); 2] = [
    ("target-delay", "#### Delay at the target, the daemon on the host"),
    ("netem", "#### Delay by netem in the guest, the daemon in the guest"),
];

const COLUMNS: [Column; 4] = [
    ("IOPS", Show::Near("iops", 0)),
    ("Part of the fast path alone", Show::Percent(0, percent_of_fast_alone)),
    ("Requests on the slow path", Show::Percent(1, |_, _, cell| cell.median("slow_path_percent"))),
    ("p99 in ms", Show::Millis("p99_us")),
];

/// IOPS in percent of those of the same initiator with the fast path alone, which is `numa` with the slow path second.
fn percent_of_fast_alone(results: &Results, row: &Row, cell: &Cell) -> Option<f64> {
    let (initiator, _) = cell.contender.rsplit_once(' ')?;
    let (workload, _) = row.name.split_once(", ")?;
    let alone = results.row(&row.table, &format!("{workload}, slow second"))?;
    Some(cell.median("iops")? / alone.median(&format!("{initiator} numa"), "iops")? * 100.0)
}

fn main() -> ExitCode {
    run_program("native", |line: &CommandLine, interrupted| {
        publish(vec![(PUBLICATION, Box::new(|machine| native(line, machine, interrupted)))], &line.writing, None)
    })
}

fn native(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let seconds = line.seconds.as_secs_f64();
    let warmup = seconds / 3.0;
    let mut command = Command::new(&line.measure);
    command.args(["--rounds", &line.writing.rounds().to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--warmup", &warmup.to_string()]);
    let settings =
        [("rounds", line.writing.rounds().into()), ("seconds", seconds.into()), ("warmup_seconds", warmup.into())];
    measure_rows(command, Results::new(machine, &settings), interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vublk_bench::harness::Sample;

    const OURS: [&str; 2] = ["Linux numa", "Linux round-robin"];

    #[test]
    fn cells_are_compared_with_the_fast_path_alone() {
        let row = |place, iops| {
            let mut row = Row::new("netem", &format!("4k randread QD1, {place}"), OURS.into_iter());
            let figures = [("p50_us", 500.0), ("p99_us", 900.0), ("p99.9_us", 1000.0), ("slow_path_percent", 50.0)];
            for cell in &mut row.cells {
                cell.add(Sample::new(&[&figures[..], &[("iops", iops)]].concat()));
            }
            row
        };
        let mut results = Results::new(Machine::look(None), &[]);
        results.rows = vec![row("slow first", 100.0), row("slow second", 400.0)];
        let first = &results.rows[0];
        assert_eq!(percent_of_fast_alone(&results, first, &first.cells[1]), Some(25.0));
        let text = PUBLICATION.text(&results);
        for (figure, line) in [
            ("IOPS", "100 | 100"),
            ("Part of the fast path alone", "25 % | 25 %"),
            ("Requests on the slow path", "50.0 % | 50.0 %"),
            ("p99 in ms", "0.90 | 0.90"),
        ] {
            let table = text.split(&format!("{figure}:\n\n")).nth(1).expect(figure);
            let first = table.lines().nth(2).expect("a line for each workload");
            assert_eq!(first, format!("| 4k randread QD1, slow first | {line} |"), "{figure}");
        }
    }
}
