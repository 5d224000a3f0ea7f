//! The tables with a column for each scheduler.

use crate::cells::{Cell, Row};
use crate::results::Results;
use crate::row::{BUSY_FLOWS, COUNT, Table};
use burst_sim::scenario::{published_by_k, published_by_n};
use std::fmt::{Result, Write};
use vublk_bench::publish::Spread;

pub(super) fn write(text: &mut String, results: &Results) -> Result {
    let mut tables = Tables { text, results };
    let title = format!("One flow of {COUNT} requests against K busy ones");
    tables.published(Table::K, &title, "K", &|row| row.spec.busy.to_string())?;
    let title = format!("One flow of N requests against {BUSY_FLOWS} busy ones");
    tables.published(Table::N, &title, "N", &|row| row.spec.interactive.count.to_string())?;
    tables.throughput()?;
    tables.attackers()?;
    tables.many()?;
    tables.kept()
}

struct Tables<'a> {
    text: &'a mut String,
    results: &'a Results,
}

impl Tables<'_> {
    /// If there are rows: in front of their cells the words of `start` below the columns of `head`.
    fn table(
        &mut self,
        rows: &[&Row],
        title: &str,
        head: &str,
        start: impl Fn(&Row) -> String,
        cell: impl Fn(&Cell) -> String,
    ) -> Result {
        if rows.is_empty() {
            return Ok(());
        }
        let schedulers = &self.results.schedulers;
        let columns = head.split(" | ").count() + schedulers.len();
        writeln!(self.text, "{title}\n\n| {head} | {} |\n|{}", schedulers.join(" | "), "--:|".repeat(columns))?;
        for row in rows {
            let cells: Vec<String> = row.cells.iter().map(&cell).collect();
            writeln!(self.text, "| {} | {} |", start(row), cells.join(" | "))?;
        }
        writeln!(self.text)
    }

    fn published(&mut self, table: Table, title: &str, head: &str, key: &dyn Fn(&Row) -> String) -> Result {
        let results = self.results;
        let start = |row: &Row| {
            let published = published(table, row).map(|[without, with]| format!("{without} / {with}"));
            format!("{} | {} | {}", key(row), published.unwrap_or_default(), floor_and_limit(results, row))
        };
        self.table(&results.table(table), title, &format!("{head} | published figures | floor | limit"), start, times)
    }

    fn throughput(&mut self) -> Result {
        let rows = self.results.rows_of(&Table::PUBLISHED);
        let title = "Throughput, requests per second, median (least–most of the rounds) and the busy flows' part of it";
        let start = |row: &Row| format!("{} | {}", row.spec.interactive.count, row.spec.busy);
        let cell = |cell: &Cell| {
            let Spread { median, .. } = cell.busy_iops;
            format!("{}; {:.0} %", cell.iops.text(0), median / cell.iops.median * 100.0)
        };
        self.table(&rows, title, "N | K", start, cell)
    }

    fn attackers(&mut self) -> Result {
        let results = self.results;
        let rows = results.table(Table::A);
        let title = "Attackers that send so many requests at once, wait for all and begin again without a pause: % of the service \
                     of all attackers together (least–most of the rounds)";
        self.table(&rows, title, "flows", |row| row.spec.name(), |cell| cell.attackers_percent.text(1))?;
        let victims: Vec<&Row> = rows.into_iter().filter(|row| row.spec.interactive.flows > 0).collect();
        let title = "Their victim, a flow of N requests that pauses and stays within a turn and its part: p50 (least–most of the \
                     rounds) / p99; bursts + those set aside";
        let start = |row: &Row| format!("{} | {}", row.spec.name(), floor_and_limit(results, row));
        self.table(&victims, title, "flows | floor | limit", start, times)
    }

    fn many(&mut self) -> Result {
        let results = self.results;
        let title = format!(
            "m flows of {COUNT} requests at once against {BUSY_FLOWS} busy ones: mean of a burst, p50 (least–most of the rounds) \
             / p99; bursts + those set aside. Floor: the same m alone. Limit: of mean / p99 with `burst-credit`, by its targets"
        );
        let cell = |cell: &Cell| match cell.bursts {
            0 => times(cell),
            _ => format!("{:.1}, {}", cell.mean_ms.median, times(cell)),
        };
        let start = |row: &Row| {
            let floor = results.cells.floor(row.spec.interactive).map(cell).unwrap_or_default();
            let limits = results.many_ms(row).map(|[mean, p99]| format!("{mean:.1} / {p99:.1}"));
            format!("{} | {floor} | {}", row.spec.interactive.flows, limits.unwrap_or_default())
        };
        self.table(&results.table(Table::M), &title, "m | floor | limit", start, cell)
    }

    fn kept(&mut self) -> Result {
        let title = format!(
            "What {BUSY_FLOWS} busy flows keep under sustained bursts: % of the service (least–most of the rounds) / % of the worst \
             second of all rounds / longest time without an answer to any of them, in ms"
        );
        let rows = self.results.rows_of(&Table::SUSTAINED);
        self.table(&rows, &title, "flows", |row| row.spec.name(), kept)
    }
}

/// p50 in ms without and with credits.
pub(crate) fn published(table: Table, row: &Row) -> Option<[f64; 2]> {
    match table {
        Table::K => published_by_k(row.spec.busy),
        Table::N => published_by_n(row.spec.interactive.count),
        Table::A | Table::M => None,
    }
}

/// What the flows need alone, and a service more: nothing that does not preempt can promise less.
fn floor_and_limit(results: &Results, row: &Row) -> String {
    let floor = results.cells.floor(row.spec.interactive).map(times);
    let limit = results.cells.floor_ms(row).map(|floor| format!("{:.1}", floor + results.cells.service_ms()));
    [floor, limit].map(Option::unwrap_or_default).join(" | ")
}

pub(super) fn times(cell: &Cell) -> String {
    let Cell { p50_ms, p99_ms, bursts, set_aside, unreliable, .. } = cell;
    let verdict = if *unreliable { ", unreliable" } else { "" };
    let times = match bursts {
        0 => "–".to_owned(),
        _ => format!("{} / {p99_ms:.1}", p50_ms.text(1)),
    };
    format!("{times}; {bursts} + {set_aside}{verdict}")
}

fn kept(cell: &Cell) -> String {
    let worst = cell.busy_worst_second_percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1}"));
    format!("{} / {worst} / {:.0}", cell.busy_percent.text(1), cell.busy_longest_gap_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::counted::Sample;
    use crate::results::tests::{nothing, results};
    use crate::row::RowSpec;

    fn text(results: &Results) -> String {
        let mut text = String::new();
        write(&mut text, results).unwrap();
        text
    }

    #[test]
    fn what_was_published_with_floor_and_limit() {
        let text = text(&results(&[30.0, 34.0]));
        let head = "| K | published figures | floor | limit | fifo | published | burst-credit |\n|--:|";
        assert!(text.contains(head), "{text}");
        let cell = "34.0 (34.0–34.0) / 34.0; 6 + 0";
        let row = format!("| 4 | 81.6 / 60.9 | 17.0 (17.0–17.0) / 17.0; 6 + 0 | 34.0 | {cell} | {cell} |");
        assert!(text.contains(&row), "{text}");
        assert!(text.contains("| 64 |  | 17.0") && text.contains("| 128 | 1696 / 962 | 17.0"), "{text}");
        assert!(text.contains("| 1 | 16 | 1\u{202f}290 (1\u{202f}280–1\u{202f}300); 75 % |"), "{text}");
        assert_eq!(text.matches("\n| 32 | 16 |").count(), 1, "the row of both tables: {text}");
    }

    #[test]
    fn several_flows_that_send_bursts() {
        let text = text(&results(&[30.0, 34.0]));
        assert!(text.contains("| 1 × 64 without a pause, K=16 | 20.0 (20.0–20.0) |"), "{text}");
        let (floor, times) = ("17.0 (17.0–17.0) / 17.0; 6 + 0", "34.0 (34.0–34.0) / 34.0; 6 + 0");
        let victim = format!("| N=2, 4 × 64 without a pause, K=16 | {floor} | 34.0 | {times} |");
        assert!(text.contains(&victim), "{text}");
        assert!(text.contains(&format!("| 8 | 16.0, {floor} | 233.3 / 299.4 | 32.0, {times} |")), "{text}");
        assert!(text.contains("| 4 × N=32, K=16 | 75.0 (75.0–75.0) / 64.0 / 130 |"), "{text}");
        assert!(text.contains("| 4 × 32 without a pause, K=16 | 75.0 (75.0–75.0) / 64.0"), "{text}");
    }

    #[test]
    fn a_cell_of_which_nothing_is_left_has_no_number() {
        let mut cell = Cell::default();
        cell.add(Sample { set_aside_ms: vec![99.0; 2], ..sample(&[], 1290.0) });
        assert_eq!(times(&cell), "–; 0 + 2, unreliable");
        assert!(kept(&cell).contains(" / 64.5 / 129"), "{}", kept(&cell));
    }

    #[test]
    fn a_table_that_was_not_measured_is_left_out() {
        let mut results = results(&[30.0]);
        results.cells.rows.retain(|row| row.spec == RowSpec::one(COUNT, row.spec.busy));
        let by_k = text(&results);
        assert!(by_k.contains("against K busy ones") && !by_k.contains("One flow of N requests"), "{by_k}");
        let attackers = text(&nothing(&[Table::A]));
        assert!(attackers.starts_with("Attackers that") && !attackers.contains("Throughput"), "{attackers}");
        assert!(!attackers.contains("m flows") && attackers.contains("What 16 busy flows keep"), "{attackers}");
        assert_eq!(text(&nothing(&[])), "");
    }
}
