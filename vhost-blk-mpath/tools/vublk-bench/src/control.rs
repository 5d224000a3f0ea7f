//! Controls a stack as an operator would: the daemon through `mpathctl`, its target through `mpath-target ctl`.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the paths of a new daemon may take to be live.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the daemon or the target did not carry out a command.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: std::io::Error },
    #[error("`{command}` failed ({status}): {words}")]
    Refused { command: String, status: std::process::ExitStatus, words: String },
    #[error("`{command}` does not answer as expected: {source}")]
    Answer { command: String, source: serde_json::Error },
    #[error("after {} s only {live} of {paths} paths are live", LIVE_TIMEOUT.as_secs())]
    NotLive { live: usize, paths: usize },
}

/// A path as the daemon lists it.
#[derive(Debug, Deserialize)]
pub struct ListedPath {
    /// `live`, or another state.
    pub state: String,
    /// Probes that the daemon has sent on the path.
    pub probes: u64,
}

/// Controls one stack.
#[derive(Debug)]
pub struct Control {
    pub(crate) mpathctl: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) api: PathBuf,
    pub(crate) target_api: PathBuf,
}

impl Control {
    /// Puts a policy or a scheduler into force, with parameters `NAME=VALUE`. `noun` is `policy` or `scheduler`.
    pub fn set(&self, noun: &str, name: &str, params: &[String]) -> Result<(), ControlError> {
        let mut words = vec![noun, "set", name];
        words.extend(params.iter().flat_map(|param| ["--param", param]));
        self.daemon(&words).map(|_| ())
    }

    /// Gives a listener of the target these settings. `number` counts from 1.
    pub fn set_listener(&self, number: usize, settings: &[String]) -> Result<(), ControlError> {
        let mut command = Command::new(&self.target);
        command.args(["ctl", "--api"]).arg(&self.target_api).arg("set").arg(number.to_string()).args(settings);
        output(&mut command).map(|_| ())
    }

    /// Every path of the daemon.
    pub fn paths(&self) -> Result<Vec<ListedPath>, ControlError> {
        self.daemon_json(&["path", "list"])
    }

    /// Waits until this many paths are live. The daemon may have just been started.
    pub(crate) fn wait_until_live(&self, paths: usize) -> Result<(), ControlError> {
        let give_up = Instant::now() + LIVE_TIMEOUT;
        loop {
            let live = self.paths().map(|listed| listed.iter().filter(|path| path.state == "live").count());
            match live {
                Ok(live) if live == paths => return Ok(()),
                live if Instant::now() > give_up => return Err(ControlError::NotLive { live: live?, paths }),
                _ => thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// What `mpathctl` answers to `words`.
    pub fn daemon_json<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T, ControlError> {
        let text = self.daemon(&[words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text)
            .map_err(|source| ControlError::Answer { command: format!("mpathctl {}", words.join(" ")), source })
    }

    /// Runs `mpathctl` with `words`, and returns its stdout.
    pub fn daemon(&self, words: &[&str]) -> Result<String, ControlError> {
        output(Command::new(&self.mpathctl).args(words).arg("--api").arg(&self.api))
    }
}

fn output(command: &mut Command) -> Result<String, ControlError> {
    let output = command.stdin(Stdio::null()).output().map_err(|source| {
        let program = command.get_program().to_string_lossy().into_owned();
        ControlError::Start { program, source }
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(ControlError::Refused {
        command: crate::process::command_line(command),
        status: output.status,
        words: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_quoted() {
        let error = output(Command::new("sh").args(["-c", "echo no such policy >&2; exit 1"])).unwrap_err().to_string();
        assert!(error.contains("no such policy") && error.contains("exit status: 1"), "{error}");
        assert!(matches!(output(&mut Command::new("/nonexistent/x")), Err(ControlError::Start { .. })));
    }
}
