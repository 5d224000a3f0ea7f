//! The section of docs/scheduler-results.md, and its picture.

use crate::bench::LIMIT_BURST;
use crate::bursts::{PAUSE_LEAST, PAUSE_MOST};
use crate::rows::{BUSY_FLOWS, COUNT, LIMIT_IOPS, ROWS, RowSpec, Table, WINDOWS, threads_table};
use crate::{JITTER, PUBLICATION};
use mpath_core::SchedulerKind;
use mpath_sim::bursts::scenario::{DEPTH, SERVICE, SLOTS};
use vublk_bench::harness::{Cell, Chart, Column, Panel, Results, Row, Section, Target};
use vublk_bench::stalls::{How, Watched};

/// The contender that stands for the floor.
pub(crate) const ALONE: &str = "alone";

/// A row with its floor as the first cell.
fn with_floor(results: &Results, table: &str, spec: RowSpec, row: &Row) -> Row {
    let mut row = row.clone();
    let floor = results.row(table, &spec.alone().name()).and_then(|floor| floor.cells.first());
    let floor = floor.filter(|floor| spec.interactive.flows > 0 && floor.get("p50_ms").is_some());
    if let Some(floor) = floor {
        row.cells.insert(0, Cell { contender: ALONE.to_owned(), ..floor.clone() });
    }
    row
}

fn rows(results: &Results, table: Table) -> Vec<Row> {
    table.rows(results).into_iter().map(|(spec, row)| with_floor(results, ROWS, spec, row)).collect()
}

/// Bursts that count + those set aside.
fn bursts<'a>() -> Column<'a> {
    Column::new("bursts", |_, cell| {
        let Some(bursts) = cell.median("bursts") else { return "–".to_owned() };
        let unreliable = if cell.get("unreliable").is_some() { " !" } else { "" };
        format!("{bursts} + {}{unreliable}", cell.median("set_aside").unwrap_or(0.0))
    })
}

pub(crate) fn section(results: &Results, targets: &[Target], section: &mut Section) {
    let [service, jitter] = [SERVICE, JITTER].map(|time| time.as_millis());
    section.paragraph(&format!(
        "{SLOTS} slots: one path with a window of {SLOTS} requests to a target that answers after {service} ms ± {jitter} ms, at random. N: requests of a \
         burst. K: busy flows. `alone` is the floor: the bursts without any other flow. A single request alone takes one service. \
         p50 is the median (least–most) of the rounds, p99 that of the bursts of all rounds together. bursts: how many bursts that is + \
         how many were set aside, because the machine stood still meanwhile; `!` if that were too many. published: figures \
         of the publication, without credits (`fifo`) and with credits (`published`)."
    ));
    let one = |table| {
        vec![
            Column::spread("p50 ms", "p50_ms", 1),
            Column::median("p99 ms", "p99_ms", 1),
            bursts(),
            Column::new("published", move |row, cell| published(table, row, cell)),
            Column::new("IOPS", |_, cell| {
                let iops = cell.get("iops").filter(|_| cell.contender != ALONE);
                iops.map_or("–".to_owned(), |iops| iops.text(0))
            }),
            Column::value("busy", 0, " %", |_, cell| cell.median("busy_percent")),
        ]
    };
    for (table, title) in [
        (Table::K, format!("One flow with bursts of {COUNT} against K busy flows. busy: their share of the answers.")),
        (Table::N, format!("One flow with bursts of N against {BUSY_FLOWS} busy flows.")),
    ] {
        let rows = rows(results, table);
        if !rows.is_empty() {
            section.paragraph(&title);
            section.table(["flows", "scheduler"], rows.iter(), &one(table));
        }
    }
    let kept = || {
        [
            Column::spread("busy %", "busy_percent", 1),
            Column::new("worst second", |_, cell| {
                cell.get("worst_second_percent").map_or("–".to_owned(), |worst| format!("{:.1}", worst.min))
            }),
            Column::new("gap ms", |_, cell| {
                cell.get("longest_gap_ms").map_or("–".to_owned(), |gap| format!("{:.0}", gap.max))
            }),
        ]
    };
    let attacks = rows(results, Table::A);
    if !attacks.is_empty() {
        section.paragraph(
            "Attackers send their requests at once, wait for all and begin again without a pause. attackers: the share of all attackers \
             together. busy: the share of the busy flows. worst second: their share in the worst second of all \
             rounds, in percent. gap: the longest time without an answer to any busy flow. p50 and p99: bursts of the victim, a flow that \
             pauses and stays within a turn and its share.",
        );
        let mut columns = vec![Column::median("attackers %", "attackers_percent", 1)];
        columns.extend(kept());
        columns.extend([Column::spread("p50 ms", "p50_ms", 1), Column::median("p99 ms", "p99_ms", 1), bursts()]);
        section.tables("scheduler", attacks.iter(), |row| format!("{}:", row.name), &columns);
    }
    let many = rows(results, Table::M);
    if !many.is_empty() {
        section.paragraph(&format!(
            "Several flows with bursts of {COUNT} at once against {BUSY_FLOWS} busy flows. alone: the same flows without the busy ones."
        ));
        let mut columns = vec![
            Column::median("mean ms", "mean_ms", 1),
            Column::spread("p50 ms", "p50_ms", 1),
            Column::median("p99 ms", "p99_ms", 1),
            bursts(),
        ];
        columns.extend(kept());
        section.tables("scheduler", many.iter(), |row| format!("{}:", row.name), &columns);
    }
    threads(results, section);
    section.targets(targets);
    if let Some(watched) = results.settings.get("watched").and_then(|value| serde_json::from_value(value.clone()).ok())
    {
        section.paragraph(&stalls(results, &watched));
    }
    let [least, most] = [PAUSE_LEAST, PAUSE_MOST].map(|pause| pause.as_millis());
    section.paragraph(&format!(
        "{} rounds of `--seconds {}`, schedulers in turn. For each row the front-end connects once and keeps K virtqueues filled with {DEPTH} reads of 4 KiB \
         each. `mpathctl scheduler set` switches the scheduler under that load, by way of `fifo`, so that each begins without \
         knowledge. All virtqueues are new to it then. So nothing counts until each has sent what a new one may send as a \
         burst, and each flow that sends bursts has ended one. The first virtqueues send N reads with one notification, wait for all, \
         pause for {least} to {most} ms and begin again. Attackers do not pause. A cell begins with the end of a burst. Bursts \
         count that begin in its time. Rows of attackers, of several flows and of I/O threads have 3 rounds at the most; cells of the \
         first two last 4 s at least. One thread drives all virtqueues.",
        results.setting("rounds"),
        results.setting("seconds"),
    ));
    section.machine(results, "The front-end runs on the same cores.", "p50 of a burst by K, N and m", PUBLICATION.name);
}

fn published(table: Table, row: &Row, cell: &Cell) -> String {
    let spec = table.specs().into_iter().find(|spec| spec.name() == row.name);
    let [without, with] = spec.and_then(|spec| table.published(spec)).map_or([None; 2], |both| both.map(Some));
    let figure = match cell.contender.parse() {
        Ok(SchedulerKind::Fifo) => without,
        Ok(SchedulerKind::Published) => with,
        _ => None,
    };
    figure.map_or(String::new(), |ms| ms.to_string())
}

/// The table of I/O threads.
fn threads(results: &Results, section: &mut Section) {
    for (index, window) in WINDOWS.into_iter().enumerate() {
        let table = threads_table(window);
        let headline = RowSpec::one(COUNT, BUSY_FLOWS);
        let limited = RowSpec { busy: BUSY_FLOWS, is_limited: true, ..RowSpec::default() };
        let found = [headline, limited]
            .into_iter()
            .filter_map(|spec| results.row(&table, &spec.name()).map(|row| with_floor(results, &table, spec, row)));
        let rows: Vec<Row> = found.collect();
        if rows.is_empty() {
            continue;
        }
        if index == 0 {
            section.paragraph(&format!(
                "{} slots in one I/O thread, or divided among two (13 cannot be halved). Each I/O thread schedules its own \
                 virtqueues. busy flow: IOPS of the busy flow with least and of the one with most. {LIMIT_IOPS} IOPS: \
                 `mpathctl limit set --iops {LIMIT_IOPS} --burst {LIMIT_BURST}` holds the disk back.",
                window.0 * window.1
            ));
        }
        section.paragraph(&format!("{table}:"));
        let columns = [
            Column::spread("p50 ms", "p50_ms", 1),
            Column::median("p99 ms", "p99_ms", 1),
            Column::spread("IOPS", "iops", 0),
            Column::value("busy", 0, " %", |_, cell| cell.median("busy_percent")),
            Column::new("busy flow", |_, cell| {
                let [least, most] = ["busy_least_iops", "busy_most_iops"].map(|name| cell.median(name));
                least.zip(most).map_or("–".to_owned(), |(least, most)| format!("{least:.0} / {most:.0}"))
            }),
        ];
        section.table(["flows", "scheduler"], rows.iter(), &columns);
    }
}

/// How long the machine stood still, and which bursts that set aside.
fn stalls(results: &Results, watched: &Watched) -> String {
    let cells = || results.rows.iter().flat_map(|row| &row.cells);
    let sum = |name: &str| cells().filter_map(|cell| cell.median(name)).sum::<f64>();
    let (aside, repeated) = (sum("set_aside"), sum("repeated"));
    let all = sum("bursts") + aside;
    let how = match watched.how {
        How::Fifo => "with priority `SCHED_FIFO`, which nothing that is measured has",
        How::Ordinary => "(`SCHED_FIFO` is not permitted, so the time for which it waited for others is taken off)",
    };
    let Watched {
        threshold_ms, seconds, stalls, stalled_seconds, longest_ms, processor_seconds, steal_seconds, ..
    } = watched;
    format!(
        "The machine stood still for {stalled_seconds:.2} s of {seconds:.0} s, in {stalls} stalls of up to {longest_ms:.0} ms: {processor_seconds:.2} s of its \
         processors' time. Their steal time in `/proc/stat`, which includes short ones, is {steal_seconds:.2} s. A thread \
         {how} sleeps for 1 ms at a time on each processor. A stall is a wake-up {threshold_ms} ms late or more. {aside} of {all} \
         bursts met a stall and were set aside: they are in neither p50 nor p99. A cell is measured once more if more than a tenth of \
         a round's bursts was set aside ({repeated} were), and is marked if it happens again. Stalls are taken off the gaps. \
         Shares and throughput are not corrected."
    )
}

pub(crate) fn chart(results: &Results) -> Chart {
    let mut contenders = vec![ALONE.to_owned()];
    contenders.extend(crate::SCHEDULERS.iter().map(ToString::to_string));
    let panel = |(table, title): (Table, &str)| {
        let rows = rows(results, table);
        let mut panel = Panel::logarithmic(title);
        for (spec, row) in table.specs().iter().zip(&rows) {
            let label = match table {
                Table::K => format!("K={}", spec.busy),
                Table::M => format!("m={}", spec.interactive.flows),
                Table::N | Table::A => format!("N={}", spec.interactive.count),
            };
            panel.add(&label, row, "p50_ms", &contenders);
        }
        (!rows.is_empty()).then_some(panel)
    };
    let panels = [
        (Table::K, "Bursts of 32 against K busy flows: p50 in ms, logarithmic"),
        (Table::N, "Bursts of N against 16 busy flows"),
        (Table::M, "m flows with bursts of 32 against 16 busy flows"),
    ];
    Chart { panels: panels.into_iter().filter_map(panel).collect(), contenders, columns: 1, limit: String::new() }
}
