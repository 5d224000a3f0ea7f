//! Tells the daemon which policy, and the target what its listeners are like: through `mpathctl` and `mpath-target ctl`, as an
//! operator would.

use crate::contender::{Contender, Listed};
use crate::scene::{PathSpec, Scene};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use vublk_bench::stack::MpathStack;

/// How long the paths of a new daemon may take to be live.
const LIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the daemon or the target was not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ControlError {
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
struct ListedPath {
    state: String,
    /// Reads of the daemon's own.
    probes: u64,
}

/// The way to one stack.
#[derive(Debug)]
pub(crate) struct Control {
    mpathctl: PathBuf,
    target: PathBuf,
    api: PathBuf,
    target_api: PathBuf,
}

impl Control {
    pub(crate) fn new(mpathctl: PathBuf, target: PathBuf, stack: &MpathStack) -> Self {
        Self { mpathctl, target, api: stack.api.clone(), target_api: stack.target_api.clone() }
    }

    /// Every policy the daemon has, in its order.
    pub(crate) fn policies(&self) -> Result<Vec<Listed>, ControlError> {
        self.daemon_json(&["policy", "list"])
    }

    /// Puts a policy into force.
    pub(crate) fn set_policy(&self, policy: &Contender) -> Result<(), ControlError> {
        let mut words = vec!["policy", "set", &policy.policy];
        words.extend(policy.params.iter().flat_map(|param| ["--param", param]));
        self.daemon(&words).map(|_| ())
    }

    /// Makes the paths what they shall be; `now` is what they are, if that is known.
    pub(crate) fn set_scene(&self, scene: &Scene, now: Option<&Scene>) -> Result<(), ControlError> {
        for (index, path) in scene.iter().enumerate() {
            if now.and_then(|now| now.get(index)) != Some(path) {
                self.set_path(index + 1, *path)?;
            }
        }
        Ok(())
    }

    fn set_path(&self, port: usize, path: PathSpec) -> Result<(), ControlError> {
        let mut command = Command::new(&self.target);
        command.args(["ctl", "--api"]).arg(&self.target_api).arg("set").arg(port.to_string()).args(path.settings());
        output(&mut command).map(|_| ())
    }

    /// Waits until every path works.
    pub(crate) fn wait_until_live(&self, paths: usize) -> Result<(), ControlError> {
        let give_up = Instant::now() + LIVE_TIMEOUT;
        loop {
            let listed: Vec<ListedPath> = self.daemon_json(&["path", "list"])?;
            let live = listed.iter().filter(|path| path.state == "live").count();
            if live == paths {
                return Ok(());
            }
            if Instant::now() > give_up {
                return Err(ControlError::NotLive { live, paths });
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// How many probes the daemon has sent on all paths.
    pub(crate) fn probes(&self) -> Result<u64, ControlError> {
        let listed: Vec<ListedPath> = self.daemon_json(&["path", "list"])?;
        Ok(listed.iter().map(|path| path.probes).sum())
    }

    fn daemon_json<T: serde::de::DeserializeOwned>(&self, words: &[&str]) -> Result<T, ControlError> {
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
