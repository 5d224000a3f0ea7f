//! The average latency of a path for one class of requests, for `latency` and `latency-rr`.

use monotonic::{Duration, Instant};

use super::Candidate;
use crate::PathId;

/// The samples that the average remembers. Two equal paths with exponentially distributed latencies then differ by 25
/// % only at more than five standard deviations.
const MEMORY_SAMPLES: f64 = 512.0;
/// A path counts as silent when nothing has come back for more than this many thousandths of its average.
const SILENCE: u64 = 1250;

/// An average latency and its doubt.
///
/// * **Average.** A mean over all samples would hardly move after a minute. This average is a plain mean at first.
///   Then it forgets by count ([`MEMORY_SAMPLES`]) and by time, whichever is faster. It is long enough that chance
///   does not separate equal paths. A jump to many times the average still counts at once, because each sample enters
///   in full.
/// * **Young averages.** An average of `n` samples is doubted by the factor `1 + 1/√n`, less what remains of it at
///   full memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LatencyAverage {
    /// The average in ns; 0: unknown.
    pub(super) mean_ns: u64,
    /// The average less its doubt, and plus its doubt.
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
    /// The number of samples that the average counts as.
    samples: f64,
    sampled_at: Option<Instant>,
}

impl LatencyAverage {
    /// Adds a sample. `memory` is the time that the average remembers: slow paths deliver few samples.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // means of ns stay far below 2^52
    pub(super) fn sample(&mut self, now: Instant, latency: Duration, memory: Duration) {
        let gap = self.sampled_at.map_or(f64::INFINITY, |at| (now - at).as_secs_f64());
        let by_time = (memory.as_secs_f64() / gap).max(1.0);
        self.samples = (self.samples + 1.0).min(MEMORY_SAMPLES).min(by_time);
        let old = self.mean_ns as f64;
        let mean = old + (latency.as_nanos() as f64 - old) / self.samples;
        self.mean_ns = (mean as u64).max(1);
        let doubt = 1.0 + self.samples.sqrt().recip() - MEMORY_SAMPLES.sqrt().recip();
        self.low_ns = (mean / doubt) as u64;
        self.high_ns = (mean * doubt) as u64;
        self.sampled_at = Some(now);
    }

    /// Starts anew: the next sample counts as the first.
    pub(super) fn start_anew(&mut self) {
        self.samples = 0.0;
    }
}

/// A candidate with its latency as of now.
///
/// A path that stops answering gives no samples, but its requests age, and their age is a lower bound of the next
/// latency. Silence is counted from the latest answer or the oldest request in flight, whichever is later. If it
/// exceeds [`SILENCE`], it replaces the average. (A single slow request among answers is ordinary scatter.)
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) path: PathId,
    pub(super) has_room: bool,
    /// Requests of all classes in flight, and whether one of the queried class is.
    pub(super) in_flight: u32,
    pub(super) busy: bool,
    /// The average, or the time of silence; `None`: unknown.
    pub(super) latency_ns: Option<u64>,
    /// The latency less its doubt, and plus its doubt.
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
}

impl View {
    /// Whether the path was never measured.
    pub(super) fn is_new(&self) -> bool {
        self.latency_ns.is_none()
    }

    pub(super) fn new(now: Instant, candidate: &Candidate, estimate: &LatencyAverage) -> Self {
        let mean = estimate.mean_ns;
        let silence = candidate.oldest.map_or(0, |oldest| {
            let since = estimate.sampled_at.unwrap_or(oldest.bound_at).max(oldest.bound_at);
            (now - since).as_nanos()
        });
        let at_least = if silence > thousandths(mean, SILENCE) { silence } else { 0 };
        Self {
            path: candidate.path,
            has_room: candidate.has_room,
            in_flight: candidate.in_flight,
            busy: candidate.oldest.is_some(),
            latency_ns: (mean != 0).then_some(mean.max(at_least)),
            low_ns: estimate.low_ns.max(at_least),
            high_ns: estimate.high_ns.max(at_least),
        }
    }
}

/// A latency times `factor` thousandths.
pub(super) fn thousandths(latency_ns: u64, factor: u64) -> u64 {
    latency_ns.saturating_mul(factor) / 1000
}
