//! Programs that measure in guests: they tell how far they are line by line, and give what they have measured as one line of
//! JSON at last.

use crate::process::{Managed, ProcessError};
use serde::de::DeserializeOwned;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to look whether the measurement has ended or is to end.
const LOOK: Duration = Duration::from_millis(500);

/// Why there is nothing measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasurementError {
    /// There is no place for its logs.
    #[error("cannot make a directory for logs: {0}")]
    Directory(#[source] io::Error),
    /// It could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// It has ended without samples.
    #[error("the measurement ended early:\n{0}")]
    Ended(String),
    /// They are not of the form that was expected.
    #[error("the measurement's samples make no sense: {0}")]
    Samples(#[source] serde_json::Error),
    /// It was ended.
    #[error("interrupted, nothing written")]
    Interrupted,
}

/// Runs such a program; shows what it says.
pub fn measure<T: DeserializeOwned>(command: Command, interrupted: &AtomicBool) -> Result<T, MeasurementError> {
    let directory = tempfile::Builder::new().prefix("measure-").tempdir().map_err(MeasurementError::Directory)?;
    let mut measuring = Managed::spawn("measure", command, directory.path())?;
    loop {
        match measuring.wait_for_line(LOOK, |text| Some(text.to_owned())) {
            Ok(text) if text.starts_with('{') => return serde_json::from_str(&text).map_err(MeasurementError::Samples),
            Ok(text) => eprintln!("{text}"),
            Err(_) if measuring.exited().is_some() => return Err(MeasurementError::Ended(measuring.log_tail())),
            Err(_) => {}
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(MeasurementError::Interrupted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured_by(script: &str, interrupted: bool) -> Result<Vec<u32>, MeasurementError> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let samples = measure::<Samples>(command, &AtomicBool::new(interrupted))?;
        Ok(samples.numbers)
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
