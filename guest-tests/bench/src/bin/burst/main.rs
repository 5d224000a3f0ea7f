//! `burst`: the experiment with which the burst-credit rule was published, on the daemon over real sockets. One
//! virtqueue that sends bursts beside others that keep a deep queue, under every scheduler; several that do, with and
//! without a pause; the same over two I/O threads; then by two guests.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bench;
mod bursts;
mod cells;
mod chart;
mod counted;
mod document;
mod flow;
mod guests;
mod line;
mod load;
mod plan;
mod results;
mod row;
mod run;
mod targets;
mod threads;
mod timeline;

use clap::Parser;
use guests::NotBursts;
use line::Line;
use load::LoadError;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use vublk_bench::control::ControlError;
use vublk_bench::measurement::MeasurementError;
use vublk_bench::process::ProcessError;
use vublk_bench::publish::{ChartError, Machine, PublishError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};
use vublk_bench::stalls::WatchError;

const EXIT_FAILED: u8 = 1;
const EXIT_NOT_STARTED: u8 = 3;

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
enum BurstError {
    #[error("cannot make a directory for sockets and logs: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error("{error}\nthe daemon's last words:\n{log}")]
    NotReady { error: ControlError, log: String },
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("{row}: {error}\nthe daemon's last words:\n{log}")]
    Load { row: String, error: LoadError, log: String },
    #[error("cannot watch for stalls of the machine: {0}")]
    Watch(#[from] WatchError),
    #[error("with two guests: {0}")]
    Measurement(#[from] MeasurementError),
    #[error("fio in the interactive guest: {0}")]
    NotBursts(#[from] NotBursts),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("interrupted, nothing written")]
    Interrupted,
}

impl BurstError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted | Self::Measurement(MeasurementError::Interrupted) => EXIT_INTERRUPTED,
            Self::Measurement(MeasurementError::Samples(_)) => EXIT_FAILED,
            Self::Process(_)
            | Self::Directory(_)
            | Self::Signals(_)
            | Self::NotReady { .. }
            | Self::Watch(_)
            | Self::Measurement(_) => EXIT_NOT_STARTED,
            _ => EXIT_FAILED,
        }
    }
}

fn main() -> ExitCode {
    match burst(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("burst: {error}");
            error.exit_code().into()
        }
    }
}

fn burst(line: &Line) -> Result<(), BurstError> {
    let interrupted = signals::interrupted().map_err(BurstError::Signals)?;
    // Not after a quarter of an hour. And once what is published first changes the tree, it is no commit any more.
    let (sockets, guests) = (line.has_sockets(), line.has_guests());
    if sockets {
        run::publication(line).check()?;
    }
    if guests {
        guests::publication(line).check()?;
    }
    let machine = Machine::look(None::<&Path>);
    machine.objection().iter().for_each(|objection| eprintln!("warning: {objection}"));
    if sockets {
        run::run(line, machine.clone(), &interrupted)?;
    }
    if guests {
        guests::run(line, machine, &interrupted)?;
    }
    Ok(())
}
