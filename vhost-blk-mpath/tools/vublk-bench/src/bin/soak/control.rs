//! Changes policy and injection through `mpathctl`, as an operator would.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Every kind of injection, none of which the guest may notice: no request of it fails, and none waits for ever.
const INJECTIONS: [&str; 10] = [
    "--latency 1ms",
    "--latency 20ms --direction response",
    "--latency 5ms --jitter 3ms --distribution normal",
    "--jitter 2ms --distribution exponential --class read --direction response",
    "--jitter 2ms --distribution pareto --class write",
    "--rate 20MiB",
    "--error-rate 2%",
    "--error-rate 2% --direction response --class write",
    "--stall",
    "--stall --direction response",
];

/// Injection changes with every third policy switch, so that the two do not run in step.
const SWITCHES_PER_INJECTION: u64 = 3;

/// Goes round the policies and the paths.
#[derive(Debug)]
pub(crate) struct Controller {
    program: PathBuf,
    api: PathBuf,
    policies: Vec<String>,
    paths: Vec<String>,
    injected: Vec<bool>,
    turns: u64,
    switches: u64,
    injections_set: u64,
    injections_cleared: u64,
    failures: Vec<String>,
}

impl Controller {
    pub(crate) fn new(program: PathBuf, api: &Path, paths: &[String], policies: &[String]) -> Self {
        Self {
            program,
            api: api.to_owned(),
            policies: policies.to_vec(),
            paths: paths.to_vec(),
            injected: vec![false; paths.len()],
            turns: 0,
            switches: 0,
            injections_set: 0,
            injections_cleared: 0,
            failures: Vec::new(),
        }
    }

    /// Accepted policy switches.
    pub(crate) fn switches(&self) -> u64 {
        self.switches
    }

    /// Accepted injections.
    pub(crate) fn injections_set(&self) -> u64 {
        self.injections_set
    }

    /// Accepted ends of injections.
    pub(crate) fn injections_cleared(&self) -> u64 {
        self.injections_cleared
    }

    /// What was refused, and in which words.
    pub(crate) fn failures(&self) -> &[String] {
        &self.failures
    }

    /// The next policy and, now and then, the next injection.
    pub(crate) fn switch(&mut self) {
        self.turns += 1;
        let policy = self.policies[(self.turns % self.policies.len() as u64) as usize].clone();
        self.switches += u64::from(self.ctl(&["policy", "set", &policy]));
        if self.turns.is_multiple_of(SWITCHES_PER_INJECTION) {
            self.inject(self.turns / SWITCHES_PER_INJECTION);
        }
    }

    /// Each path in turn: set, then clear.
    fn inject(&mut self, turn: u64) {
        let index = (turn % self.paths.len() as u64) as usize;
        let path = self.paths[index].clone();
        if self.injected[index] {
            self.injections_cleared += u64::from(self.ctl(&["inject", "clear", &path]));
        } else {
            // One after the other over all paths, so that the two do not run in step either.
            let number = self.injections_set;
            let (options, seed) = (INJECTIONS[(number % INJECTIONS.len() as u64) as usize], number.to_string());
            let mut words = vec!["inject", "set", &path, "--seed", &seed];
            words.extend(options.split(' '));
            self.injections_set += u64::from(self.ctl(&words));
        }
        self.injected[index] = !self.injected[index];
    }

    fn ctl(&mut self, words: &[&str]) -> bool {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--api").arg(&self.api).stdin(Stdio::null());
        let failure = match command.output() {
            Ok(output) if output.status.success() => return true,
            Ok(output) => format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()),
            Err(error) => format!("{}: {error}", self.program.display()),
        };
        self.failures.push(format!("mpathctl {}: {failure}", words.join(" ")));
        false
    }
}
