//! The tables of several flows that send bursts.

use super::{floor_and_limit, times, write_head};
use crate::cells::{Cell, Row};
use crate::results::Results;
use crate::row::{BUSY_FLOWS, COUNT, Table};
use std::fmt::Write;

pub(super) fn write(text: &mut String, results: &Results) -> std::fmt::Result {
    write_attackers(text, &results.table(Table::A))?;
    write_victims(text, results)?;
    write_many(text, results)?;
    write_kept(text, &results.table(Table::S))
}

fn schedulers(rows: &[&Row]) -> Vec<String> {
    rows.iter().take(1).flat_map(|row| &row.cells).map(|cell| cell.scheduler.clone()).collect()
}

fn write_row(text: &mut String, first: &str, row: &Row, cell: impl Fn(&Cell) -> String) -> std::fmt::Result {
    let cells: Vec<String> = row.cells.iter().map(cell).collect();
    writeln!(text, "| {first} | {} |", cells.join(" | "))
}

fn write_attackers(text: &mut String, rows: &[&Row]) -> std::fmt::Result {
    let Some(attack) = rows.first().map(|row| row.spec.attackers.count) else { return Ok(()) };
    writeln!(
        text,
        "Attackers that send {attack} requests at once, wait for all and begin again without a pause, against {BUSY_FLOWS} busy \
         flows: % of the service of all attackers together (least–most of the rounds) / of the one that has most; fair is \
         1 / ({BUSY_FLOWS} + attackers)\n"
    )?;
    write_head(text, &["attackers", "fair, each"], &schedulers(rows))?;
    for row in rows {
        let beside = if row.spec.interactive.flows > 0 { ", and the victim below" } else { "" };
        let first = format!("{}{beside} | {:.1}", row.spec.attackers.flows, Results::fair_percent(row));
        let shares = |cell: &Cell| format!("{} / {:.1}", cell.attackers_percent.text(1), cell.attacker_percent.median);
        write_row(text, &first, row, shares)?;
    }
    writeln!(text)
}

fn write_victims(text: &mut String, results: &Results) -> std::fmt::Result {
    let rows: Vec<&Row> = results.table(Table::A).into_iter().filter(|row| row.spec.interactive.flows > 0).collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "Their victim, a flow of N requests that pauses and stays within its fair share: p50 (least–most of the rounds) / p99; \
         bursts + those set aside\n"
    )?;
    write_head(text, &["attackers", "N", "floor", "limit"], &schedulers(&rows))?;
    for row in rows {
        let first = format!(
            "{} | {} | {}",
            row.spec.attackers.flows,
            row.spec.interactive.count,
            floor_and_limit(results, row)
        );
        write_row(text, &first, row, times)?;
    }
    writeln!(text)
}

fn write_many(text: &mut String, results: &Results) -> std::fmt::Result {
    let rows = results.table(Table::M);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "m flows of {COUNT} requests at once against {BUSY_FLOWS} busy ones: p50 (least–most of the rounds) / p99; bursts + those set aside; how \
         many times the floor, which is that of the same m alone\n"
    )?;
    write_head(text, &["m", "floor", "limit"], &schedulers(&rows))?;
    for row in rows {
        let alone = results.cells.floor_ms(row);
        let first = format!("{} | {}", row.spec.interactive.flows, floor_and_limit(results, row));
        let beside = |cell: &Cell| match alone.filter(|_| cell.bursts > 0) {
            Some(alone) => format!("{}; {:.2} ×", times(cell), cell.p50_ms.median / alone),
            None => times(cell),
        };
        write_row(text, &first, row, beside)?;
    }
    writeln!(text)
}

fn write_kept(text: &mut String, rows: &[&Row]) -> std::fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "What {BUSY_FLOWS} busy flows keep under sustained bursts: % of the service (least–most of the rounds) / % of the worst \
         second of all rounds / longest time without an answer to any of them, in ms\n"
    )?;
    write_head(text, &["bursts"], &schedulers(rows))?;
    for row in rows {
        let of = |flows: usize, count: u32, pause: &str| (flows > 0).then(|| format!("{flows} × {count}, {pause}"));
        let (interactive, attackers) = (row.spec.interactive, row.spec.attackers);
        let first = of(interactive.flows, interactive.count, "with a pause")
            .or(of(attackers.flows, attackers.count, "without a pause"))
            .unwrap_or_default();
        write_row(text, &first, row, kept)?;
    }
    writeln!(text)
}

fn kept(cell: &Cell) -> String {
    let worst = cell.busy_worst_second_percent.map_or_else(|| "–".to_owned(), |percent| format!("{percent:.1}"));
    format!("{} / {worst} / {:.0}", cell.busy_percent.text(1), cell.busy_longest_gap_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{nothing, results};

    fn text(results: &Results) -> String {
        let mut text = String::new();
        write(&mut text, results).unwrap();
        text
    }

    #[test]
    fn each_table_with_its_own_numbers() {
        let text = text(&results(&[30.0, 34.0]));
        let head = "| attackers | fair, each | fifo | burst-credit | burst-credit-drr | burst-credit-drr rho=0 |";
        assert!(text.contains(head), "{text}");
        assert!(text.contains("| 1 | 5.9 | 20.0 (20.0–20.0) / 12.0 |"), "{text}");
        assert!(text.contains("| 4, and the victim below | 5.0 | 20.0"), "{text}");
        let times = "34.0 (34.0–34.0) / 34.0; 6 + 0";
        assert!(text.contains(&format!("| 4 | 2 | 17.0 (17.0–17.0) / 17.0; 6 + 0 | 34.0 | {times} |")), "{text}");
        assert!(text.contains(&format!("| 8 | 17.0 (17.0–17.0) / 17.0; 6 + 0 | 34.0 | {times}; 2.00 × |")), "{text}");
        assert!(text.contains("| 4 × 32, with a pause | 75.0 (75.0–75.0) / 64.0 / 130 |"), "{text}");
        assert!(text.contains("| 4 × 32, without a pause | 75.0"), "{text}");
    }

    #[test]
    fn tables_that_were_not_measured_are_left_out() {
        assert_eq!(text(&nothing(&Table::PUBLISHED)), "");
        let one = text(&nothing(&[Table::S]));
        assert!(one.starts_with("What 16 busy flows keep") && one.contains("/ – / 0 |"), "{one}");
    }
}
