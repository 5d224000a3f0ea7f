//! The section of `docs/benchmarks.md` that is rewritten with each measurement.

use crate::results::{Cell, Results, Table, TableName};
use std::fmt::Write;
use vublk_bench::publish::Section;

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "native", command: "make bench-native" };

/// The section: a table for each network, the method, the machine, the picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

impl TableName {
    /// Its heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::TargetDelay => "Delay at the target, the daemon on the host",
            Self::Netem => "Delay by netem in the guest, the daemon in the guest",
        }
    }

    fn note(self, delay_ms: u32) -> String {
        match self {
            Self::TargetDelay => format!(
                "The slow path's listener holds back each answer by {delay_ms} ms. fio in the guest on both: Linux's initiator works in the \
                 guest, through QEMU's user network; the daemon works on the host, as it would, and the guest sees a virtio disk. So \
                 the absolute figures of the two also tell an initiator under emulation from one that is not: compare policies."
            ),
            Self::Netem => format!(
                "The guest's network device of the slow path holds back by {delay_ms} ms what it sends. Both initiators are in the guest and \
                 on the same network. Linux's disk is driven by fio (io_uring), the daemon's by vublk-bench, as a guest cannot attach its \
                 own vhost-user socket: same pattern, depth, size and time, but not the same program."
            ),
        }
    }
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    for table in &results.tables {
        writeln!(text, "#### {}\n\n{}\n", table.name.title(), table.name.note(results.delay_ms))?;
        writeln!(text, "IOPS, median (least–most); part of what the same initiator does with the fast path alone:\n")?;
        write_table(text, table, |cell| {
            let part = cell.percent_of_fast_alone.map_or("–".to_owned(), |percent| format!("{percent:.0} %"));
            format!("{}; {part}", cell.iops.text(0))
        })?;
        writeln!(text, "\nPart of the requests on the slow path, medians of the rounds:\n")?;
        write_table(text, table, |cell| format!("{:.1} %", cell.slow_path_percent.median))?;
        writeln!(text, "\nLatency in ms, p50 / p99 / p99.9, medians of the rounds:\n")?;
        write_table(text, table, |cell| {
            let ms = [cell.p50_us, cell.p99_us, cell.p99_9_us].map(|spread| format!("{:.2}", spread.median / 1000.0));
            ms.join(" / ")
        })?;
        writeln!(text)?;
    }
    write_method(text, results)
}

fn write_table(text: &mut String, table: &Table, cell: impl Fn(&Cell) -> String) -> std::fmt::Result {
    let contenders: Vec<String> =
        table.rows.iter().take(1).flat_map(|row| row.cells.iter().map(Cell::contender)).collect();
    writeln!(text, "| | {} |\n|---|{}", contenders.join(" | "), "--:|".repeat(contenders.len()))?;
    for row in &table.rows {
        let cells: Vec<String> = row.cells.iter().map(&cell).collect();
        writeln!(text, "| {} | {} |", row.name(), cells.join(" | "))?;
    }
    Ok(())
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        text,
        "{} rounds of {} s after {:.2} s of warm-up, contenders alternating, one job, one I/O queue and so one connection a path for each. \"slow first\": the slow path was connected \
         first. The fast path alone is `numa` with the slow path second. A policy of the daemon starts each cell with nothing learned. \
         p99.9 of fewer than 1000 requests is their largest latency.\n",
        results.rounds, results.seconds, results.warmup_seconds
    )?;
    writeln!(
        text,
        "Guest: Linux {}, {} CPUs under {}, {}. {}\n",
        results.guest("kernel"),
        results.guest("cpus"),
        results.guest("accel"),
        results.guest("fio"),
        without_queue_depth(results)
    )?;
    writeln!(text, "Machine: {}\n\n```console", results.machine.text())?;
    for table in &results.tables {
        for command in &table.commands {
            writeln!(text, "$ {command}")?;
        }
    }
    writeln!(text, "```\n\n![Linux's native multipath beside the daemon](results/native.svg)")
}

/// That a policy of Linux is missing here is no opinion of ours.
fn without_queue_depth(results: &Results) -> &'static str {
    let mut cells = results.tables.iter().flat_map(|table| &table.rows).flat_map(|row| &row.cells);
    if cells.any(|cell| cell.initiator == "Linux" && cell.policy == "queue-depth") {
        ""
    } else {
        "This kernel has no `queue-depth`, which came with 6.11."
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;

    #[test]
    fn a_row_for_each_table() {
        let text = section(&results());
        assert_eq!(text.matches("| | Linux numa | vhost-blk-mpath bdp |\n|---|--:|--:|\n").count(), 6, "{text}");
        let line = "| 4k randread QD1, slow first | 1\u{202f}000 (900–1\u{202f}100); 25 % | 3\u{202f}000 (2\u{202f}700–3\u{202f}300); – |\n";
        assert_eq!(text.matches(line).count(), 2, "{text}");
        assert!(
            text.contains("| 0.50 / 0.90 / 1.00 |")
                && text.contains("by 30 ms")
                && text.contains("| 50.0 % | 50.0 % |"),
            "{text}"
        );
        assert!(text.contains("Linux 6.1.0, 2 CPUs under tcg, fio-3.33. This kernel has no `queue-depth`"), "{text}");
    }

    #[test]
    fn a_kernel_with_queue_depth_is_not_accused() {
        let mut results = results();
        results.tables[0].rows[0].cells[0].policy = "queue-depth".into();
        assert!(!section(&results).contains("no `queue-depth`"));
    }
}
