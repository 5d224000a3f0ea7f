//! What `latency` and `latency-rr` know of a path's latency, for one class of requests.

use std::time::{Duration, Instant};

use super::Candidate;
use crate::PathId;

/// Samples the average remembers. Two equal paths with exponentially distributed latencies then differ by 25 % only at
/// more than five standard deviations.
const MEMORY_SAMPLES: f64 = 512.0;
/// A path counts as silent when nothing has come back for this many thousandths of its average, at least.
const SILENCE: u64 = 1250;

/// An average latency, with how sure it is.
///
/// * **Average.** A mean over everything since the start no longer moves after a minute. This one is a plain mean at first,
///   then forgets by count ([`MEMORY_SAMPLES`]) and by time, whichever is faster: long enough that chance does not throw
///   equal paths apart, and a jump to many times the average still counts at once, because it enters in full.
/// * **Young averages.** An average of few samples is doubted by a factor of `1 + 1/√n`, less what is left of that at full
///   memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Estimate {
    /// Average in ns; 0 is unknown.
    pub(super) mean_ns: u64,
    /// The average, less and plus what it is to be doubted by.
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
    /// Samples it is worth.
    samples: f64,
    sampled_at: Option<Instant>,
}

impl Estimate {
    /// `memory` is the time it remembers: slow paths deliver few samples.
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

    /// The next sample counts as the first.
    pub(super) fn begin_afresh(&mut self) {
        self.samples = 0.0;
    }
}

/// A candidate and its latency as of now.
///
/// A path that stops answering produces no samples, but what it holds grows old, and an age is a lower bound of a latency to
/// come. Once nothing has come back for longer than [`SILENCE`] allows, counted from the latest answer or the oldest request in
/// flight, whichever is later, that time stands for the average. (A single request that takes longer while others come back is
/// ordinary scatter.)
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    pub(super) path: PathId,
    pub(super) has_room: bool,
    /// Requests of all classes in flight, and whether there is one of the class in question.
    pub(super) in_flight: u32,
    pub(super) busy: bool,
    /// Average, or the time of silence; `None` is unknown.
    pub(super) latency_ns: Option<u64>,
    /// The same, less and plus what it is to be doubted by.
    pub(super) low_ns: u64,
    pub(super) high_ns: u64,
}

impl View {
    pub(super) fn new(now: Instant, candidate: &Candidate, estimate: &Estimate) -> Self {
        let mean = estimate.mean_ns;
        let silence = candidate.oldest.map_or(0, |oldest| {
            let since = estimate.sampled_at.unwrap_or(oldest.bound_at).max(oldest.bound_at);
            nanos(now - since)
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

/// So many thousandths of a latency.
pub(super) fn thousandths(latency_ns: u64, factor: u64) -> u64 {
    latency_ns.saturating_mul(factor) / 1000
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
