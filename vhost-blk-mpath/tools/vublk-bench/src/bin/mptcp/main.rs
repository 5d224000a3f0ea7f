//! `mptcp`: TCP multipath, MPTCP and both together over several links, from a front-end to a target, and plain sockets to
//! compare with. `guest-tests/mptcp/measure` makes the links and measures; this program judges and publishes.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod outage;
mod targets;

use clap::{Parser, ValueEnum};
use outage::MeasuredOutage;
use serde::Deserialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Cell, Chart, Column, EXIT_STATUS, Failure, Machine, Panel, Publication, Results, Row, Sample, Section, Target,
    Writing, run_program,
};
use vublk_bench::measurement;
use vublk_bench::units::parse_seconds;

/// What can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
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
    only: Vec<Table>,

    /// Rounds; their median is published
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

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
    targets: targets::targets,
    section,
    chart,
};

/// Slow start and the policies need this long.
const WARM_UP_SECONDS: f64 = 0.8;

/// MTU and Ethernet header: a full packet of TCP as the lab's links count it.
const PACKET_BYTES: f64 = 1514.0;
/// A packet without the headers of Ethernet, IPv4 and TCP with its timestamps.
const PAYLOAD_BYTES: f64 = 1448.0;

/// What `guest-tests/mptcp/measure` prints.
#[derive(Debug, Deserialize)]
struct Measured {
    io_threads: u16,
    commands: Vec<String>,
    rows: Vec<MeasuredRow>,
    outages: Vec<MeasuredOutage>,
}

#[derive(Debug, Deserialize)]
struct MeasuredRow {
    table: String,
    name: String,
    links: Vec<Link>,
    cells: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct Link {
    rate_mbit: f64,
}

/// `workload` is `read` or `write` (128k, 32 at a time) or `randread` (4k, one at a time).
#[derive(Debug, Deserialize)]
struct MeasuredCell {
    method: String,
    connections: u32,
    subflows: u32,
    workload: String,
    samples: Vec<Sample>,
}

fn main() -> ExitCode {
    run_program("mptcp", mptcp)
}

fn mptcp(line: &CommandLine, interrupted: &AtomicBool) -> Result<u8, Failure> {
    if line.writing.render {
        return PUBLICATION.render(&line.writing).map(|()| 0);
    }
    PUBLICATION.check(&line.writing.docs)?;
    let machine = Machine::look_and_warn(None);
    let only = line.only.iter().filter_map(|table| Some(table.to_possible_value()?.get_name().to_owned()));
    let (only, seconds) = (only.collect::<Vec<_>>().join(","), line.seconds.as_secs_f64());
    let mut command = Command::new(&line.measure);
    command.args(["--only", &only, "--rounds", &line.rounds.to_string()]);
    command.args(["--seconds", &seconds.to_string(), "--warm-up", &WARM_UP_SECONDS.to_string()]);
    let samples = measurement::measure(command, interrupted)?;
    let settings =
        [("rounds", line.rounds.into()), ("seconds", seconds.into()), ("warm_up_seconds", WARM_UP_SECONDS.into())];
    let mut results = Results::new(machine, &settings);
    add(&mut results, measurement::parse(&samples)?);
    PUBLICATION.publish(&line.writing, &results, &samples)?;
    Ok(0)
}

fn add(results: &mut Results, measured: Measured) {
    results.settings.insert("io_threads".into(), measured.io_threads.into());
    results.commands = measured.commands;
    for row in measured.rows {
        for workload in ["read", "write", "randread"] {
            let cells: Vec<Cell> =
                row.cells.iter().filter(|cell| cell.workload == workload).map(MeasuredCell::cell).collect();
            if !cells.is_empty() {
                let facts = [("payload_mib_s", payload_mib_s(&row.links)), ("links", row.links.len() as f64)];
                let facts = facts.map(|(name, value)| (name.to_owned(), value)).into();
                let name = format!("{}: {workload}", row.name);
                results.rows.push(Row { table: row.table.clone(), name, facts, cells });
            }
        }
    }
    results.rows.extend(outage::rows(measured.outages));
}

/// Payload of TCP when these links are full and lose nothing, in MiB/s. Payload of MPTCP is 1.4 % less: its option takes 20 bytes.
fn payload_mib_s(links: &[Link]) -> f64 {
    links.iter().map(|link| link.rate_mbit * 1e6 / 8.0 * PAYLOAD_BYTES / PACKET_BYTES / 1_048_576.0).sum()
}

impl MeasuredCell {
    fn cell(&self) -> Cell {
        let mut cell = Cell::new(&self.method);
        self.samples.iter().cloned().for_each(|sample| cell.add(sample));
        cell.set("connections", self.connections.into());
        cell.set("subflows", self.subflows.into());
        // Of all rounds together, because CPU time comes in ticks of 10 ms.
        let [cpu, gib] = ["cpu_seconds", "gib"].map(|name| {
            cell.figures.remove(name);
            self.samples.iter().filter_map(|sample| sample.figures.get(name)).sum::<f64>()
        });
        if gib > 0.0 {
            cell.set("cpu_s_per_gib", cpu / gib);
        }
        cell
    }
}

fn section(results: &Results, targets: &[Target], section: &mut Section) {
    section.paragraph(
        "`tcp-1` and `mptcp-1`: one path to the first link's address, with the policies `bdp` and `numa`. `tcp-N` and `mptcp-N`: a \
         path to the address of each link, with the policy named. With `numa` one of these paths has all I/O until it is lost. \
         `followed`: `mpathctl mptcp follow` runs on both sides. `raw`: plain sockets, one for each connection that the daemon \
         has for I/O. Shape: connections × subflows of each. Of the links: the part of the payload that all links together can \
         carry in TCP.",
    );
    for (table, title) in [("a", "Equal links"), ("b", "Unequal links"), ("c", "Lossy links")] {
        if results.table(table).next().is_some() {
            section.heading(title);
        }
        let of_links = |row: &Row, cell: &Cell| Some(cell.median("mib_s")? / row.fact("payload_mib_s") * 100.0);
        let shape = |_: &Row, cell: &Cell| {
            let [connections, subflows] = ["connections", "subflows"].map(|name| cell.median(name).unwrap_or(0.0));
            format!("{connections} × {subflows}")
        };
        let columns = [
            Column::new("shape", shape),
            Column::spread("MiB/s", "mib_s", 1),
            Column::value("of the links", 0, " %", of_links),
            Column::median("p50 ms", "p50_ms", 2),
            Column::median("p99 ms", "p99_ms", 2),
            Column::median("CPU s/GiB", "cpu_s_per_gib", 2),
        ];
        let heading = |row: &Row| format!("{}; payload {:.1} MiB/s:", row.name, row.fact("payload_mib_s"));
        section.tables("method", results.table(table), heading, &columns);
    }
    if results.table("d").next().is_some() {
        outage::write(results, section);
    }
    section.targets(targets);
    section.paragraph(&format!(
        "Median (least–most) of {} rounds, {} s for a cell after {} s of warm-up. The methods take turns. Target and daemon \
         start anew for each cell. CPU time is the daemon's, the sum over all bytes of all rounds. The \
         [lab](../guest-tests/lab)'s links: MTU 1500, cubic, no delay but their queues of 15 ms where none is named. One \
         front-end queue. read and write: 128k sequential, 32 outstanding. randread: 4k random reads one at a time, each 164 µs \
         of a link. {} I/O thread, so one connection for I/O on each path. Payload is 1448 bytes of each packet of 1514 that \
         the link's rate counts. With MPTCP's option the payload is 1428 bytes, 1.4 % less. NVMe/TCP's own headers are below \
         0.1 %. Subflows were counted before and after each cell. No connection that wanted MPTCP was TCP.",
        results.setting("rounds"),
        results.setting("seconds"),
        results.setting("warm_up_seconds"),
        results.setting("io_threads")
    ));
    section.machine(results, "Host, target and sockets share its CPUs.", "MiB/s by method and links", PUBLICATION.name);
}

fn chart(results: &Results) -> Chart {
    let contenders: Vec<String> = results.contenders().into_iter().map(str::to_owned).collect();
    let rows = results.rows.iter().filter(|row| row.table != "d" && !row.name.ends_with(": randread"));
    let panel = |row: &Row| {
        Panel::new(&format!("{} (MiB/s)", row.name), row, "mib_s", &contenders).with_limit(row.fact("payload_mib_s"))
    };
    let panels = rows.map(panel).collect();
    Chart { contenders: contenders.clone(), columns: 2, panels, limit: "what the links can carry".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_carry_the_payload_of_full_packets() {
        let payload = payload_mib_s(&[Link { rate_mbit: 200.0 }, Link { rate_mbit: 50.0 }]);
        assert!((payload - 28.503).abs() < 1e-3, "{payload}");
    }

    #[test]
    fn cpu_time_is_that_of_all_rounds() {
        let sample = |cpu, gib| Sample::new(&[("mib_s", 20.0), ("cpu_seconds", cpu), ("gib", gib)]);
        let measured = |samples| MeasuredCell {
            method: "tcp-1".into(),
            connections: 1,
            subflows: 1,
            workload: "read".into(),
            samples,
        };
        let cell = measured(vec![sample(0.1, 0.1), sample(0.2, 0.05)]).cell();
        assert!((cell.median("cpu_s_per_gib").unwrap() - 2.0).abs() < 1e-9 && cell.get("gib").is_none(), "{cell:?}");
        assert!(measured(vec![Sample::new(&[("mib_s", 20.0)])]).cell().get("cpu_s_per_gib").is_none());
    }
}
