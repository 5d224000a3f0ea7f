//! The section of `docs/scheduler.md` that is rewritten with each measurement.

mod shares;
mod threads;

use crate::cells::{Cell, Row};
use crate::plan::settle;
use crate::results::Results;
use crate::row::{BUSY_FLOWS, COUNT, RowSpec, Table};
use burst_sim::scenario::{published_by_k, published_by_n};
use burst_sim::targets::BUSY;
use mpath_core::SchedulerKind;
use std::fmt::Write;
use std::time::Duration;
use vublk_bench::publish::{Section, Spread, write_targets};
use vublk_bench::stalls::{How, Watched};

/// Where it stands.
pub(crate) const SECTION: Section = Section { name: "burst", command: "make bench-burst" };

/// The section: the tables, targets, method, machine, picture.
pub(crate) fn section(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_section(&mut text, results);
    text
}

/// K or N: what stands above it.
fn title(table: Table) -> Option<String> {
    match table {
        Table::K => Some(format!("One flow of {COUNT} requests against K busy ones")),
        Table::N => Some(format!("One flow of N requests against {BUSY_FLOWS} busy ones")),
        Table::A | Table::M | Table::S => None,
    }
}

/// p50 in ms without and with credits.
pub(crate) fn published(table: Table, row: &Row) -> Option<[f64; 2]> {
    match table {
        Table::K => published_by_k(row.spec.busy),
        Table::N => published_by_n(row.spec.interactive.count),
        Table::A | Table::M | Table::S => None,
    }
}

fn write_section(text: &mut String, results: &Results) -> std::fmt::Result {
    let (slots, delay, service) = (results.slots, results.delay_ms, results.service_ms());
    let varies = match results.jitter_ms {
        0.0 => String::new(),
        jitter => format!(
            ", which varies by {jitter} ms either way, at random: slots that take exactly the same come to begin and end together, \
             and a single request meets the middle of a service, which adds half of one to it"
        ),
    };
    writeln!(
        text,
        "{slots} slots: one path with a window of {slots} requests to a target that answers after {delay} ms{varies}. In each \
         cell p50 (least–most of the rounds) / p99 of a burst in ms, and how many bursts that is + how many were set aside, as the \
         machine stood still meanwhile (below); the p99 is that of all rounds together. Floor: the flow alone. Limit: its p50 and one service, which is what a single request takes alone, \
         {service:.1} ms. Published: p50 without / with credits.\n"
    )?;
    for table in Table::PUBLISHED {
        write_table(text, results, table)?;
    }
    write_throughput(text, results)?;
    shares::write(text, results)?;
    threads::write(text, results)?;
    // One blank line is enough.
    text.truncate(text.trim_end().len() + 1);
    write_targets(text, &results.targets)?;
    write_method(text, results)
}

fn write_head(text: &mut String, first: &[&str], schedulers: &[String]) -> std::fmt::Result {
    let schedulers = schedulers.iter().map(String::as_str);
    let columns: Vec<&str> = first.iter().copied().chain(schedulers).collect();
    writeln!(text, "| {} |\n|{}", columns.join(" | "), "--:|".repeat(columns.len()))
}

fn write_table(text: &mut String, results: &Results, table: Table) -> std::fmt::Result {
    let rows = results.table(table);
    let Some(title) = title(table).filter(|_| !rows.is_empty()) else { return Ok(()) };
    let head = if table == Table::K { "K" } else { "N" };
    writeln!(text, "{title}\n")?;
    write_head(text, &[head, "published", "floor", "limit"], &results.schedulers)?;
    for row in rows {
        let published = published(table, row).map(|[without, with]| format!("{without} / {with}"));
        let first = [published.unwrap_or_default(), floor_and_limit(results, row)];
        let cells: Vec<String> = first.into_iter().chain(row.cells.iter().map(times)).collect();
        let key = if table == Table::K { row.spec.busy.to_string() } else { row.spec.interactive.count.to_string() };
        writeln!(text, "| {key} | {} |", cells.join(" | "))?;
    }
    writeln!(text)
}

/// What the flows need alone, and a service more: nothing that does not preempt can promise less.
fn floor_and_limit(results: &Results, row: &Row) -> String {
    let floor = results.cells.floor(row.spec.interactive).map(times);
    let limit = results.cells.floor_ms(row).map(|floor| format!("{:.1}", floor + results.cells.service_ms()));
    [floor, limit].map(Option::unwrap_or_default).join(" | ")
}

fn write_throughput(text: &mut String, results: &Results) -> std::fmt::Result {
    let rows = results.rows_of(&Table::PUBLISHED);
    let is_measured = Table::PUBLISHED.into_iter().any(|table| !results.table(table).is_empty());
    if !is_measured {
        return Ok(());
    }
    writeln!(
        text,
        "Throughput, requests per second, median (least–most of the rounds) and the busy flows' part of it\n"
    )?;
    write_head(text, &["N", "K"], &results.schedulers)?;
    for row in rows {
        let cells: Vec<String> = row.cells.iter().map(throughput).collect();
        writeln!(text, "| {} | {} | {} |", row.spec.interactive.count, row.spec.busy, cells.join(" | "))?;
    }
    writeln!(text)
}

fn times(cell: &Cell) -> String {
    let Cell { p50_ms, p99_ms, bursts, set_aside, unreliable, .. } = cell;
    let verdict = if *unreliable { ", unreliable" } else { "" };
    let times = match bursts {
        0 => "–".to_owned(),
        _ => format!("{} / {p99_ms:.1}", p50_ms.text(1)),
    };
    format!("{times}; {bursts} + {set_aside}{verdict}")
}

fn throughput(cell: &Cell) -> String {
    let Spread { median, .. } = cell.busy_iops;
    format!("{}; {:.0} %", cell.iops.text(0), median / cell.iops.median * 100.0)
}

fn write_method(text: &mut String, results: &Results) -> std::fmt::Result {
    let Results { depth, pause_ms: [least, most], rounds, seconds, seed, .. } = results;
    let settle = |row| settle(SchedulerKind::BurstCreditDrr, row).as_secs_f64();
    let (one, largest, several) =
        (RowSpec::one(COUNT, 0), RowSpec::one(COUNT, BUSY[BUSY.len() - 1]), Table::S.rows()[0]);
    let (settle, longest, among_bursts) = (settle(one), settle(largest), settle(several));
    let (fewer, longer) = (Table::S.rounds(*rounds), Table::S.time(Duration::from_secs_f64(*seconds)).as_secs_f64());
    writeln!(text)?;
    if let Some(watched) = &results.watched {
        write_watched(text, results, watched)?;
    }
    writeln!(
        text,
        "{rounds} rounds, schedulers alternating: for each row the front-end connects once and keeps K virtqueues filled \
         with {depth} reads of 4 KiB each, while `mpathctl scheduler set` switches from one scheduler to the next under \
         that load, by way of `fifo`, so that each begins without knowledge; to it all virtqueues are new then, so with \
         `burst-credit-drr` nothing counts for {settle:.1} s ({longest:.1} s at K = {}, {among_bursts:.1} s where several flows send bursts), with `burst-credit` until the \
         credit of new ones is used up; `fifo` has nothing to learn. The first virtqueues send N reads each at once with one \
         notification, wait for all, pause for {least} to {most} ms and begin again; attackers do not pause. A cell begins \
         with the end of a burst; bursts count that begin within `--seconds {seconds}` of that. Tables of attackers, of m \
         flows, of what busy flows keep and of I/O threads have {fewer} rounds, cells of what busy flows keep {longer} s. One thread drives \
         all virtqueues. `--seed {seed}`.\n\nMachine: {} The front-end runs on the same cores.\n",
        largest.busy,
        results.machine.text()
    )?;
    writeln!(text, "```console")?;
    let threads = results.threads.iter().map(|threads| &threads.command);
    for command in results.commands.values().chain(threads) {
        writeln!(text, "$ {command}")?;
    }
    writeln!(text, "```\n\n![p50 of a burst by K, N and m](results/{}.svg)", SECTION.name)
}

/// How long the machine stood still, and what became of that.
fn write_watched(text: &mut String, results: &Results, watched: &Watched) -> std::fmt::Result {
    let Watched { threshold_ms, seconds, stalls, stalled_seconds, longest_ms, .. } = watched;
    let aside: usize = results.all_cells().map(|cell| cell.set_aside).sum();
    let all: usize = results.all_cells().map(|cell| cell.bursts).sum::<usize>() + aside;
    let repeated = results.all_cells().flat_map(|cell| &cell.samples).filter(|sample| sample.repeated).count();
    let how = match watched.how {
        How::Fifo => "of priority `SCHED_FIFO`, which nothing that is measured has,",
        How::Ordinary => {
            "(`SCHED_FIFO` is not permitted, so what the kernel counts as its waiting for others is taken off)"
        }
    };
    writeln!(
        text,
        "The machine stood still for {stalled_seconds:.2} s of {seconds:.0} s: in {stalls} stalls of up to {longest_ms:.0} ms, {:.2} s of its \
         processors' time (their steal time in `/proc/stat`, which has short ones too: {:.2} s). A stall is when a thread \
         {how} that sleeps for 1 ms at a time on each processor wakes {threshold_ms} ms late or more. {aside} of {all} bursts have one in their time, \
         and are in neither p50 nor p99, however long or short they were; `set_aside_ms` in the data. A cell of which more than a tenth of a \
         round's bursts was set aside is measured once more ({repeated} were), and `unreliable` if it happens again. Gaps are less what of them was \
         stalled; shares and throughput are as they were.\n",
        watched.processor_seconds, watched.steal_seconds
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::tests::sample;
    use crate::counted::Sample;
    use crate::results::tests::{nothing, results};
    use crate::targets::targets;

    #[test]
    fn both_tables_with_floor_and_limit() {
        let mut results = results(&[30.0, 34.0]);
        results.targets = targets(&results);
        let text = section(&results);
        let head = "| K | published | floor | limit | fifo | burst-credit | burst-credit-drr |\n|--:|";
        assert!(text.contains(head), "{text}");
        let cell = "34.0 (34.0–34.0) / 34.0; 6 + 0";
        let row = format!("| 4 | 81.6 / 60.9 | 17.0 (17.0–17.0) / 17.0; 6 + 0 | 34.0 | {cell} | {cell} |");
        assert!(text.contains(&row), "{text}");
        assert!(text.contains("| 64 |  | 17.0") && text.contains("| 128 | 1696 / 962 | 17.0"), "{text}");
        assert!(text.contains("| 1 | 16 | 1\u{202f}290 (1\u{202f}280–1\u{202f}300); 75 % |"), "{text}");
        assert_eq!(text.matches("\n| 32 | 16 |").count(), 1, "the row of both tables: {text}");
        assert!(text.contains("Targets, by the medians") && text.contains("results/burst.svg"), "{text}");
    }

    #[test]
    fn what_was_set_aside_is_told() {
        let mut results = results(&[30.0, 34.0]);
        let cell = &mut results.cells.rows[0].cells[0];
        cell.add(Sample { set_aside_ms: vec![250.0], repeated: true, ..sample(&[30.0], 1290.0) });
        assert!(section(&results).contains("/ 34.0; 7 + 1, unreliable |"), "{}", section(&results));
        assert!(!section(&results).contains("stood still for"), "nobody watched");
        let mut watched = Watched {
            how: How::Fifo,
            threshold_ms: 5.0,
            seconds: 812.4,
            stalls: 31,
            stalled_seconds: 1.234,
            longest_ms: 249.6,
            processor_seconds: 2.0,
            steal_seconds: 3.5,
        };
        results.watched = Some(watched.clone());
        let text = section(&results);
        assert!(text.contains("stood still for 1.23 s of 812 s: in 31 stalls of up to 250 ms, 2.00 s of"), "{text}");
        let all: usize = results.all_cells().map(|cell| cell.bursts).sum::<usize>() + 1;
        assert!(
            text.contains(&format!("wakes 5 ms late or more. 1 of {all} bursts have")) && text.contains("(1 were)"),
            "{text}"
        );
        watched.how = How::Ordinary;
        results.watched = Some(watched);
        assert!(section(&results).contains("`SCHED_FIFO` is not permitted"));
    }

    #[test]
    fn a_cell_of_which_nothing_is_left_has_no_number() {
        let mut cell = Cell::default();
        cell.add(Sample { set_aside_ms: vec![99.0; 2], ..sample(&[], 1290.0) });
        assert_eq!(times(&cell), "–; 0 + 2, unreliable");
    }

    #[test]
    fn a_table_that_was_not_measured_is_left_out() {
        let mut results = results(&[30.0]);
        let is_k = |spec: RowSpec| spec == RowSpec::one(COUNT, spec.busy);
        results.cells.rows.retain(|row| is_k(row.spec));
        let text = section(&results);
        assert!(text.contains("against K busy ones") && !text.contains("One flow of N requests"), "{text}");
        let attackers = section(&nothing(&[Table::A]));
        assert!(attackers.contains("Attackers that") && !attackers.contains("Throughput"), "{attackers}");
    }

    #[test]
    fn why_the_service_varies_is_told_where_it_does() {
        let mut results = nothing(&[Table::K]);
        let told = |results: &Results| section(results).contains("varies by");
        assert!(!told(&results));
        results.jitter_ms = 1.0;
        assert!(told(&results) && section(&results).contains("varies by 1 ms either way"));
    }
}
