//! Tells the daemon which policy, and the target what its listeners are like: through `mpathctl` and `mpath-target ctl`, as an
//! operator would.

use crate::scene::{PathSpec, Scene};
use serde::{Deserialize, Serialize};
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

/// A policy as the daemon lists it.
#[derive(Debug, Clone, Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    params: Vec<ListedParam>,
}

#[derive(Debug, Clone, Deserialize)]
struct ListedParam {
    name: String,
}

/// A path as the daemon lists it.
#[derive(Debug, Deserialize)]
struct ListedPath {
    state: String,
}

/// A policy as it is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// `NAME=VALUE` that differ from the defaults.
    pub(crate) params: Vec<String>,
}

/// The policy whose window has to fit the length of a measurement, and that parameter.
const SCALED: (&str, &str) = ("adaptive", "interval");

/// Its value: ten of them pass before a measurement begins, so that the average, of which each is an eighth, is about right.
pub(crate) fn scaled_interval(warmup: Duration) -> Duration {
    Duration::from_millis((warmup.as_millis() as u64 / 10).max(10))
}

impl Contender {
    fn new(listed: &Listed, warmup: Duration) -> Self {
        let scaled = listed.name == SCALED.0 && listed.params.iter().any(|param| param.name == SCALED.1);
        let interval = scaled.then(|| format!("{}={}ms", SCALED.1, scaled_interval(warmup).as_millis()));
        Self { name: listed.name.clone(), params: interval.into_iter().collect() }
    }
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
    pub(crate) fn policies(&self, warmup: Duration) -> Result<Vec<Contender>, ControlError> {
        let listed: Vec<Listed> = self.daemon_json(&["policy", "list"])?;
        Ok(listed.iter().map(|listed| Contender::new(listed, warmup)).collect())
    }

    /// Puts a policy into force.
    pub(crate) fn set_policy(&self, policy: &Contender) -> Result<(), ControlError> {
        let mut words = vec!["policy", "set", &policy.name];
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

    fn contenders(json: &str) -> Vec<Contender> {
        let listed: Vec<Listed> = serde_json::from_str(json).unwrap();
        listed.iter().map(|listed| Contender::new(listed, Duration::from_millis(500))).collect()
    }

    #[test]
    fn policies_with_and_without_parameters() {
        let plain = contenders(r#"[{"name": "numa", "description": "x", "active-on": []}, {"name": "adaptive"}]"#);
        assert_eq!(plain, ["numa", "adaptive"].map(|name| Contender { name: name.into(), params: vec![] }));
        let scaled = contenders(
            r#"[{"name": "adaptive", "params": [{"name": "shift"}, {"name": "interval", "value": "15s"}]}]"#,
        );
        assert_eq!(scaled[0].params, ["interval=50ms"]);
    }

    #[test]
    fn a_refusal_is_quoted() {
        let error = output(Command::new("sh").args(["-c", "echo no such policy >&2; exit 1"])).unwrap_err().to_string();
        assert!(error.contains("no such policy") && error.contains("exit status: 1"), "{error}");
        assert!(matches!(output(&mut Command::new("/nonexistent/x")), Err(ControlError::Start { .. })));
    }
}
