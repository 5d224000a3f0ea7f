//! Programs that measure in guests or network namespaces. They print a line for each cell, and at the end all samples as one
//! line of JSON.

use super::program::Failure;
use super::results::{Cell, Results, Row};
use crate::process::Managed;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often to look whether the program has ended, or a signal came.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Runs such a program and prints its lines. Returns the samples.
fn measure_by(command: Command, interrupted: &AtomicBool) -> Result<Measured, Failure> {
    let directory = crate::process::directory("measure-")?;
    let mut program = Managed::spawn("measure", command, directory.path())?;
    loop {
        // Asked first: its last lines may come between a wait and its end.
        let has_ended = program.exited().is_some();
        match program.wait_for_line(POLL_INTERVAL, |text| Some(text.to_owned())) {
            Ok(text) if text.starts_with('{') => {
                let samples = serde_json::from_str(&text);
                return samples
                    .map_err(|error| Failure::Failed(format!("the measurement's samples make no sense: {error}")));
            }
            Ok(text) => eprintln!("{text}"),
            Err(_) if has_ended => {
                return Err(Failure::NotStarted(format!("the measurement ended early:\n{}", program.log_tail())));
            }
            Err(_) => {}
        }
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
    }
}

/// Measures by a program whose samples are settings, command lines, and rows with the samples of their cells.
pub fn measure_rows(command: Command, mut results: Results, interrupted: &AtomicBool) -> Result<Results, Failure> {
    let measured = measure_by(command, interrupted)?;
    results.settings.extend(measured.settings);
    results.commands = measured.commands;
    results.rows = measured.rows;
    results.rows.iter_mut().flat_map(|row| &mut row.cells).for_each(Cell::summarise);
    Ok(results)
}

#[derive(Debug, Deserialize)]
struct Measured {
    settings: BTreeMap<String, Value>,
    commands: Vec<String>,
    rows: Vec<Row>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: &str = r#"{"settings": {}, "commands": ["fio"], "rows": []}"#;

    fn measured_by(script: &str, interrupted: bool) -> Result<Vec<String>, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        measure_by(command, &AtomicBool::new(interrupted)).map(|measured| measured.commands)
    }

    #[test]
    fn samples_come_after_progress() {
        assert_eq!(measured_by(&format!("echo progress; echo '{SAMPLES}'"), false).unwrap(), ["fio"]);
    }

    #[test]
    fn samples_at_the_end_of_a_wait_are_not_missed() {
        // The wait takes another 50 ms to end.
        assert_eq!(measured_by(&format!("sleep 0.52; echo '{SAMPLES}'"), false).unwrap(), ["fio"]);
    }

    #[test]
    fn a_measurement_that_fails_is_quoted() {
        let ended = measured_by("echo progress; echo 'no guest' >&2; exit 3", false).unwrap_err();
        assert!(matches!(&ended, Failure::NotStarted(words) if words.ends_with("early:\nno guest")), "{ended}");
        let nonsense = measured_by("echo '{\"rows\": 3}'", false).unwrap_err();
        assert!(matches!(&nonsense, Failure::Failed(words) if words.contains("make no sense")), "{nonsense}");
    }

    #[test]
    fn an_interrupt_ends_the_measurement() {
        let error = measured_by("echo progress; sleep 60", true).unwrap_err();
        assert!(matches!(error, Failure::Interrupted), "{error}");
    }
}
