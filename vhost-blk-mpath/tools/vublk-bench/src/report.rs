//! The outcome of a run, as JSON and as a table.

use crate::front_end::DeviceInfo;
use crate::ledger::LostRequest;
use crate::options::Options;
use crate::runner::{FailedRequest, Fatal};
use crate::stats::{ClassSummary, Summary};
use crate::verify::{Counts, Miscompare};
use serde::Serialize;
use std::fmt::Write;
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// Everything there is to say about a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// This program's version.
    pub version: &'static str,
    /// The options, defaults included.
    pub config: Options,
    /// The seed in use.
    pub seed: u64,
    /// The disk.
    pub device: DeviceInfo,
    /// Length of the measurement.
    pub measured_seconds: f64,
    /// Requests completed, warm-up and read-back included.
    pub completed: u64,
    /// All queues together.
    pub total: Summary,
    /// Each queue.
    pub queues: Vec<Summary>,
    /// With `--rw verify`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyReport>,
    /// What went wrong, in detail.
    pub failures: Failures,
    /// Ended early by a signal.
    pub interrupted: bool,
    /// No failure of any kind.
    pub ok: bool,
}

/// The verification's part.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    /// How much was done.
    #[serde(flatten)]
    pub counts: Counts,
    /// Blocks whose content was known at the end; the read-back read them all.
    pub known_blocks: u64,
    /// Whether the read-back at the end took place.
    pub read_back: bool,
    /// The first wrong blocks.
    pub first_miscompares: Vec<Miscompare>,
}

/// What went wrong.
#[derive(Debug, Default, Serialize)]
pub struct Failures {
    /// The first requests that completed with an error, of each queue.
    pub failed_requests: Vec<FailedRequest>,
    /// Requests that never completed.
    pub lost: Vec<LostRequest>,
    /// Reasons why queues ended early, other than lost requests: double completions and the like.
    pub fatal: Vec<FatalReport>,
}

/// The reason why a queue ended.
#[derive(Debug, Serialize)]
pub struct FatalReport {
    /// Which.
    pub queue: u16,
    /// Why.
    pub reason: String,
}

impl Failures {
    /// Adds the reason why a queue ended.
    pub fn add(&mut self, queue: u16, fatal: Fatal) {
        self.fatal.push(FatalReport { queue, reason: fatal.to_string() });
        if let Fatal::Lost(lost) | Fatal::HungUp(lost) = fatal {
            self.lost.extend(lost);
        }
    }
}

impl Report {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut builder = Builder::default();
        builder.push_record(["queue", "op", "IOPS", "MiB/s", "mean µs", "p50", "p90", "p99", "p99.9", "p99.99", "max"]);
        let one_queue = self.queues.len() == 1;
        let rows = self.queues.iter().enumerate().map(|(index, queue)| (index.to_string(), queue));
        for (name, summary) in rows.filter(|_| !one_queue).chain([("all".to_owned(), &self.total)]) {
            for (op, class) in [("read", &summary.read), ("write", &summary.write), ("other", &summary.other)] {
                push_class(&mut builder, &name, op, class);
            }
        }
        let mut table = builder.build();
        table.with(Style::psql()).modify(Columns::new(2..), Alignment::right());
        let mut text = format!("{table}\n");
        // Writing to a String cannot fail.
        let _ = self.write_verdict(&mut text);
        text
    }

    fn write_verdict(&self, text: &mut String) -> std::fmt::Result {
        if let Some(verify) = &self.verify {
            let counts = &verify.counts;
            writeln!(
                text,
                "verify: {} blocks written, {} zeroed, {} discarded; {} verified under way ({} of them racing with a \
                 write), {} of {} read back; {} miscompares",
                counts.blocks_written,
                counts.blocks_zeroed,
                counts.blocks_discarded,
                counts.blocks_verified,
                counts.blocks_verified_racing,
                counts.blocks_read_back,
                verify.known_blocks,
                counts.miscompares
            )?;
            for miscompare in &verify.first_miscompares {
                let when = if miscompare.in_read_back { "read-back" } else { "under way" };
                writeln!(
                    text,
                    "miscompare ({when}): lba {} (block {}), queue {}, {}: expected {}, got {}",
                    miscompare.lba,
                    miscompare.block,
                    miscompare.queue,
                    miscompare.request,
                    miscompare.expected,
                    miscompare.got
                )?;
            }
        }
        for failed in &self.failures.failed_requests {
            let FailedRequest { queue, generation, request, status } = failed;
            writeln!(text, "failed: queue {queue}, request {generation}, {request}: {status:?}")?;
        }
        for fatal in &self.failures.fatal {
            writeln!(text, "queue {} ended: {}", fatal.queue, fatal.reason)?;
        }
        for lost in &self.failures.lost {
            let LostRequest { queue, generation, request, age_ms } = lost;
            writeln!(text, "lost: queue {queue}, request {generation}, {request}, waiting for {age_ms} ms")?;
        }
        let verdict = match (self.ok, self.interrupted) {
            (false, _) => "FAILED",
            (true, true) => "interrupted, no failure up to then",
            (true, false) => "ok",
        };
        let errors = self.total.errors;
        writeln!(text, "{verdict}: {} requests, {errors} errors, seed {}", self.completed, self.seed)
    }
}

fn push_class(builder: &mut Builder, queue: &str, op: &str, class: &ClassSummary) {
    let Some(latency) = &class.latency_us else { return };
    let mut row = vec![queue.to_owned(), op.to_owned()];
    row.push(format!("{:.0}", class.iops));
    row.push(format!("{:.1}", class.mib_per_second));
    let latencies = [latency.mean, latency.p50, latency.p90, latency.p99, latency.p99_9, latency.p99_99, latency.max];
    row.extend(latencies.map(|micros| format!("{micros:.1}")));
    builder.push_record(row);
}
