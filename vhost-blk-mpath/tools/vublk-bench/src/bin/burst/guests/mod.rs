//! The same with two real guests, each with a disk of its own over the same path. `guest-tests/burst/measure` starts the guests and
//! measures; this module judges and publishes.

mod reads;

use crate::CommandLine;
use crate::cell::quantile;
use crate::rows::COUNT;
use crate::section::ALONE;
use crate::targets::{FIFO, OURS, SERVICES};
use mpath_sim::bursts::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use reads::{NotBursts, Read, bursts};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Case, Cell, Chart, Column, Failure, Limit, Machine, Panel, Publication, Results, Row, Sample, Section, Spread,
    Target,
};
use vublk_bench::measurement;
use vublk_bench::units::about;

pub(crate) const PUBLICATION: Publication = Publication {
    name: "burst-guests",
    command: "make bench-burst",
    document: "scheduler-results.md",
    targets,
    section,
    chart,
};

/// Virtqueues of the bulk guest, and so its virtual processors: a flow each.
const FLOWS: usize = 8;
/// The weight of the interactive guest's disk.
const WEIGHT: usize = 100;
/// Weights of the bulk guest's disk: the same, which is the default, and as much for each virtqueue.
const BULK_WEIGHTS: [usize; 2] = [WEIGHT, WEIGHT * FLOWS];
/// All virtqueues are new to a scheduler that comes into force, and fio starts. Bursts that begin by then do not count.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a cell is measured.
const TIME: Duration = Duration::from_secs(4);
/// To start fio in an emulated guest, and to fetch its log.
const PER_CELL: Duration = Duration::from_millis(1800);
/// Starting the guests.
const ONCE: Duration = Duration::from_secs(20);

/// What `guest-tests/burst/measure` prints.
#[derive(Debug, Deserialize)]
struct Measured {
    guests: BTreeMap<String, BTreeMap<String, Value>>,
    commands: Vec<String>,
    /// The bulk guest while the interactive one does nothing, by round.
    bulk_alone_iops: Vec<f64>,
    /// The interactive guest while the bulk one does nothing.
    alone: Vec<MeasuredSample>,
    together: Vec<MeasuredCell>,
}

#[derive(Debug, Deserialize)]
struct MeasuredCell {
    bulk_weight: usize,
    scheduler: String,
    samples: Vec<MeasuredSample>,
}

#[derive(Debug, Deserialize)]
struct MeasuredSample {
    reads: Vec<Read>,
    bulk_iops: f64,
}

/// Measures everything, then writes it.
pub(crate) fn measure(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<(), Failure> {
    let schedulers: Vec<String> = line.schedulers().iter().map(ToString::to_string).collect();
    let cell = SETTLE + TIME + PER_CELL;
    // The interactive guest alone, the bulk one alone for half as long, and both.
    let round = cell * (BULK_WEIGHTS.len() * schedulers.len() + 1) as u32 + cell / 2;
    let time = ONCE + round * u32::from(line.rounds);
    eprintln!("two guests × {} schedulers × {} rounds, {}", schedulers.len(), line.rounds, about(time));
    let mut command = Command::new(&line.measure);
    for (option, value) in [
        ("--slots", SLOTS.to_string()),
        ("--delay-ms", SERVICE.as_millis().to_string()),
        ("--count", COUNT.to_string()),
        ("--pause-ms", PAUSE.as_millis().to_string()),
        ("--flows", FLOWS.to_string()),
        ("--depth", DEPTH.to_string()),
        ("--rounds", line.rounds.to_string()),
        ("--seconds", TIME.as_secs_f64().to_string()),
        ("--settle", SETTLE.as_secs_f64().to_string()),
        ("--bulk-weights", BULK_WEIGHTS.map(|weight| weight.to_string()).join(",")),
        ("--schedulers", schedulers.join(",")),
    ] {
        command.args([option, &value]);
    }
    let samples = measurement::measure(command, interrupted)?;
    let mut results = Results::new(machine, &[("rounds", line.rounds.into())]);
    let measured: Measured = measurement::parse(&samples)?;
    let (cells, expected) = (measured.together.len(), BULK_WEIGHTS.len() * schedulers.len());
    if cells != expected {
        return Err(Failure::Failed(format!("the measurement has {cells} cells of two guests, not {expected}")));
    }
    let added = add(&mut results, measured, COUNT as usize);
    added.map_err(|error| Failure::Failed(format!("fio in the interactive guest: {error}")))?;
    PUBLICATION.publish(&line.writing, &results, &samples)
}

fn add(results: &mut Results, measured: Measured, count: usize) -> Result<(), NotBursts> {
    for (guest, facts) in measured.guests {
        let known = ["kernel", "fio", "accel", "cpus", "queues"].into_iter();
        let known = known.filter_map(|name| Some((format!("{guest}_{name}"), facts.get(name)?.clone())));
        results.settings.extend(known);
    }
    results.commands = measured.commands;
    let mut alone = cell(ALONE, &measured.alone, count)?;
    alone.figures.insert("bulk_iops".to_owned(), Spread::of(measured.bulk_alone_iops.into_iter()));
    results.rows.push(Row { name: ALONE.to_owned(), cells: vec![alone], ..Row::default() });
    for weight in BULK_WEIGHTS {
        let cells = measured.together.iter().filter(|cell| cell.bulk_weight == weight);
        let cells = cells.map(|measured| cell(&measured.scheduler, &measured.samples, count));
        let name = format!("weight {weight}");
        results.rows.push(Row { name, cells: cells.collect::<Result<_, _>>()?, ..Row::default() });
    }
    Ok(())
}

fn cell(contender: &str, samples: &[MeasuredSample], count: usize) -> Result<Cell, NotBursts> {
    let (mut cell, mut all) = (Cell::new(contender), Vec::new());
    for sample in samples {
        let found = bursts(&sample.reads, count, PAUSE, &(SETTLE..SETTLE + TIME))?;
        let ms: Vec<f64> = found.iter().map(|burst| burst.took().as_micros() as f64 / 1e3).collect();
        let [p50, p99] = [0.5, 0.99].map(|part| quantile(ms.iter().copied(), part));
        cell.add(Sample::new(&[("p50_ms", p50), ("p99_ms", p99), ("bulk_iops", sample.bulk_iops)]));
        all.extend(ms);
    }
    cell.set("bursts", all.len() as f64);
    if !all.is_empty() {
        cell.set("all_p99_ms", quantile(all.into_iter(), 0.99));
    }
    Ok(cell)
}

fn alone(results: &Results) -> Option<&Cell> {
    results.row("", ALONE)?.cell(ALONE)
}

/// The bulk guest's IOPS in percent of those it has alone.
fn bulk_percent(results: &Results, cell: &Cell) -> Option<f64> {
    Some(cell.median("bulk_iops")? / alone(results)?.median("bulk_iops")? * 100.0)
}

fn targets(results: &Results) -> Vec<Target> {
    let rows = || results.rows.iter().filter(|row| row.name != ALONE && row.cell(OURS).is_some());
    let by_virtqueue = format!("weight {}", WEIGHT * FLOWS);
    let over_fifo = rows().filter(|row| row.name == by_virtqueue).filter_map(|row| {
        let times = row.median(FIFO, "all_p99_ms")? / row.median(OURS, "all_p99_ms")?;
        Some(Case::new(&format!("p99, {}", row.name), OURS, times, Limit::AtLeast(3.0), "times"))
    });
    let bounded = rows().flat_map(|row| {
        [("p50", "p50_ms"), ("p99", "all_p99_ms")].map(|(name, figure)| {
            let limit = alone(results)?.median(figure)? + SERVICES * SERVICE.as_millis() as f64;
            let name = format!("{name}, {}", row.name);
            Some(Case::new(&name, OURS, row.median(OURS, figure)?, Limit::AtMost(limit), "ms"))
        })
    });
    let keeps = rows().filter_map(|row| {
        let percent = bulk_percent(results, row.cell(OURS)?)?;
        Some(Case::new(&row.name, OURS, percent, Limit::AtLeast(25.0), "%"))
    });
    vec![
        Target::new(
            "`burst-credit`: p99 of a burst ≥ 3 × better than with `fifo`, where all virtqueues count the same",
            over_fifo,
        ),
        Target::new(
            "`burst-credit`: p50 and p99 of a burst ≤ those of the guest alone + 1.1 services",
            bounded.flatten(),
        ),
        Target::new("`burst-credit`: the bulk guest keeps ≥ 25 % of what it has alone", keeps),
    ]
}

fn section(results: &Results, targets: &[Target], section: &mut Section) {
    section.paragraph(&format!(
        "Bursts of {COUNT} reads of 4 KiB by the interactive guest, while the bulk guest keeps {FLOWS} virtqueues filled with {DEPTH} reads each. \
         `alone` is the floor: each guest while the other one does nothing. p50 is the median (least–most) of the rounds. p99 is that of \
         all bursts (least–most of the rounds). The interactive guest's disk has a weight of {WEIGHT}."
    ));
    let columns = [
        Column::median("bursts", "bursts", 0),
        Column::spread("p50 ms", "p50_ms", 1),
        Column::new("p99 ms", |_, cell| {
            let figures = cell.median("all_p99_ms").zip(cell.get("p99_ms"));
            figures.map_or("–".to_owned(), |(all, rounds)| format!("{all:.1} ({:.1}–{:.1})", rounds.min, rounds.max))
        }),
        Column::spread("bulk IOPS", "bulk_iops", 0),
        Column::value("of alone", 0, " %", |_, cell| bulk_percent(results, cell)),
    ];
    section.table(["bulk disk", "scheduler"], results.rows.iter(), &columns);
    section.targets(targets);
    let ideal = SERVICE.as_millis() as f64 * f64::from(COUNT.div_ceil(SLOTS as u32));
    let added = alone(results).and_then(|alone| alone.median("p50_ms")).unwrap_or(f64::NAN) - ideal;
    section.paragraph(&format!(
        "Two guests under QEMU at the same time, each with one of two disks that share one path. The path's window of {SLOTS} requests makes \
         {SLOTS} slots of its target's delay of {} ms. A burst takes {ideal} ms at least. So emulation, daemon and target add {added:.1} ms to \
         the p50 of the interactive guest alone. fio in this guest submits {COUNT} random reads at once, waits for all, pauses for {} ms and \
         begins again. A burst lasts from its first read until fio has all answers, by fio's log. {} rounds, schedulers in turn. fio in the \
         bulk guest runs through all of them, while `mpathctl scheduler set` and `weight set` switch. For {} s after each switch nothing \
         counts, then all bursts that begin within {} s. IOPS of the bulk guest are what the daemon sent for it in that time. Over a \
         round they agree with fio's count within 2 %.",
        SERVICE.as_millis(),
        PAUSE.as_millis(),
        results.setting("rounds"),
        SETTLE.as_secs(),
        TIME.as_secs()
    ));
    let of = |name: &str| results.setting(name);
    section.paragraph(&format!(
        "Guests: Linux {}, {}, under {}. The interactive guest has {} CPU and {} virtqueue, the bulk guest {} and {}.",
        of("interactive_kernel"),
        of("interactive_fio"),
        of("interactive_accel"),
        of("interactive_cpus"),
        of("interactive_queues"),
        of("bulk_cpus"),
        of("bulk_queues")
    ));
    let picture = "The interactive guest's bursts and the bulk guest's IOPS";
    section.machine(results, "The guests run on the same cores.", picture, PUBLICATION.name);
}

fn chart(results: &Results) -> Chart {
    let contenders: Vec<String> = results.contenders().into_iter().map(str::to_owned).collect();
    let panel = |row: &Row, title: &str, figure: &str| {
        let mut row = row.clone();
        row.cells.splice(0..0, alone(results).cloned());
        Panel::new(&format!("bulk of {}: {title}", row.name), &row, figure, &contenders)
    };
    let figures = [
        ("p50 of a burst, ms", "p50_ms"),
        ("p99 of a burst, ms", "all_p99_ms"),
        ("the bulk guest's IOPS", "bulk_iops"),
    ];
    let rows = results.rows.iter().filter(|row| row.name != ALONE);
    let panels = rows.flat_map(|row| figures.map(|(title, figure)| panel(row, title, figure))).collect();
    Chart { panels, contenders: contenders.clone(), columns: 3, limit: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of two reads, with the same times under both weights; 30 ms and 1300 IOPS alone.
    fn results(together: &[(&str, &[u64], f64)]) -> Results {
        let sample = |times: &[u64], bulk_iops: f64| {
            let read = |(index, took): (usize, &u64)| {
                let at = 2500 + 500 * index as u64;
                [Read(at + took, took * 1_000_000); 2]
            };
            MeasuredSample { reads: times.iter().enumerate().flat_map(read).collect(), bulk_iops }
        };
        let cells = BULK_WEIGHTS.into_iter().flat_map(|bulk_weight| {
            together.iter().map(move |(scheduler, times, iops)| MeasuredCell {
                bulk_weight,
                scheduler: (*scheduler).to_owned(),
                samples: vec![sample(times, *iops)],
            })
        });
        let measured = Measured {
            guests: BTreeMap::new(),
            commands: Vec::new(),
            bulk_alone_iops: vec![1300.0],
            alone: vec![sample(&[30, 30], 0.0)],
            together: cells.collect(),
        };
        let mut results = Results::new(Machine::look(None), &[]);
        add(&mut results, measured, 2).unwrap();
        results
    }

    #[test]
    fn every_target_can_be_met_and_missed() {
        let met = |ours: &[u64], iops| {
            let results = results(&[(FIFO, &[200, 230], 1200.0), (OURS, ours, iops)]);
            targets(&results).iter().map(Target::is_met).collect::<Vec<_>>()
        };
        assert_eq!(met(&[34, 41], 330.0), [Some(true); 3]);
        assert_eq!(met(&[34, 77], 330.0), [Some(false), Some(false), Some(true)]);
        assert_eq!(met(&[42, 42], 324.0), [Some(true), Some(false), Some(false)]);
        assert!(targets(&results(&[(FIFO, &[200], 1200.0)])).iter().all(|target| target.is_met().is_none()));
    }

    #[test]
    fn the_tail_is_that_of_all_bursts() {
        let results = results(&[(FIFO, &[200, 230, 210], 1170.0)]);
        let cell = results.rows[2].cell(FIFO).unwrap();
        let figures = ["bursts", "p50_ms", "all_p99_ms"].map(|name| cell.median(name).unwrap());
        assert_eq!((figures, bulk_percent(&results, cell).map(f64::round)), ([3.0, 210.0, 230.0], Some(90.0)));
    }
}
