//! The baseline: the instructions of each case when the last change of them was accepted.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json");
/// The largest change of a case, in percent, that is no failure.
const PERCENT_MAX: f64 = 3.0;
const WRITE: &str = "make bench-instructions INSTRUCTIONS_ARGS=--write";

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Baseline {
    /// The compiler.
    rustc: String,
    /// By case: instructions for a request.
    instructions: BTreeMap<String, u64>,
}

impl Baseline {
    pub(super) fn of(counts: impl IntoIterator<Item = (String, u64)>) -> Self {
        Self { rustc: rustc(), instructions: counts.into_iter().collect() }
    }

    pub(super) fn read() -> Result<Self, String> {
        let text =
            fs::read_to_string(FILE).map_err(|error| format!("cannot read {FILE}: {error}; {WRITE} makes it"))?;
        let read: Self = serde_json::from_str(&text).map_err(|error| format!("cannot read {FILE}: {error}"))?;
        Ok(read)
    }

    /// Why the counts cannot be compared: the baseline is of another compiler. `None` if it is of this one.
    pub(super) fn other_compiler(&self) -> Option<String> {
        let rustc = rustc();
        let text = format!(
            "NOT COMPARED: the baseline is of {}, and this is {rustc}; record it again in a commit of its own: {WRITE}",
            self.rustc
        );
        (self.rustc != rustc).then_some(text)
    }

    pub(super) fn write(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).expect("names and numbers") + "\n";
        fs::write(FILE, text).map_err(|error| format!("cannot write {FILE}: {error}"))
    }

    /// The change of a case in percent. `None`: the case has no baseline.
    fn change(&self, name: &str, count: u64) -> Option<f64> {
        let before = *self.instructions.get(name)? as f64;
        Some((count as f64 - before) / before * 100.0)
    }

    /// A row of the table.
    pub(super) fn row(&self, name: &str, count: u64) -> String {
        let before = self.instructions.get(name).map_or_else(|| "none".into(), u64::to_string);
        let change = self.change(name, count).map_or_else(String::new, |percent| format!("{percent:+.1} %"));
        format!("| {name} | {count} | {before} | {change} |")
    }

    /// Why a case fails, and what to do.
    pub(super) fn problem(&self, name: &str, count: u64) -> Option<String> {
        let Some(percent) = self.change(name, count) else {
            return Some(format!("'{name}' takes {count} instructions and has no baseline; add it: {WRITE}"));
        };
        let before = self.instructions.get(name)?;
        let text = format!(
            "'{name}' takes {count} instructions, {percent:.1} % more than its baseline of {before}; \
             make it cheaper, or raise the baseline and say why: {WRITE}"
        );
        (percent > PERCENT_MAX).then_some(text)
    }

    /// A message about cases of the baseline that are not counted any more; `None` if there are none.
    pub(super) fn not_counted(&self, counts: &[(String, u64)]) -> Option<String> {
        let is_counted = |name: &String| counts.iter().any(|(counted, _)| counted == name);
        let gone: Vec<_> = self.instructions.keys().filter(|name| !is_counted(name)).map(String::as_str).collect();
        (!gone.is_empty())
            .then(|| format!("the baseline has cases that are gone: {}; record it again: {WRITE}", gone.join(", ")))
    }

    /// Advice if a case has become cheaper.
    pub(super) fn advice(&self, name: &str, count: u64) -> Option<String> {
        let before = self.instructions.get(name)?;
        let text = format!("'{name}' takes {count} instructions, and its baseline is {before}; lower it: {WRITE}");
        (self.change(name, count)? < -PERCENT_MAX).then_some(text)
    }
}

/// The compiler and its version.
fn rustc() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(|_| "an unknown compiler".into(), |output| String::from_utf8_lossy(&output.stdout).trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline() -> Baseline {
        Baseline { rustc: String::new(), instructions: [("ring".to_owned(), 1000)].into() }
    }

    #[test]
    fn a_rise_above_three_percent_fails() {
        let before = baseline();
        assert_eq!(before.problem("ring", 1030), None);
        let problem = before.problem("ring", 1031).expect("more than 3 %");
        assert!(problem.starts_with("'ring' takes 1031 instructions, 3.1 % more than its baseline of 1000; make it"));
        assert_eq!(before.row("ring", 1031), "| ring | 1031 | 1000 | +3.1 % |");
        assert_eq!(before.advice("ring", 1031), None);
    }

    #[test]
    fn a_fall_above_three_percent_is_only_said() {
        let before = baseline();
        assert_eq!((before.problem("ring", 969), before.advice("ring", 970)), (None, None));
        assert!(before.advice("ring", 969).is_some_and(|advice| advice.contains("lower it")));
    }

    #[test]
    fn a_case_that_is_gone_fails() {
        let before = baseline();
        assert_eq!(before.not_counted(&[("ring".into(), 7)]), None);
        assert!(before.not_counted(&[]).is_some_and(|problem| problem.contains("gone: ring;")));
    }

    #[test]
    fn a_case_without_a_baseline_fails() {
        let before = baseline();
        let problem = before.problem("codec", 10).expect("it is missing");
        assert!(problem.starts_with("'codec' takes 10 instructions and has no baseline; add it: make"));
        assert_eq!(before.row("codec", 10), "| codec | 10 | none |  |");
    }
}
