//! `mptcp`: TCP multipath, MPTCP and both together over several links, through the whole chain from a front-end to a
//! target, beside plain sockets. The links and what runs over them are `guest-tests/mptcp/measure`'s; medians,
//! verdicts, tables and picture are made here.

// Counts become rates; they stay far below 2^52.
#![allow(clippy::cast_precision_loss)]

mod chart;
mod document;
mod line;
mod links;
mod outage;
mod results;
mod targets;

use clap::Parser;
use line::Line;
use results::{Measured, Results};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use vublk_bench::measurement::{self, MeasurementError};
use vublk_bench::publish::{ChartError, Machine, Publication, PublishError};
use vublk_bench::signals::{self, EXIT_INTERRUPTED};

const EXIT_FAILED: u8 = 1;
const EXIT_NOT_STARTED: u8 = 3;

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
enum MptcpError {
    #[error("cannot handle signals: {0}")]
    Signals(#[source] io::Error),
    #[error(transparent)]
    Measurement(#[from] MeasurementError),
    #[error("cannot draw the chart: {0}")]
    Chart(#[from] ChartError),
    #[error(transparent)]
    Publish(#[from] PublishError),
}

impl MptcpError {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Measurement(MeasurementError::Interrupted) => EXIT_INTERRUPTED,
            Self::Measurement(MeasurementError::Samples(_)) | Self::Chart(_) | Self::Publish(_) => EXIT_FAILED,
            Self::Measurement(_) | Self::Signals(_) => EXIT_NOT_STARTED,
        }
    }
}

fn main() -> ExitCode {
    match mptcp(&Line::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mptcp: {error}");
            error.exit_code().into()
        }
    }
}

fn mptcp(line: &Line) -> Result<(), MptcpError> {
    let interrupted = signals::interrupted().map_err(MptcpError::Signals)?;
    let publication = Publication { docs: line.docs.clone(), document: "mptcp.md", section: document::SECTION };
    // Not after half an hour.
    publication.check()?;
    let machine = Machine::look(None::<&Path>);
    machine.objection().iter().for_each(|objection| eprintln!("warning: {objection}"));
    let mut results = Results::new(machine, line.plan(), measure(line, &interrupted)?);
    results.targets = targets::targets(&results);
    let section = document::section(&results);
    println!("{section}");
    Ok(publication.write(&results, &chart::draw(&results)?, &section)?)
}

fn measure(line: &Line, interrupted: &AtomicBool) -> Result<Measured, MeasurementError> {
    let mut command = Command::new(&line.measure);
    command.args(line.plan().arguments());
    measurement::measure(command, interrupted)
}
