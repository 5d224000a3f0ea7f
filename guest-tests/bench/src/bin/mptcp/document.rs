//! The section of `docs/mptcp.md` that is rewritten with each measurement.

use crate::line::Table;
use crate::outage::{Kind, Outage};
use crate::results::{Cell, Results, Row, Workload};
use std::fmt::Write;
use vublk_bench::publish::{Section, write_targets};

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "mptcp", command: "make bench-mptcp" };

/// The section: tables, targets, method, machine, picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

impl Table {
    /// Its heading.
    fn title(self) -> &'static str {
        match self {
            Self::A => "Equal links",
            Self::B => "Unequal links",
            Self::C => "Lossy links",
            Self::D => "A link is lost, and returns",
        }
    }
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        text,
        "`tcp-1` and `mptcp-1`: one path, to the first link's address, by `bdp` and by `numa`. `tcp-N` and `mptcp-N`: a path to the address \
         of each link, by the policy named; with `numa` one of these paths has all I/O until it is lost. `followed`: \
         `mpathctl mptcp follow` runs on both sides. `raw`: sockets with nothing above them, as many as the daemon has \
         connections for I/O. `links`: what the method has of the \
         payload that all links together can carry in TCP.\n"
    )?;
    for table in [Table::A, Table::B, Table::C] {
        for (index, row) in results.rows(table).enumerate() {
            if index == 0 {
                writeln!(text, "#### {}\n", table.title())?;
            }
            write_row(text, row)?;
        }
    }
    if !results.outages.is_empty() {
        write_outages(text, &results.outages)?;
    }
    // One empty line is enough.
    text.truncate(text.trim_end().len());
    writeln!(text)?;
    write_targets(text, &results.targets)?;
    write_method(text, results)
}

fn write_row(text: &mut String, row: &Row) -> std::fmt::Result {
    let latency = row.cells.iter().any(|cell| cell.workload == Workload::Randread);
    writeln!(text, "{}, {:.1} MiB/s of payload:\n", row.name, row.payload_mib_s)?;
    write!(
        text,
        "| | connections × subflows | read MiB/s | links | p50 / p99 ms | CPU s/GiB \
         | write MiB/s | links | p50 / p99 ms | CPU s/GiB |"
    )?;
    writeln!(text, "{}", if latency { " 4k p50 / p99 µs |" } else { "" })?;
    writeln!(text, "|---|{}", "--:|".repeat(if latency { 10 } else { 9 }))?;
    for method in row.methods() {
        let shape = row.cells.iter().find(|cell| cell.method == method);
        let shape = shape.map_or_else(String::new, |cell| format!("{} × {}", cell.connections, cell.subflows));
        let columns = [Workload::Read, Workload::Write].map(|workload| throughput(row, row.cell(method, workload)));
        let latency =
            if latency { format!(" {} |", alone(row.cell(method, Workload::Randread))) } else { String::new() };
        writeln!(text, "| `{method}` | {shape} | {} | {} |{latency}", columns[0], columns[1])?;
    }
    writeln!(text)
}

/// Four columns.
fn throughput(row: &Row, cell: Option<&Cell>) -> String {
    let Some(cell) = cell else { return "| | |".to_owned() };
    let part = cell.mib_s.median / row.payload_mib_s * 100.0;
    let more = cell.daemon.map_or("– | –".to_owned(), |daemon| {
        let ms = [daemon.p50_ms, daemon.p99_ms].map(|spread| format!("{:.1}", spread.median));
        format!("{} | {:.2}", ms.join(" / "), daemon.cpu_seconds_per_gib)
    });
    format!("{} | {part:.0} % | {more}", cell.mib_s.text(1))
}

fn alone(cell: Option<&Cell>) -> String {
    cell.and_then(|cell| cell.daemon).map_or("–".to_owned(), |daemon| {
        [daemon.p50_ms, daemon.p99_ms].map(|spread| format!("{:.0}", spread.median * 1000.0)).join(" / ")
    })
}

fn write_outages(text: &mut String, outages: &[Outage]) -> std::fmt::Result {
    writeln!(
        text,
        "#### {}\n\nThe first of two links of 200 Mbit/s, under `vublk-bench --rw verify`, for 3 s. Of each round, \
         in s: how long until throughput is 90 % of what the links left had before, and, from its return on, until \
         it is 90 % of what both had.\n",
        Table::D.title()
    )?;
    writeln!(text, "| the link | | MiB/s before | errors | the rest after | both after |\n|---|---|--:|--:|--:|--:|")?;
    for outage in outages {
        let lost = match outage.kind {
            Kind::Down => "cable pulled",
            Kind::Silence => "silent",
        };
        writeln!(
            text,
            "| {lost} | `{}` | {} | {} | {} | {} |",
            outage.method,
            outage.mib_s.text(1),
            outage.wrong,
            times(&outage.rest_after_s),
            times(&outage.all_after_s)
        )?;
    }
    writeln!(text)
}

/// In the order of the rounds.
fn times(seconds: &[Option<f64>]) -> String {
    let words: Vec<String> =
        seconds.iter().map(|time| time.map_or("never".to_owned(), |time| format!("{time:.1}"))).collect();
    words.join(", ")
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let plan = &results.plan;
    writeln!(
        text,
        "\n{} rounds, methods alternating; {} s a cell after {} s of warm-up, target and daemon new for each; median \
         (least–most) of the rounds, of latency the median, of CPU time the sum over all bytes of all rounds, the \
         daemon's only. The [lab](../guest-tests/lab)'s links: MTU 1500, cubic, no delay but their queues of 15 ms \
         where none is named; \
         one front-end queue, 128k sequential, 32 outstanding; 4k random reads one at a time, each 164 µs of a link; {} I/O \
         thread, so one connection a path for I/O. Payload is 1448 bytes of each packet of 1514 that the link's rate counts; with \
         MPTCP's option it is 1428, 1.4 % less, and NVMe/TCP's own headers are below 0.1 %. Subflows were counted \
         before and after each cell, and none was TCP that wanted to be MPTCP.\n",
        plan.rounds, plan.seconds, plan.warm_up_seconds, results.io_threads
    )?;
    writeln!(
        text,
        "For a lost link bytes of completed requests are counted every 100 ms. Throughput is there with the first of \
         five steps whose mean is 90 % of what is expected, each counted as 1.2 times that at the most. Every block \
         that is read is checked, and all that was written is read again at the end.\n"
    )?;
    writeln!(text, "Machine: {} Host, target and sockets share its CPUs.\n\n```console", results.machine.text())?;
    for command in &results.commands {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![MiB/s by method and links](results/mptcp.svg)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::tests::outage;
    use crate::results::tests::{cell, results, row};
    use crate::targets::targets;

    #[test]
    fn a_line_for_each_method() {
        let mut equal = row("a", &[200.0, 200.0], &[("tcp-N bdp", 40.0), ("mptcp-1", 43.0), ("raw tcp-N", 45.0)]);
        let cells = equal["cells"].as_array_mut().unwrap();
        cells.insert(1, cell("tcp-N bdp", "write", 20.0));
        cells.insert(2, cell("tcp-N bdp", "randread", 1.0));
        let mut results = results(&[equal, row("c", &[200.0], &[("tcp-1", 22.0)])], &[]);
        results.targets = targets(&results);
        let text = section(&results);
        let line = "| `tcp-N bdp` | 2 × 1 | 40.0 (36.0–44.0) | 88 % | 40.0 / 80.0 | 0.40 \
                    | 20.0 (18.0–22.0) | 44 % | 40.0 / 80.0 | 0.40 | 40000 / 80000 |\n";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("| `mptcp-1` | 1 × 2 | 43.0 (38.7–47.3) | 94 % | 40.0 / 80.0 | 0.40 | | | | | – |\n"),
            "{text}"
        );
        assert!(text.contains("| `raw tcp-N` | 2 × 1 | 45.0 (40.5–49.5) | 99 % | – | – |"), "{text}");
        // Only where it was measured.
        assert_eq!(text.matches("4k p50 / p99 µs |").count(), 1, "{text}");
        assert!(text.contains("#### Equal links\n") && text.contains("#### Lossy links\n"), "{text}");
        assert!(!text.contains("#### Unequal links\n") && !text.contains("errors |"), "{text}");
        assert!(text.contains("$ mpath-target --x\n```") && text.contains("not measured"), "{text}");
    }

    #[test]
    fn every_line_of_a_table_has_as_many_columns() {
        let mut with_latency = row("a", &[200.0, 200.0], &[("tcp-N bdp", 40.0), ("raw tcp-N", 45.0)]);
        with_latency["cells"].as_array_mut().unwrap().insert(1, cell("tcp-N bdp", "randread", 1.0));
        for row in [with_latency, row("b", &[200.0], &[("tcp-1", 22.0), ("raw tcp-N", 23.0)])] {
            let text = section(&results(&[row], &[]));
            let lines = text.lines().skip_while(|line| !line.starts_with("| |")).take_while(|line| !line.is_empty());
            let columns: Vec<usize> = lines.map(|line| line.matches('|').count()).collect();
            assert!(columns.len() == 4 && columns.iter().all(|count| *count == columns[0]), "{columns:?}: {text}");
        }
    }

    #[test]
    fn a_line_for_each_outage() {
        let text =
            section(&results(&[], &[outage("down", "mptcp-1", 7, 12, 0), outage("silence", "tcp-N bdp", 30, 50, 2)]));
        assert!(text.contains("| cable pulled | `mptcp-1` | 40.0 (40.0–40.0) | 0 | 0.7 | 1.2 |\n"), "{text}");
        assert!(text.contains("| silent | `tcp-N bdp` | 40.0 (40.0–40.0) | 2 | never | never |\n"), "{text}");
    }
}
