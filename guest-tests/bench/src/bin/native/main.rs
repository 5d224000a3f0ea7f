//! `native`: Linux's own NVMe multipath beside the daemon, in one guest. The guest and what runs in it are
//! `guest-tests/native/measure`'s; medians, tables and picture are made here.

mod chart;
mod document;
mod results;

use clap::Parser;
use results::{Measured, Results};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use vublk_bench::measurement::{self, MeasurementError};
use vublk_bench::publish::{ChartError, Machine, Publication, PublishError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

const EXIT_FAILED: u8 = 1;
const EXIT_NOT_STARTED: u8 = 3;

/// Measures Linux's native NVMe multipath and the daemon in one guest, on two paths of which one is 30 ms slower, and rewrites the
/// published results: DOCS/results/native.json, native.svg and the section of DOCS/benchmarks.md.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit status: 0 measured and written; 1 the results could not be written; 2 bad options; 3 something could not be \
    started or ended; 130 interrupted, nothing written."
)]
struct Line {
    /// Rounds; the median of them is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// How long a cell is measured; a third of it runs before
    #[arg(long, default_value = "0.6", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: f64,

    /// The program that measures
    #[arg(long, default_value = "guest-tests/native/measure", value_name = "PATH")]
    measure: PathBuf,

    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    docs: PathBuf,
}

/// What is wrong with `--seconds`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum SecondsError {
    #[error("is not a number of seconds, as in 3 or 0.5")]
    NoNumber,
    #[error("must be from 0.1 to 60")]
    OutOfRange,
}

fn parse_seconds(text: &str) -> Result<f64, SecondsError> {
    let seconds: f64 = text.parse().map_err(|_| SecondsError::NoNumber)?;
    if (0.1..=60.0).contains(&seconds) { Ok(seconds) } else { Err(SecondsError::OutOfRange) }
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
enum NativeError {
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Measurement(#[from] MeasurementError),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl NativeError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Measurement(MeasurementError::Interrupted) => EXIT_INTERRUPTED,
            Self::Measurement(MeasurementError::Samples(_)) | Self::Chart(_) | Self::Publish(_) => EXIT_FAILED,
            Self::Measurement(_) | Self::Signals(_) => EXIT_NOT_STARTED,
        }
    }
}

fn main() -> ExitCode {
    match native(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("native: {error}");
            error.exit_code().into()
        }
    }
}

fn native(line: &Line) -> Result<(), NativeError> {
    let interrupted = signals::interrupted().map_err(NativeError::Signals)?;
    let machine = Machine::look(None::<&Path>);
    machine.objection().iter().for_each(|objection| eprintln!("warning: {objection}"));
    let measured = measure(line, &interrupted)?;
    publish(line, &Results::new(machine, line.rounds, line.seconds, warmup(line), measured))
}

fn warmup(line: &Line) -> f64 {
    line.seconds / 3.0
}

fn measure(line: &Line, interrupted: &AtomicBool) -> Result<Measured, MeasurementError> {
    let mut command = Command::new(&line.measure);
    command.args(["--rounds", &line.rounds.to_string(), "--seconds", &line.seconds.to_string()]);
    command.args(["--warmup", &warmup(line).to_string()]);
    measurement::measure(command, interrupted)
}

fn publish(line: &Line, results: &Results) -> Result<(), NativeError> {
    let section = document::section(results);
    println!("{section}");
    let publication = Publication { docs: line.docs.clone(), document: "benchmarks.md", section: document::SECTION };
    Ok(publication.write(results, &chart::draw(results)?, &section)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named() {
        for (arguments, message) in [
            ("--seconds 0", "must be from 0.1 to 60"),
            ("--seconds nan", "must be from 0.1 to 60"),
            ("--seconds long", "is not a number of seconds"),
            ("--rounds 0", "invalid value '0' for '--rounds <N>'"),
        ] {
            let error =
                Line::try_parse_from(std::iter::once("native").chain(arguments.split_whitespace())).unwrap_err();
            assert!(error.to_string().contains(message), "{arguments}: {error}");
        }
    }
}
