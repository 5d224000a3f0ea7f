//! A table's section of `docs/benchmarks.md`.

use crate::results::{Cell, Results, Row};
use std::fmt::Write;
use vublk_bench::publish::{grouped, write_targets};

/// The section: what it is, the tables, the machine, the picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(text, "{}\n", results.note)?;
    writeln!(text, "IOPS, median (least–most); MiB/s; part of the bound:\n")?;
    write_table(
        text,
        results,
        &["bound IOPS", "bound MiB/s"],
        |row| vec![grouped(row.bound.iops), grouped(row.bound.mib_per_second)],
        |cell| {
            format!("{}; {}; {:.0} %", cell.iops.text(0), grouped(cell.mib_per_second.median), cell.percent_of_bound)
        },
    )?;
    write_targets(text, &results.targets)?;
    writeln!(text, "\nLatency in ms, p50 / p99.9 / p99.99, medians of the rounds:\n")?;
    write_table(
        text,
        results,
        &[],
        |_| vec![],
        |cell| {
            let ms =
                [cell.p50_us, cell.p99_9_us, cell.p99_99_us].map(|spread| format!("{:.2}", spread.median / 1000.0));
            ms.join(" / ")
        },
    )?;
    if results.rows.iter().any(|row| row.cells.iter().any(|cell| !cell.recoveries().is_empty())) {
        writeln!(text, "\nSeconds from each change to 90 % of the new bound, medians of the rounds:\n")?;
        let jumps = |row: &&Row| row.cells.iter().any(|cell| !cell.recoveries().is_empty());
        let rows: Vec<&Row> = results.rows.iter().filter(jumps).collect();
        write_rows(
            text,
            results,
            &rows,
            &[],
            |_| vec![],
            |cell| {
                let recoveries = cell.recoveries().into_iter();
                let words = recoveries.map(|time| time.map_or("never".to_owned(), |seconds| format!("{seconds:.1}")));
                words.collect::<Vec<_>>().join(", ")
            },
        )?;
    }
    writeln!(text, "\nCPU time in µs per I/O, daemon + target, medians of the rounds:\n")?;
    write_table(
        text,
        results,
        &[],
        |_| vec![],
        |cell| {
            let parts = cell.cpu_us_per_io.values().map(|cpu| format!("{:.1}", cpu.median));
            parts.collect::<Vec<_>>().join(" + ")
        },
    )?;
    write_method(text, results)
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let floors = results.rows.iter().map(|row| row.bound.floor_us);
    let (least, most) = floors.fold((f64::INFINITY, 0.0f64), |(least, most), us| (least.min(us), most.max(us)));
    writeln!(
        text,
        "\n{} rounds, policies alternating; `--seconds {}`, {:.2} s of warm-up before each cell. The bound is the most that any policy \
         can reach, to within the spread of what it is made of: max Σ λ with λ·s ≤ C on each path and Σ λ·(D + s/C) ≤ depth. D is the path's delay and what a request takes \
         here without any ({least:.0} to {most:.0} µs, measured before the rounds at depth 1: at depth, processors may be the limit \
         before the paths are); s is the mean size, on every path: who gives a slow path the large requests can be above the bound of \
         mixed sizes. A median of fewer than 10,000 requests a cell has its largest as p99.99.",
        results.rounds, results.seconds, results.warmup_seconds
    )?;
    let changed = results.policies.iter().filter(|policy| policy.is_a_policy() && !policy.params.is_empty());
    for policy in changed {
        writeln!(
            text,
            "`{}` ran with `{}`, in proportion to the length of the cells; its default is made for runs of minutes.",
            policy.name,
            policy.params.join(" ")
        )?;
    }
    writeln!(
        text,
        "\nMachine: {} Processor time is user and system time; the front-end runs on the same cores.\n",
        results.machine.text()
    )?;
    writeln!(text, "```console")?;
    for command in results.commands.values() {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![{}](results/policies-{}.svg)", results.title, results.table)
}

fn write_table(
    text: &mut String,
    results: &Results,
    extra: &[&str],
    extra_cells: impl Fn(&Row) -> Vec<String>,
    cell: impl Fn(&Cell) -> String,
) -> std::fmt::Result {
    let rows: Vec<&Row> = results.rows.iter().collect();
    write_rows(text, results, &rows, extra, extra_cells, cell)
}

fn write_rows(
    text: &mut String,
    results: &Results,
    rows: &[&Row],
    extra: &[&str],
    extra_cells: impl Fn(&Row) -> Vec<String>,
    cell: impl Fn(&Cell) -> String,
) -> std::fmt::Result {
    let policies = results.policies.iter().map(|policy| policy.name.as_str());
    let head: Vec<&str> = extra.iter().copied().chain(policies).collect();
    writeln!(text, "| | {} |\n|---|{}", head.join(" | "), "--:|".repeat(head.len()))?;
    for row in rows {
        let cells: Vec<String> = extra_cells(row).into_iter().chain(row.cells.iter().map(&cell)).collect();
        writeln!(text, "| {} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{results, sample};

    #[test]
    fn a_row_for_each_table() {
        let text = section(&results());
        assert!(text.contains("| | bound IOPS | bound MiB/s | numa | adaptive |\n|---|--:|--:|--:|--:|\n"), "{text}");
        let line = "| 4k randread QD1, slow first | 4\u{202f}000 | 16 | 1\u{202f}000 (900–1\u{202f}100); 4; 25 % | \
                    3\u{202f}000 (2\u{202f}700–3\u{202f}300); 12; 75 % |\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("| 2.5 + 3.0 | 2.5 + 3.0 |\n") && text.contains("| 1.00 / 1.00 / 2.00 |"), "{text}");
        assert!(
            text.contains("3 rounds") && text.contains("results/policies-a.svg") && !text.contains("never"),
            "{text}"
        );
        assert!(!text.contains("ran with"), "{text}");
    }

    #[test]
    fn parameters_and_recoveries_are_told() {
        let mut results = results();
        results.policies[1].params = vec!["interval=50ms".into()];
        results.rows[0].cells[0].samples = vec![sample(1.0, vec![Some(0.24), None])];
        let text = section(&results);
        assert!(text.contains("`adaptive` ran with `interval=50ms`"), "{text}");
        assert!(text.contains("| 4k randread QD1, slow first | 0.2, never |  |\n"), "{text}");
    }
}
