//! The section of `docs/scheduler.md` that is rewritten with each measurement.

use crate::plan::{BUSY_FLOWS, COUNT, Table, settle};
use crate::results::{Cell, Results, Row};
use burst_sim::scenario::{published_by_k, published_by_n};
use mpath_core::SchedulerKind;
use std::fmt::Write;
use vublk_bench::publish::{Section, Spread, write_targets};

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "burst", command: "make bench-burst" };

/// The section: the tables, targets, method, machine, picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

impl Table {
    fn title(self) -> String {
        match self {
            Self::K => format!("One flow of {COUNT} requests against K busy ones"),
            Self::N => format!("One flow of N requests against {BUSY_FLOWS} busy ones"),
        }
    }

    /// Of its first column, and what stands in it.
    fn head(self) -> &'static str {
        match self {
            Self::K => "K",
            Self::N => "N",
        }
    }

    fn key(self, row: &Row) -> String {
        match self {
            Self::K => row.busy.to_string(),
            Self::N => row.count.to_string(),
        }
    }

    /// p50 in ms without and with credits.
    pub(crate) fn published(self, row: &Row) -> Option<[f64; 2]> {
        match self {
            Self::K => published_by_k(row.busy),
            Self::N => published_by_n(row.count),
        }
    }
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    let (slots, delay, service) = (results.slots, results.delay_ms, results.service_ms());
    let varies = match results.jitter_ms {
        0.0 => String::new(),
        jitter => format!(", which varies by {jitter} ms either way"),
    };
    writeln!(
        text,
        "{slots} slots: one path with a window of {slots} requests to a target that answers after {delay} ms{varies}. In each \
         cell p50 (least–most of the rounds) / p99 of a burst in ms, and how many bursts that is; the p99 is that of all \
         rounds together. Floor: the flow alone. Limit: its p50 and one service, which is what a single request takes alone, \
         {service:.1} ms. Published: p50 without / with credits.\n"
    )?;
    for table in Table::ALL {
        let rows = results.table(table);
        if !rows.is_empty() {
            write_table(text, results, table, &rows)?;
        }
    }
    writeln!(
        text,
        "Throughput, requests per second, median (least–most of the rounds) and the busy flows' part of it\n"
    )?;
    write_head(text, &["N", "K"], results)?;
    for row in &results.rows {
        let cells: Vec<String> = row.cells.iter().map(throughput).collect();
        writeln!(text, "| {} | {} | {} |", row.count, row.busy, cells.join(" | "))?;
    }
    write_targets(text, &results.targets)?;
    write_method(text, results)
}

fn write_head(text: &mut String, first: &[&str], results: &Results) -> std::fmt::Result {
    let schedulers = results.schedulers.iter().map(String::as_str);
    let columns: Vec<&str> = first.iter().copied().chain(schedulers).collect();
    writeln!(text, "| {} |\n|{}", columns.join(" | "), "--:|".repeat(columns.len()))
}

fn write_table(text: &mut String, results: &Results, table: Table, rows: &[&Row]) -> std::fmt::Result {
    writeln!(text, "{}\n", table.title())?;
    write_head(text, &[table.head(), "published", "floor", "limit"], results)?;
    for row in rows {
        let published = table.published(row).map(|[without, with]| format!("{without} / {with}"));
        let floor = results.floor(row.count);
        let limit = floor.map(|floor| format!("{:.1}", floor.p50_ms.median + results.service_ms()));
        let cells: Vec<String> = [published, floor.map(times), limit]
            .map(Option::unwrap_or_default)
            .into_iter()
            .chain(row.cells.iter().map(times))
            .collect();
        writeln!(text, "| {} | {} |", table.key(row), cells.join(" | "))?;
    }
    writeln!(text)
}

fn times(cell: &Cell) -> String {
    format!("{} / {:.1}; {}", cell.p50_ms.text(1), cell.p99_ms, cell.bursts)
}

fn throughput(cell: &Cell) -> String {
    let Spread { median, .. } = cell.busy_iops;
    format!("{}; {:.0} %", cell.iops.text(0), median / cell.iops.median * 100.0)
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let Results { depth, pause_ms: [least, most], rounds, seconds, seed, .. } = results;
    let settle = |busy| settle(SchedulerKind::BurstCredit, busy).as_secs_f64();
    let (settle, longest) = (settle(0), settle(results.rows.iter().map(|row| row.busy).max().unwrap_or(0)));
    writeln!(
        text,
        "\n{rounds} rounds, schedulers alternating: for each K the front-end connects once and keeps K virtqueues filled \
         with {depth} reads of 4 KiB each, while `mpathctl scheduler set` switches from one scheduler to the next under \
         that load, by way of `fifo`, so that each begins without knowledge; to it all virtqueues are new then, so nothing \
         counts for {settle:.1} s ({longest:.1} s at the largest K; `fifo` has nothing to learn). Virtqueue 0 sends N reads \
         at once with one notification, waits for all, pauses for {least} to {most} ms and begins again. A cell begins with \
         the end of a burst; bursts count that begin within `--seconds {seconds}` of that. One thread drives all \
         virtqueues. `--seed {seed}`.\n\nMachine: {} The front-end runs on the same cores.\n",
        results.machine.text()
    )?;
    writeln!(text, "```console")?;
    for command in results.commands.values() {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![p50 of a burst by K and by N](results/{}.svg)", SECTION.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::results;
    use crate::targets::targets;

    #[test]
    fn both_tables_with_floor_and_limit() {
        let mut results = results(&[30.0, 34.0]);
        results.targets = targets(&results);
        let text = section(&results);
        let head = "| K | published | floor | limit | fifo | burst-credit | burst-credit-drr |\n|--:|";
        assert!(text.contains(head), "{text}");
        let cell = "34.0 (34.0–34.0) / 34.0; 6";
        let row = format!("| 4 | 81.6 / 60.9 | 17.0 (17.0–17.0) / 17.0; 6 | 34.0 | {cell} | {cell} |");
        assert!(text.contains(&row), "{text}");
        assert!(text.contains("| 64 |  | 17.0") && text.contains("| 128 | 1696 / 962 | 17.0"), "{text}");
        assert!(text.contains("| 1 | 16 | 1\u{202f}290 (1\u{202f}280–1\u{202f}300); 75 % |"), "{text}");
        assert_eq!(text.matches("\n| 32 | 16 |").count(), 1, "the row of both tables: {text}");
        assert!(text.contains("Targets, by the medians") && text.contains("results/burst.svg"), "{text}");
    }

    #[test]
    fn a_table_that_was_not_measured_is_left_out() {
        let mut results = results(&[30.0]);
        results.rows.retain(|row| row.count == COUNT);
        let text = section(&results);
        assert!(text.contains("against K busy ones") && !text.contains("One flow of N requests"), "{text}");
    }
}
