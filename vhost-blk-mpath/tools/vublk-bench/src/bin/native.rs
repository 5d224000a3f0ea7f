//! `native`: Linux's own NVMe multipath and the daemon in one guest. `guest-tests/native/measure` starts the guest and measures; this
//! program publishes.

use clap::Parser;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use vublk_bench::harness::{
    Cell, Chart, Column, EXIT_STATUS, Failure, Machine, Panel, Publication, Results, Row, Sample, Section, Target,
    Writing, run_program,
};
use vublk_bench::measurement;
use vublk_bench::units::parse_seconds;

/// Measures Linux's native NVMe multipath and the daemon in one guest, on two paths of which one is 30 ms slower, and rewrites the
/// published results: DOCS/results/native.json, native.svg and the section of DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(version, after_help = EXIT_STATUS)]
struct CommandLine {
    /// Rounds; their median is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured; a third of that is warm-up before it
    #[arg(long, default_value = "0.6", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: std::time::Duration,

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
    targets: |_| Vec::new(),
    section,
    chart,
};

/// Name, title and note of a table.
const TABLES: [(&str, &str, &str); 2] = [
    (
        "target-delay",
        "Delay at the target, the daemon on the host",
        "The slow path's listener holds back each answer. fio runs in the guest for both. Linux's initiator works in the guest, \
         through QEMU's user network. The daemon works on the host, and the guest sees a virtio disk. So the absolute figures \
         also show what emulation costs an initiator: compare policies.",
    ),
    (
        "netem",
        "Delay by netem in the guest, the daemon in the guest",
        "The guest's network device of the slow path holds back what it sends. Both initiators run in the guest, on the same \
         network. fio (io_uring) drives Linux's disk. vublk-bench drives the daemon's disk, because a guest cannot attach its \
         own vhost-user socket. Pattern, depth, size and time are the same.",
    ),
];

/// What `guest-tests/native/measure` prints.
#[derive(Debug, Deserialize)]
struct Measured {
    guest: BTreeMap<String, Value>,
    delay_ms: u32,
    tables: Vec<MeasuredTable>,
}

#[derive(Debug, Deserialize)]
struct MeasuredTable {
    name: String,
    commands: Vec<String>,
    rows: Vec<MeasuredRow>,
}

#[derive(Debug, Deserialize)]
struct MeasuredRow {
    workload: String,
    place: String,
    cells: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct MeasuredCell {
    initiator: String,
    policy: String,
    samples: Vec<Sample>,
}

fn main() -> ExitCode {
    run_program("native", native)
}

fn native(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    if line.writing.render {
        return PUBLICATION.render(&line.writing).map(|()| 0);
    }
    PUBLICATION.check(&line.writing.docs)?;
    let machine = Machine::look_and_warn(None);
    let seconds = line.seconds.as_secs_f64();
    let warmup = seconds / 3.0;
    let mut command = Command::new(&line.measure);
    command.args(["--rounds", &line.rounds.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--warmup", &warmup.to_string()]);
    let measured = measurement::measure(command, interrupted)?;
    let settings = [("rounds", line.rounds.into()), ("seconds", seconds.into()), ("warmup_seconds", warmup.into())];
    let mut results = Results::new(machine, &settings);
    add(&mut results, measurement::parse(&measured)?);
    PUBLICATION.publish(&line.writing, &results, &measured)?;
    Ok(0)
}

fn add(results: &mut Results, measured: Measured) {
    results.settings.insert("delay_ms".into(), measured.delay_ms.into());
    results.settings.extend(
        ["kernel", "cpus", "accel", "fio"]
            .into_iter()
            .filter_map(|name| measured.guest.get(name).map(|value| (name.to_owned(), value.clone()))),
    );
    for table in measured.tables {
        results.commands.extend(table.commands);
        results.rows.extend(table.rows.into_iter().map(|row| {
            let cells = row.cells.into_iter().map(|measured| {
                let mut cell = Cell::new(&format!("{} {}", measured.initiator, measured.policy));
                measured.samples.into_iter().for_each(|sample| cell.add(sample));
                cell
            });
            let name = format!("{}, {}", row.workload, row.place);
            Row { table: table.name.clone(), name, cells: cells.collect(), ..Row::default() }
        }));
    }
}

/// IOPS in percent of those of the same initiator with the fast path alone, which is `numa` with the slow path second.
fn percent_of_fast_alone(results: &Results, row: &Row, cell: &Cell) -> Option<f64> {
    let (initiator, _) = cell.contender.rsplit_once(' ')?;
    let (workload, _) = row.name.split_once(", ")?;
    let alone = results.row(&row.table, &format!("{workload}, slow second"))?;
    Some(cell.median("iops")? / alone.median(&format!("{initiator} numa"), "iops")? * 100.0)
}

fn section(results: &Results, _: &[Target], section: &mut Section) {
    for (name, title, note) in TABLES {
        section.heading(title);
        section.paragraph(&format!("The slow path is {} ms slower. {note}", results.setting("delay_ms")));
        let ms = |head, figure| Column::value(head, 2, "", move |_, cell| Some(cell.median(figure)? / 1e3));
        let columns = [
            Column::spread("IOPS", "iops", 0),
            Column::value("of fast path alone", 0, " %", |row, cell| percent_of_fast_alone(results, row, cell)),
            Column::value("on slow path", 1, " %", |_, cell| cell.median("slow_path_percent")),
            ms("p50 ms", "p50_us"),
            ms("p99 ms", "p99_us"),
            ms("p99.9 ms", "p99.9_us"),
        ];
        section.tables("initiator and policy", results.table(name), |row| format!("{}:", row.name), &columns);
    }
    let has_queue_depth = results.contenders().contains(&"Linux queue-depth");
    section.paragraph(&format!(
        "Median (least–most) of {} rounds of {} s, after {:.2} s of warm-up. The contenders take turns. Each has one job and one I/O queue, so one \
         connection for each path. \"slow first\": the slow path was connected first. The fast path alone is `numa` with the slow \
         path second. A policy of the daemon starts each cell with nothing learned. With fewer than 1000 requests, p99.9 is the \
         largest latency. \"On slow path\" is the part of the requests, warm-up included.",
        results.setting("rounds"),
        results.setting("seconds"),
        results.number("warmup_seconds")
    ));
    section.paragraph(&format!(
        "Guest: Linux {}, {} CPUs under {}, {}. {}",
        results.setting("kernel"),
        results.setting("cpus"),
        results.setting("accel"),
        results.setting("fio"),
        if has_queue_depth { "" } else { "This kernel has no `queue-depth`, which came with 6.11." }
    ));
    section.machine(results, "", "Linux's native multipath beside the daemon", PUBLICATION.name);
}

fn chart(results: &Results) -> Chart {
    let contenders: Vec<String> = results.contenders().into_iter().map(str::to_owned).collect();
    let panel = |row: &Row| Panel::new(&format!("{}, {} (IOPS)", row.name, row.table), row, "iops", &contenders);
    let panels = results.rows.iter().map(panel).collect();
    Chart { contenders: contenders.clone(), columns: 3, panels, limit: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_compared_with_the_fast_path_alone() {
        let row = |place, iops| {
            let samples = format!(
                r#"[{{"iops": {iops}, "p50_us": 500, "p99_us": 900, "p99.9_us": 1000, "slow_path_percent": 50}}]"#
            );
            let cell = |policy| format!(r#"{{"initiator": "Linux", "policy": "{policy}", "samples": {samples}}}"#);
            let cells = format!("[{}, {}]", cell("numa"), cell("round-robin"));
            format!(r#"{{"workload": "4k randread QD1", "place": "{place}", "cells": {cells}}}"#)
        };
        let rows = [row("slow first", 100), row("slow second", 400)].join(",");
        let guest = r#"{"kernel": "6.1.0", "cpus": "2", "accel": "tcg", "fio": "fio-3.33"}"#;
        let table = format!(r#"{{"name": "netem", "commands": ["nvme connect"], "rows": [{rows}]}}"#);
        let measured = format!(r#"{{"guest": {guest}, "delay_ms": 30, "tables": [{table}]}}"#);
        let mut results = Results::new(Machine::look(None), &[]);
        add(&mut results, serde_json::from_str(&measured).unwrap());
        let first = &results.rows[0];
        assert_eq!(percent_of_fast_alone(&results, first, &first.cells[1]), Some(25.0));
        let mut text = Section::default();
        section(&results, &[], &mut text);
        let line = "| Linux round-robin | 100 (100–100) | 25 % | 50.0 % | 0.50 | 0.90 | 1.00 |";
        let text = text.text();
        assert!(text.contains(line) && text.contains("Linux 6.1.0, 2 CPUs under tcg, fio-3.33. This kernel"), "{text}");
    }
}
