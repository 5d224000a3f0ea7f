//! A benchmark program from its command line to its exit code.

use crate::control::ControlError;
use crate::process::ProcessError;
use crate::session::RunError;
use crate::stack::StackError;
use clap::{Args, Parser};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The exit status of a program that was interrupted.
const EXIT_INTERRUPTED: u8 = 130;

/// The exit codes, for `--help`.
pub const EXIT_STATUS: &str = "Exit status: 0 measured and written; 1 a run failed or the results could not be \
    written; 2 bad options; 3 something could not be started; 130 interrupted.";

/// Options of every program that publishes.
#[derive(Debug, Clone, Args)]
pub struct Writing {
    /// Rounds; their median is published [default: 5, and 3 of mptcp]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,

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

impl Writing {
    /// The number of rounds: as given, or the default of the program.
    pub fn rounds(&self) -> u16 {
        self.rounds.unwrap_or(5)
    }
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
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Run(#[from] RunError),
    /// A signal came.
    #[error("interrupted")]
    Interrupted,
}

impl Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) | Self::Control(_) => 1,
            Self::Usage(_) | Self::Run(RunError::Options(_)) => 2,
            Self::NotStarted(_) | Self::Process(_) | Self::Stack(_) | Self::Run(RunError::Connect(_)) => 3,
            Self::Interrupted => EXIT_INTERRUPTED,
        }
    }
}

/// A flag that the first SIGINT or SIGTERM sets. A second signal ends the program at once, because an orderly end may take its
/// time. The kernel then ends the child processes.
fn interrupted() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        register_conditional_shutdown(signal, EXIT_INTERRUPTED.into(), Arc::clone(&interrupted))?;
        register(signal, Arc::clone(&interrupted))?;
    }
    Ok(interrupted)
}

/// Reads the options and runs `body`. Returns the exit code.
pub fn run_program<O: Parser>(name: &str, body: impl FnOnce(&O, &AtomicBool) -> Result<(), Failure>) -> ExitCode {
    let options = O::parse();
    let result = interrupted()
        .map_err(|error| Failure::NotStarted(format!("cannot handle signals: {error}")))
        .and_then(|interrupted| body(&options, &interrupted));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{name}: {failure}");
            failure.exit_code().into()
        }
    }
}

/// Parses a number of seconds, such as `3` or `0.5`: enough to measure something, and not too much to wait for.
pub fn parse_seconds(text: &str) -> Result<Duration, &'static str> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) => Err("must be from 0.1 to 600"),
        Err(_) => Err("is not a number of seconds, as in 3 or 0.5"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_numbers_in_a_range() {
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        for (text, error) in [("0", "must be"), ("nan", "must be"), ("3s", "is not a number")] {
            assert!(parse_seconds(text).unwrap_err().starts_with(error), "{text}");
        }
    }
}
