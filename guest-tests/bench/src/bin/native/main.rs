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
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vublk_bench::process::{Managed, ProcessError};
use vublk_bench::publish::{ChartError, Machine, Publication, PublishError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

const EXIT_FAILED: u8 = 1;
const EXIT_NOT_STARTED: u8 = 3;

/// How often to look whether the measurement has ended or is to end.
const LOOK: Duration = Duration::from_millis(500);

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
    #[error("cannot make a directory for logs: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("the measurement ended early:\n{0}")]
    Ended(String),
    #[error("the measurement's samples make no sense: {0}")]
    Samples(#[source] serde_json::Error),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("interrupted, nothing written")]
    Interrupted,
}

impl NativeError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Directory(_) | Self::Signals(_) | Self::Process(_) | Self::Ended(_) => EXIT_NOT_STARTED,
            Self::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_FAILED,
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

/// Runs the measurement; shows what it says.
fn measure(line: &Line, interrupted: &AtomicBool) -> Result<Measured, NativeError> {
    let directory = tempfile::Builder::new().prefix("native-").tempdir().map_err(NativeError::Directory)?;
    let mut command = Command::new(&line.measure);
    command.args(["--rounds", &line.rounds.to_string(), "--seconds", &line.seconds.to_string()]);
    command.args(["--warmup", &warmup(line).to_string()]);
    let mut measuring = Managed::spawn("measure", command, directory.path())?;
    loop {
        match measuring.wait_for_line(LOOK, |text| Some(text.to_owned())) {
            Ok(text) if text.starts_with('{') => return serde_json::from_str(&text).map_err(NativeError::Samples),
            Ok(text) => eprintln!("{text}"),
            Err(_) if measuring.exited().is_some() => return Err(NativeError::Ended(measuring.log_tail())),
            Err(_) => {}
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(NativeError::Interrupted);
        }
    }
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

    fn measured_by(script: &str, interrupted: bool) -> Result<Measured, NativeError> {
        use std::fs;
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("measure");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let line = Line::try_parse_from(["native", "--measure", path.to_str().unwrap()]).unwrap();
        measure(&line, &AtomicBool::new(interrupted))
    }

    #[test]
    fn a_measurement_that_fails_is_quoted() {
        let ended = measured_by("echo progress; echo 'no guest' >&2; exit 3", false).unwrap_err();
        assert!(matches!(&ended, NativeError::Ended(log) if log == "no guest"), "{ended}");
        let nonsense = measured_by("echo '{\"tables\": 3}'", false).unwrap_err();
        assert!(matches!(nonsense, NativeError::Samples(_)), "{nonsense}");
    }

    #[test]
    fn an_interrupt_ends_the_measurement() {
        let error = measured_by("echo progress; sleep 60", true).unwrap_err();
        assert!(matches!(error, NativeError::Interrupted), "{error}");
    }
}
