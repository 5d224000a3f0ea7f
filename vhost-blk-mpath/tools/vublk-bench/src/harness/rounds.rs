//! Rounds in which the contenders take turns.

use super::program::Failure;
use super::results::{Row, Sample};
use super::spread::grouped;
use crate::options::Options;
use crate::report::Report;
use crate::session::{self, Progress, RunError};
use crate::stack::Stack;
use std::fmt::Display;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A row that is going to be measured.
#[derive(Debug, Clone)]
pub struct PlannedRow<R, C> {
    pub spec: R,
    /// A cell for each contender, in their order.
    pub row: Row,
    pub contenders: Vec<C>,
    /// How often each cell is measured.
    pub rounds: u16,
}

impl<R, C: Display> PlannedRow<R, C> {
    pub fn new(table: &str, name: &str, spec: R, contenders: Vec<C>, rounds: u16) -> Self {
        let names: Vec<String> = contenders.iter().map(ToString::to_string).collect();
        let row = Row::new(table, name, names.iter().map(String::as_str));
        Self { spec, row, contenders, rounds }
    }
}

/// A bench that measures cells.
pub trait Bench<R, C> {
    /// Prepares a round of a row; `place` is the row's place in the plan.
    fn begin(&mut self, _row: &R, _round: u16, _place: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Measures a cell.
    fn cell(&mut self, row: &PlannedRow<R, C>, contender: &C) -> Result<Sample, Failure>;

    /// Ends a round of a row.
    fn end(&mut self, _row: &R) -> Result<(), Failure> {
        Ok(())
    }
}

/// Measures all rounds of all rows. A round of every row is measured before the next round. Prints a line for each cell with the
/// figures named by `shown`.
pub fn measure<R, C: Display>(
    rows: &mut [PlannedRow<R, C>],
    bench: &mut impl Bench<R, C>,
    shown: &[&str],
) -> Result<(), Failure> {
    for round in 0..rows.iter().map(|row| row.rounds).max().unwrap_or(0) {
        for (place, planned) in rows.iter_mut().enumerate().filter(|(_, planned)| round < planned.rounds) {
            bench.begin(&planned.spec, round, place)?;
            // Each round begins with another contender.
            let count = planned.contenders.len();
            for index in (0..count).map(|place| (place + usize::from(round)) % count) {
                let contender = &planned.contenders[index];
                let sample = bench.cell(planned, contender)?;
                let figures = shown.iter().filter_map(|name| {
                    let value = *sample.figures.get(*name)?;
                    Some(format!("{name} {}", if value < 100.0 { format!("{value:.2}") } else { grouped(value) }))
                });
                let figures: Vec<String> = figures.collect();
                let (number, rounds, name) = (round + 1, planned.rounds, &planned.row.name);
                eprintln!("round {number}/{rounds}: {name:<40} {contender:<21} {}", figures.join(", "));
                planned.row.cells[index].add(sample);
            }
            bench.end(&planned.spec)?;
        }
    }
    Ok(())
}

/// Runs a load, and calls `progress` each `interval`. Fails if it was interrupted or any request failed.
pub fn measure_options(
    what: &str,
    stack: &Stack,
    options: &Options,
    interrupted: &AtomicBool,
    interval: Duration,
    progress: impl FnMut(Progress),
) -> Result<Report, Failure> {
    checked(what, stack, session::run_watched(options, interrupted, interval, progress))
}

/// The report of a load. Fails if it was interrupted or any request failed.
pub fn checked(what: &str, stack: &Stack, report: Result<Report, RunError>) -> Result<Report, Failure> {
    let failed = |text: String| Failure::Failed(format!("{what}: {text}\n{}", stack.logs()));
    match report.map_err(|error| failed(error.to_string()))? {
        Report { interrupted: true, .. } => Err(Failure::Interrupted),
        report if report.ok => Ok(report),
        report => Err(failed(report.table())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Order(Vec<String>);

    impl Bench<char, &'static str> for Order {
        fn begin(&mut self, row: &char, round: u16, place: usize) -> Result<(), Failure> {
            self.0.push(format!("{row}{round}{place}"));
            Ok(())
        }

        fn cell(&mut self, _: &PlannedRow<char, &'static str>, contender: &&'static str) -> Result<Sample, Failure> {
            self.0.push((*contender).to_owned());
            Ok(Sample::new(&[("place", self.0.len() as f64)]))
        }
    }

    #[test]
    fn every_contender_has_every_place() {
        let row = |name: char, rounds| PlannedRow::new("t", &name.to_string(), name, vec!["x", "y"], rounds);
        let (mut rows, mut order) = ([row('a', 2), row('b', 1)], Order::default());
        measure(&mut rows, &mut order, &["place"]).unwrap();
        assert_eq!(order.0.join(" "), "a00 x y b01 x y a10 y x");
        let places = |row: usize, contender| rows[row].row.cell(contender).unwrap().samples.len();
        assert_eq!((places(0, "x"), places(1, "x")), (2, 1));
        assert_eq!(rows[0].row.median("y", "place"), Some(5.5));
    }
}
