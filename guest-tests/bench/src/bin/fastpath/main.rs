//! `fastpath`: the published table. The daemon over its target and qemu-storage-daemon's null disk as the ceiling,
//! side by side, in alternating rounds.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod chart;
mod document;
mod measure;
mod results;

use clap::{Parser, ValueEnum};
use measure::{Round, Subject};
use results::Results;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;
use vublk_bench::process::ProcessError;
use vublk_bench::publish::{ChartError, Machine, Publication, PublishError};
use vublk_bench::session::RunError;
use vublk_bench::signals::{self, EXIT_INTERRUPTED};
use vublk_bench::stack::Programs;
use vublk_bench::units::parse_duration;

const EXIT_FAILED: u8 = 1;
const EXIT_NOT_STARTED: u8 = 3;

/// A back-end to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// vhost-blk-mpath over mpath-target
    Mpath,
    /// qemu-storage-daemon with a null disk
    Null,
}

/// Measures the daemon over its target beside qemu-storage-daemon's null disk and rewrites the published results:
/// DOCS/results/fastpath.json, DOCS/results/fastpath.svg and the table in DOCS/benchmarks.md.
#[derive(Parser)]
#[command(
    version,
    after_help = "Exit status: 0 measured and written; 1 a run failed or the results could not be \
    written; 2 bad options; 3 something could not be started; 130 interrupted, nothing written."
)]
struct Line {
    #[command(flatten)]
    programs: Programs,

    /// qemu-storage-daemon
    #[arg(long, value_name = "PATH", default_value = "qemu-storage-daemon")]
    qsd: PathBuf,

    /// What to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "mpath,null")]
    subjects: Vec<Which>,

    /// Paths of the daemon, each over a listener of its own
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    paths: u16,

    /// The daemon's policy
    #[arg(long, default_value = "round-robin", value_name = "NAME")]
    policy: String,

    /// Rounds; the median of them is published
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Length of each measurement
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = parse_duration)]
    time: Duration,

    /// What runs before each measurement
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = parse_duration)]
    warmup: Duration,

    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    docs: PathBuf,

    /// Only print; change no file
    #[arg(long)]
    dry_run: bool,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
enum FastpathError {
    #[error("cannot make a directory for sockets and logs: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{workload} on {subject}: {error}\nits last words:\n{log}")]
    Run { workload: &'static str, subject: &'static str, error: RunError, log: String },
    #[error("{workload} on {subject} failed:\n{report}\nits last words:\n{log}")]
    Failed { workload: &'static str, subject: &'static str, report: String, log: String },
    #[error("{0} ended while it was measured")]
    Gone(&'static str),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("interrupted, nothing written")]
    Interrupted,
}

impl FastpathError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Process(_) | Self::Directory(_) | Self::Signals(_) => EXIT_NOT_STARTED,
            Self::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_FAILED,
        }
    }
}

fn main() -> ExitCode {
    match fastpath(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fastpath: {error}");
            error.exit_code().into()
        }
    }
}

fn fastpath(line: &Line) -> Result<(), FastpathError> {
    let interrupted = signals::interrupted().map_err(FastpathError::Signals)?;
    let directory = tempfile::Builder::new().prefix("fastpath-").tempdir().map_err(FastpathError::Directory)?;
    let machine = Machine::look(Some(&line.qsd));
    machine.objection().iter().for_each(|objection| eprintln!("warning: {objection}"));
    let mut subjects = Vec::new();
    for which in &line.subjects {
        subjects.push(match which {
            Which::Mpath => Subject::mpath(&line.programs, directory.path(), line.paths, &line.policy)?,
            Which::Null => Subject::null(&line.qsd, directory.path())?,
        });
    }
    let mut results = Results::new(machine, &subjects, directory.path(), line.rounds, line.time);
    let round = Round { time: line.time, warmup: line.warmup, interrupted: &interrupted };
    for subject in &subjects {
        Round { time: measure::FILL_TIME, warmup: Duration::ZERO, ..round }.measure(&measure::FILL, subject)?;
        if interrupted.load(Ordering::Relaxed) {
            return Err(FastpathError::Interrupted);
        }
        eprintln!("{:<18} written once", subject.name);
    }
    for number in 1..=line.rounds {
        // Each workload begins with the other back-end in every other round.
        subjects.reverse();
        for workload in measure::WORKLOADS {
            for subject in &subjects {
                let sample = round.measure(workload, subject)?;
                if interrupted.load(Ordering::Relaxed) {
                    return Err(FastpathError::Interrupted);
                }
                let cpu = sample.cpu_us_per_io.values().sum::<f64>();
                eprintln!(
                    "round {number}/{}: {:<18} {:<24} {:>9.0} IOPS, {cpu:.2} µs CPU per I/O",
                    line.rounds, workload.name, subject.name, sample.iops
                );
                results.add(workload, subject, sample);
            }
        }
    }
    publish(line, &results)
}

fn publish(line: &Line, results: &Results) -> Result<(), FastpathError> {
    let table = document::section(results);
    println!("{table}");
    if line.dry_run {
        return Ok(());
    }
    let publication = Publication { docs: line.docs.clone(), document: "benchmarks.md", section: document::SECTION };
    Ok(publication.write(results, &chart::draw(results)?, &table)?)
}
