//! A benchmark program from its command line to its exit code.

use crate::control::ControlError;
use crate::measurement::MeasurementError;
use crate::process::ProcessError;
use crate::signals::{self, EXIT_INTERRUPTED};
use crate::stalls::WatchError;
use clap::{Args, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

/// The exit codes, for `--help`.
pub const EXIT_STATUS: &str = "Exit status: 0 measured and written; 1 a run failed or the results could not be \
    written; 2 bad options; 3 something could not be started; 130 interrupted, nothing written.";

/// Where the results go.
#[derive(Debug, Clone, Args)]
pub struct Writing {
    /// The documentation's folder
    #[arg(long, default_value = "docs", value_name = "DIR")]
    pub docs: PathBuf,

    /// Only print the section; change no file in the documentation's folder
    #[arg(long)]
    pub dry_run: bool,

    /// Measure nothing; write the section and the picture again from the stored JSON
    #[arg(long)]
    pub render: bool,
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A run failed, or the results could not be written.
    #[error("{0}")]
    Failed(String),
    /// The options do not fit what there is.
    #[error("{0}")]
    Usage(String),
    /// A program or a thread could not be started.
    #[error("{0}")]
    NotStarted(String),
    /// A signal came.
    #[error("interrupted, nothing written")]
    Interrupted,
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::NotStarted(_) => 3,
            Self::Interrupted => EXIT_INTERRUPTED,
        }
    }
}

impl From<ProcessError> for Failure {
    fn from(error: ProcessError) -> Self {
        Self::NotStarted(error.to_string())
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<WatchError> for Failure {
    fn from(error: WatchError) -> Self {
        Self::NotStarted(format!("cannot watch for stalls of the machine: {error}"))
    }
}

impl From<MeasurementError> for Failure {
    fn from(error: MeasurementError) -> Self {
        match error {
            MeasurementError::Interrupted => Self::Interrupted,
            MeasurementError::Samples(_) => Self::Failed(error.to_string()),
            _ => Self::NotStarted(error.to_string()),
        }
    }
}

/// Reads the options, runs `body` and tells the exit code. `body` returns the exit code of a run that came to its end.
pub fn run_program<O: Parser>(name: &str, body: impl FnOnce(&O, &AtomicBool) -> Result<u8, Failure>) -> ExitCode {
    let options = O::parse();
    let result = signals::interrupted()
        .map_err(|error| Failure::NotStarted(format!("cannot handle signals: {error}")))
        .and_then(|interrupted| body(&options, &interrupted));
    result.map_or_else(
        |failure| {
            eprintln!("{name}: {failure}");
            failure.exit_code().into()
        },
        ExitCode::from,
    )
}
