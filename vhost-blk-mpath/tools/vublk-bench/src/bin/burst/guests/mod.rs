//! The measurement with two real guests, each with a disk of its own over the same path. `guest-tests/burst/measure` starts the
//! guests and measures. This module judges and publishes.

mod reads;

use crate::CommandLine;
use crate::cell::quantile;
use crate::rows::COUNT;
use crate::tables::ALONE;
use crate::targets::{FIFO, OURS, SERVICES};
use mpath_sim::bursts::scenario::{DEPTH, PAUSE, SERVICE, SLOTS};
use reads::{NotBursts, Read, bursts};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use vublk_bench::harness::{
    Case, Cell, Chart, Column, Failure, Layout, Limit, Machine, Panel, Publication, Results, Row, Sample, Show, Spread,
    Table, Target, measure_rows,
};

pub(crate) const PUBLICATION: Publication = Publication {
    name: "burst-guests",
    command: "make bench-burst",
    document: "scheduler-results.md",
    tables: |results| vec![Table::new("", results.rows.clone(), Layout::AllRows(["bulk disk", "scheduler"]), &COLUMNS)],
    targets,
    chart,
    picture: "The interactive guest's bursts and the bulk guest's IOPS",
};

const COLUMNS: [Column; 5] = [
    ("bursts", Show::Median("bursts", 0)),
    ("p50 ms", Show::Spread("p50_ms", 1)),
    ("p99 ms", Show::Text(p99)),
    ("bulk IOPS", Show::Spread("bulk_iops", 0)),
    ("of alone", Show::Percent(0, |results, _, cell| bulk_percent(results, cell))),
];

/// The p99 of the bursts of all rounds together, and the least and the most of the rounds.
fn p99(_: &Results, _: &Row, cell: &Cell) -> Option<String> {
    let Spread { min, max, .. } = cell.get("p99_ms")?;
    Some(format!("{:.1} ({min:.1}–{max:.1})", cell.median("all_p99_ms")?))
}

/// The virtqueues of the bulk guest, each of which is a flow. It has as many virtual processors.
const FLOWS: usize = 8;
/// The weight of the interactive guest's disk.
const WEIGHT: usize = 100;
/// Weights of the bulk guest's disk: that of the other disk, which is the default, and that weight for each of its virtqueues.
const BULK_WEIGHTS: [usize; 2] = [WEIGHT, WEIGHT * FLOWS];
/// Bursts that begin within this time do not count. All virtqueues are new to a scheduler that comes into force, and fio has just
/// started.
const SETTLE: Duration = Duration::from_secs(2);
/// How long a cell is measured.
const TIME: Duration = Duration::from_secs(4);
pub(crate) fn measure(line: &CommandLine, machine: Machine, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let schedulers: Vec<String> = line.schedulers().iter().map(ToString::to_string).collect();
    eprintln!("two guests × {} schedulers × {} rounds", schedulers.len(), line.writing.rounds());
    let mut command = Command::new(&line.measure);
    for (option, value) in [
        ("--slots", SLOTS.to_string()),
        ("--delay-ms", SERVICE.as_millis().to_string()),
        ("--count", COUNT.to_string()),
        ("--pause-ms", PAUSE.as_millis().to_string()),
        ("--flows", FLOWS.to_string()),
        ("--depth", DEPTH.to_string()),
        ("--rounds", line.writing.rounds().to_string()),
        ("--seconds", TIME.as_secs_f64().to_string()),
        ("--settle", SETTLE.as_secs_f64().to_string()),
        ("--bulk-weights", BULK_WEIGHTS.map(|weight| weight.to_string()).join(",")),
        ("--schedulers", schedulers.join(",")),
    ] {
        command.args([option, &value]);
    }
    let results = Results::new(machine, &[("rounds", line.writing.rounds().into())]);
    let mut results = measure_rows(command, results, interrupted)?;
    let cells: Vec<usize> = results.rows.iter().map(|row| row.cells.len()).collect();
    if cells != [1, schedulers.len(), schedulers.len()] {
        return Err(Failure::Failed(format!("the measurement has rows of {cells:?} cells")));
    }
    judge(&mut results, COUNT as usize)
        .map_err(|error| Failure::Failed(format!("fio in the interactive guest: {error}")))?;
    Ok(results)
}

/// Makes the figures of each sample from fio's log in it: those of its bursts of `count` reads.
fn judge(results: &mut Results, count: usize) -> Result<(), NotBursts> {
    for cell in results.rows.iter_mut().flat_map(|row| &mut row.cells) {
        let mut all = Vec::new();
        for sample in std::mem::replace(cell, Cell::new(&cell.contender)).samples {
            let found = bursts(&Read::of(&sample), count, PAUSE.into(), &(SETTLE..SETTLE + TIME))?;
            let ms: Vec<f64> = found.iter().map(|burst| burst.took().as_micros() as f64 / 1e3).collect();
            let [p50, p99] = [0.5, 0.99].map(|part| quantile(ms.iter().copied(), part));
            cell.add(Sample::new(&[("p50_ms", p50), ("p99_ms", p99), ("bulk_iops", sample.figures["bulk_iops"])]));
            all.extend(ms);
        }
        cell.set("bursts", all.len() as f64);
        cell.set("all_p99_ms", quantile(all.into_iter(), 0.99));
    }
    Ok(())
}

fn alone(results: &Results) -> Option<&Cell> {
    results.row("", ALONE)?.cell(ALONE)
}

/// The bulk guest's IOPS in percent of its IOPS when it is alone.
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

fn chart(results: &Results) -> Chart {
    let figures = [
        ("p50 of a burst, ms", "p50_ms"),
        ("p99 of a burst, ms", "all_p99_ms"),
        ("the bulk guest's IOPS", "bulk_iops"),
    ];
    let panels = results.rows.iter().filter(|row| row.name != ALONE).flat_map(|row| {
        let mut row = row.clone();
        row.cells.splice(0..0, alone(results).cloned());
        figures.map(|(title, figure)| Panel::new(format!("bulk of {}: {title}", row.name), &row, figure))
    });
    Chart { columns: 3, panels: panels.collect(), limit: "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bursts of two reads, with the same times under both weights; 30 ms and 1300 IOPS alone.
    fn results(together: &[(&str, &[u64], f64)]) -> Results {
        let row = |name: &str, cells: &[(&str, &[u64], f64)]| {
            let mut row = Row::new("", name, cells.iter().map(|(contender, ..)| *contender));
            for (cell, (_, times, bulk_iops)) in row.cells.iter_mut().zip(cells) {
                let mut sample = Sample::new(&[("bulk_iops", *bulk_iops)]);
                let twice = |of: &dyn Fn(usize, u64) -> u64| {
                    let times = times.iter().enumerate();
                    times.flat_map(|(index, took)| [of(index, *took) as f64; 2]).collect::<Vec<_>>()
                };
                sample.lists.insert("ends_ms".into(), twice(&|index, took| 2500 + 500 * index as u64 + took));
                sample.lists.insert("took_ns".into(), twice(&|_, took| took * 1_000_000));
                cell.add(sample);
            }
            row
        };
        let mut results = Results::new(Machine::look(None), &[]);
        results.rows.push(row(ALONE, &[(ALONE, &[30, 30], 1300.0)]));
        results.rows.extend(BULK_WEIGHTS.map(|weight| row(&format!("weight {weight}"), together)));
        judge(&mut results, 2).unwrap();
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
