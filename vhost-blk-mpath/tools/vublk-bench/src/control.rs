//! Controls a stack as an operator would: the daemon through `mpathctl`, its target through `mpath-target ctl`.

use crate::stack::{MpathStack, Programs, sibling};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long the paths of a new daemon may take to be live.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the daemon or the target did not carry out a command.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// `mpathctl` or `mpath-target` could not be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// Its path.
        program: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The command failed.
    #[error("`{command}` failed ({status}): {words}")]
    Refused {
        /// The whole line.
        command: String,
        /// How the program ended.
        status: std::process::ExitStatus,
        /// Its stderr.
        words: String,
    },
    /// The answer has another form.
    #[error("`{command}` does not answer as expected: {source}")]
    Answer {
        /// The whole line.
        command: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// Paths did not connect in time.
    #[error("after {} s only {live} of {paths} paths are live", LIVE_TIMEOUT.as_secs())]
    NotLive {
        /// Paths that are live.
        live: usize,
        /// All.
        paths: usize,
    },
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
    mpathctl: PathBuf,
    target: PathBuf,
    api: PathBuf,
    target_api: PathBuf,
}

impl Control {
    /// Controls `stack` with this `mpathctl`, or the one in this program's folder.
    #[must_use]
    pub fn new(mpathctl: Option<&PathBuf>, programs: &Programs, stack: &MpathStack) -> Self {
        Self {
            mpathctl: sibling(mpathctl, "mpathctl"),
            target: sibling(programs.target.as_ref(), "mpath-target"),
            api: stack.api.clone(),
            target_api: stack.target_api.clone(),
        }
    }

    /// Puts a policy or a scheduler, which `noun` is, into force, with parameters `NAME=VALUE`.
    pub fn set(&self, noun: &str, name: &str, params: &[String]) -> Result<(), ControlError> {
        let mut words = vec![noun, "set", name];
        words.extend(params.iter().flat_map(|param| ["--param", param]));
        self.daemon(&words).map(|_| ())
    }

    /// Impairs every path, by the options of `mpathctl inject set`.
    pub fn inject(&self, options: &[&str]) -> Result<(), ControlError> {
        self.daemon(&[&["inject", "set", "all"], options].concat()).map(|_| ())
    }

    /// Sets or clears the limit of every disk: the words after `mpathctl limit`.
    pub fn limit(&self, words: &[&str]) -> Result<(), ControlError> {
        self.daemon(&[&["limit"], words].concat()).map(|_| ())
    }

    /// Gives a listener of the target, by its number from 1, these settings.
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
    pub fn wait_until_live(&self, paths: usize) -> Result<(), ControlError> {
        let give_up = Instant::now() + LIVE_TIMEOUT;
        loop {
            let not_yet = match self.paths() {
                Ok(listed) => {
                    let live = listed.iter().filter(|path| path.state == "live").count();
                    if live == paths {
                        return Ok(());
                    }
                    ControlError::NotLive { live, paths }
                }
                Err(error) => error,
            };
            if Instant::now() > give_up {
                return Err(not_yet);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What `mpathctl` answers to `words`.
    pub fn daemon_json<T: DeserializeOwned>(&self, words: &[&str]) -> Result<T, ControlError> {
        let text = self.daemon(&[words, &["-o", "json"]].concat())?;
        serde_json::from_str(&text)
            .map_err(|source| ControlError::Answer { command: format!("mpathctl {}", words.join(" ")), source })
    }

    fn daemon(&self, words: &[&str]) -> Result<String, ControlError> {
        output(Command::new(&self.mpathctl).args(words).arg("--api").arg(&self.api))
    }
}

fn output(command: &mut Command) -> Result<String, ControlError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| ControlError::Start { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    Err(ControlError::Refused {
        command: std::iter::once(name).chain(words).collect::<Vec<_>>().join(" "),
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
