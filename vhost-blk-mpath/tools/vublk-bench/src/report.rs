//! The outcome of a run, as JSON and as a table.

use crate::front_end::DeviceInfo;
use crate::ledger::LostRequest;
use crate::options::Options;
use crate::runner::{FailedRequest, Fatal};
use crate::stats::Summary;
use crate::verify::{Counts, Miscompare};
use serde::Serialize;

/// The complete result of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    pub version: &'static str,
    pub config: Options,
    pub seed: u64,
    pub device: DeviceInfo,
    pub measured_seconds: f64,
    /// Requests completed, warm-up and read-back included.
    pub completed: u64,
    pub total: Summary,
    pub queues: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
    pub failures: Failures,
    /// Ended early by a signal.
    pub interrupted: bool,
    /// No failure of any kind.
    pub ok: bool,
}

/// The verification's part.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    #[serde(flatten)]
    pub counts: Counts,
    /// Blocks whose content was known at the end; the read-back read them all.
    pub known_blocks: u64,
    pub read_back: bool,
    pub first_miscompares: Vec<Miscompare>,
}

/// What went wrong.
#[derive(Debug, Default, Serialize)]
pub struct Failures {
    pub failed_requests: Vec<FailedRequest>,
    pub lost: Vec<LostRequest>,
    /// Reasons why queues ended early, other than lost requests: double completions and the like.
    pub fatal: Vec<FatalReport>,
}

/// The reason why a queue ended.
#[derive(Debug, Serialize)]
pub struct FatalReport {
    pub queue: u16,
    pub reason: String,
}

impl Failures {
    /// Adds the reason why a queue ended. Returns `false`: the queue has not read everything back.
    pub(crate) fn add(&mut self, queue: u16, fatal: Fatal) -> bool {
        self.fatal.push(FatalReport { queue, reason: fatal.to_string() });
        if let Fatal::Lost(lost) | Fatal::HungUp(lost) = fatal {
            self.lost.extend(lost);
        }
        false
    }
}

impl Report {
    /// The report as text for people: rates and latencies, the counts of a verification, the failures, and the verdict.
    pub fn table(&self) -> String {
        let mut lines = Vec::new();
        let Summary { read, write, other, errors } = &self.total;
        for (op, class) in [("read", read), ("write", write), ("other", other)] {
            let Some(us) = &class.latency_us else { continue };
            lines.push(format!(
                "{op:<5} {:.0} IOPS, {:.1} MiB/s; µs: mean {:.1}, p50 {:.1}, p99 {:.1}, p99.9 {:.1}, p99.99 {:.1}, max {:.1}",
                class.iops, class.mib_per_second, us.mean, us.p50, us.p99, us.p99_9, us.p99_99, us.max
            ));
        }
        if let Some(verify) = &self.verify {
            lines.push(format!("verify: {}", json(verify)));
        }
        if !self.ok {
            lines.push(format!("failures: {}", json(&self.failures)));
        }
        let verdict = match (self.ok, self.interrupted) {
            (false, _) => "FAILED",
            (true, true) => "interrupted, no failure up to then",
            (true, false) => "ok",
        };
        lines.push(format!("{verdict}: {} requests, {errors} errors, seed {}\n", self.completed, self.seed));
        lines.join("\n")
    }
}

/// For programs.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}
