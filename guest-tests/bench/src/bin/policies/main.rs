//! `policies`: every policy side by side, on paths of which it is known what the best can be.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod bound;
mod chart;
mod contender;
mod cpu_load;
mod document;
mod line;
mod measure;
mod plan;
mod results;
mod run;
mod scene;
mod series;
mod tables;
mod targets;

use clap::Parser;
use line::Line;
use std::io;
use std::process::ExitCode;
use vublk_bench::control::ControlError;
use vublk_bench::process::ProcessError;
use vublk_bench::publish::{ChartError, PublishError};
use vublk_bench::session::RunError;
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

const EXIT_FAILED: u8 = 1;
const EXIT_USAGE: u8 = 2;
const EXIT_NOT_STARTED: u8 = 3;

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
enum PoliciesError {
    #[error("cannot make a directory for sockets and logs: {0}")]
    Directory(#[source] io::Error),
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error("--policies {name}: the daemon has no such policy; it has {}", .offered.join(", "))]
    NoSuchPolicy { name: String, offered: Vec<String> },
    #[error("{what}: {error}\nthe daemon's last words:\n{log}")]
    Run { what: String, error: RunError, log: String },
    #[error("{what} failed:\n{report}\nthe daemon's last words:\n{log}")]
    Failed { what: String, report: String, log: String },
    #[error("the {0} ended while it was measured")]
    Gone(&'static str),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
    #[error("interrupted, nothing written")]
    Interrupted,
}

impl PoliciesError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Process(_) | Self::Directory(_) | Self::Signals(_) => EXIT_NOT_STARTED,
            Self::NoSuchPolicy { .. } => EXIT_USAGE,
            Self::Interrupted => EXIT_INTERRUPTED,
            _ => EXIT_FAILED,
        }
    }
}

fn main() -> ExitCode {
    match policies(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("policies: {error}");
            error.exit_code().into()
        }
    }
}

fn policies(line: &Line) -> Result<(), PoliciesError> {
    let interrupted = signals::interrupted().map_err(PoliciesError::Signals)?;
    run::run(line, &interrupted)
}
