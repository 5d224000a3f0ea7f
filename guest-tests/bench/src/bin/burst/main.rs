//! `burst`: the experiment with which the burst-credit rule was published, on the daemon over real sockets. One virtqueue
//! that sends bursts beside others that keep a deep queue, under every scheduler.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bursts;
mod chart;
mod counted;
mod document;
mod flow;
mod line;
mod load;
mod plan;
mod results;
mod run;
mod targets;

use clap::Parser;
use line::Line;
use load::LoadError;
use std::io;
use std::process::ExitCode;
use vublk_bench::control::ControlError;
use vublk_bench::process::ProcessError;
use vublk_bench::publish::{ChartError, PublishError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

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
    #[error("with {busy} busy flows: {error}\nthe daemon's last words:\n{log}")]
    Load { busy: usize, error: LoadError, log: String },
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
            Self::Process(_) | Self::Directory(_) | Self::Signals(_) | Self::NotReady { .. } => EXIT_NOT_STARTED,
            Self::Interrupted => EXIT_INTERRUPTED,
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
    run::run(line, &interrupted)
}
