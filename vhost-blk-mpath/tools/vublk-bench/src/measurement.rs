//! Programs that measure in guests or network namespaces. They print a line for each cell, and at the end all samples as one
//! line of JSON.

use crate::process::{Managed, ProcessError};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to look whether the program has ended, or a signal came.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Why there are no samples.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// There is no place for the log.
    #[error("cannot make a directory for logs: {0}")]
    Directory(#[source] io::Error),
    /// The program could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The program ended without samples.
    #[error("the measurement ended early:\n{0}")]
    Ended(String),
    /// The samples have another form.
    #[error("the measurement's samples make no sense: {0}")]
    Samples(#[source] serde_json::Error),
    /// A signal came.
    #[error("interrupted, nothing written")]
    Interrupted,
}

/// Runs such a program and prints its lines. Returns the samples.
pub fn measure(command: Command, interrupted: &AtomicBool) -> Result<Value, MeasurementError> {
    let directory = tempfile::Builder::new().prefix("measure-").tempdir().map_err(MeasurementError::Directory)?;
    let mut program = Managed::spawn("measure", command, directory.path())?;
    loop {
        match program.wait_for_line(POLL_INTERVAL, |text| Some(text.to_owned())) {
            Ok(text) if text.starts_with('{') => return serde_json::from_str(&text).map_err(MeasurementError::Samples),
            Ok(text) => eprintln!("{text}"),
            Err(_) if program.exited().is_some() => return Err(MeasurementError::Ended(program.log_tail())),
            Err(_) => {}
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(MeasurementError::Interrupted);
        }
    }
}

/// The samples in the form that the caller knows.
pub fn parse<T: DeserializeOwned>(samples: &Value) -> Result<T, MeasurementError> {
    T::deserialize(samples).map_err(MeasurementError::Samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured_by(script: &str, interrupted: bool) -> Result<Vec<u32>, MeasurementError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let samples = measure(command, &AtomicBool::new(interrupted))?;
        Ok(parse::<Samples>(&samples)?.numbers)
    }

    #[derive(Debug, serde::Deserialize)]
    struct Samples {
        numbers: Vec<u32>,
    }

    #[test]
    fn samples_come_after_progress() {
        assert_eq!(measured_by("echo progress; echo '{\"numbers\": [1, 2]}'", false).unwrap(), [1, 2]);
    }

    #[test]
    fn a_measurement_that_fails_is_quoted() {
        let ended = measured_by("echo progress; echo 'no guest' >&2; exit 3", false).unwrap_err();
        assert!(matches!(&ended, MeasurementError::Ended(log) if log == "no guest"), "{ended}");
        let nonsense = measured_by("echo '{\"numbers\": 3}'", false).unwrap_err();
        assert!(matches!(nonsense, MeasurementError::Samples(_)), "{nonsense}");
    }

    #[test]
    fn an_interrupt_ends_the_measurement() {
        let error = measured_by("echo progress; sleep 60", true).unwrap_err();
        assert!(matches!(error, MeasurementError::Interrupted), "{error}");
    }
}
