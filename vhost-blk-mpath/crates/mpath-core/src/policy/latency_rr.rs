//! `latency-rr`: in turn over the paths whose latency is near the best.
//!
//! Rule: round-robin over the paths whose average latency is within 125 % of the lowest average. Source: the btrfs read policy
//! of this name in Kai Krakow's series (`fs/btrfs/volumes.c`), there for reads of mirrored devices; here reads, writes and other
//! operations are estimated apart.
//!
//! What the published rule leaves open, or what does not hold here:
//!
//! * **Average.** A mean over everything since the start no longer moves after a minute. Ours is a plain mean at first, then
//!   forgets by count (`MEMORY_SAMPLES`) and by time (`MEMORY`), whichever is faster: long enough that chance does not
//!   throw equal paths out of the band, and a jump to many times the average still counts at once, because it enters in full.
//! * **Young averages.** An average of few samples is doubted by a factor of `1 + 1/√n`, less what is left of that at full memory, in
//!   favour of the path in question and to the disadvantage of the best. Otherwise one unlucky sample would shut a good path
//!   out until its next probe, or one lucky sample all the others.
//! * **Stalls.** A path that stops answering produces no samples, but what it holds grows old, and an age is a lower bound of a
//!   latency to come. Two signs replace the average: nothing at all has come back for longer than the band allows (counted from the latest
//!   answer or the oldest request in flight, whichever is later), or the oldest request in flight is `STALL_FACTOR` averages
//!   old. (A single request that takes longer than the band allows is ordinary scatter.)
//! * **Rehabilitation.** A path that is not chosen is not measured. Published: after 10,000 I/Os it gets a burst of 100. With
//!   30 ms between the paths that costs 85 % of the IOPS at queue depth 1. Ours goes by time: one real request, when at
//!   least `PROBE_COST` times the latency it may cost has passed since the last probe (limits: `PROBE_REST_MIN`,
//!   `PROBE_REST_MAX`), one at a time per class, the longest-unmeasured path first. So probes cost about 3 % at queue depth 1, and nothing is frozen
//!   out for good. An average that old is replaced by the probe's result.
//! * **Full windows.** If every path in the band is full, the request waits: a far slower path would answer later than the
//!   wait takes. Only a path that answers before the whole queue has got through on the good ones is used, that is if
//!   `latency < best · (1 + queued / in flight on the band)`. Source: the ECF scheduler (Lim et al., CoNEXT '17).

use std::time::{Duration, Instant};

use super::{Candidate, Choice, Policy, Query, next_after};
use crate::path::MAX_PATHS;
use crate::{OpClass, PathId};

/// The band: percent of the best average (published).
const BAND_PERCENT: u64 = 125;
/// Samples the average remembers. With the scatter of an exponential distribution two equal paths then differ by 25 % only once
/// in 10⁷ samples or so.
const MEMORY_SAMPLES: f64 = 512.0;
/// Time the average remembers, s: slow paths deliver few samples.
const MEMORY: f64 = 0.25;
/// In averages: requests in flight for longer are a stall.
const STALL_FACTOR: u64 = 4;
/// In latencies of the path to be probed: rest between two probes of a class.
const PROBE_COST: u32 = 32;
/// Shortest rest between two probes.
const PROBE_REST_MIN: Duration = Duration::from_millis(500);
/// Longest rest between two probes.
const PROBE_REST_MAX: Duration = Duration::from_secs(4);
/// Up to 1/8 is added to each rest at random, lest many threads and hosts probe in step.
const PROBE_JITTER: u32 = 8;
/// Shortest and longest time to ask again when a request waits for a full path.
const AGAIN: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(100));

/// What is known of one path and class.
#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Average in ns; 0 is unknown.
    mean_ns: u64,
    /// The average, less and plus what it is to be doubted by.
    low_ns: u64,
    high_ns: u64,
    /// Samples it is worth.
    samples: f64,
    sampled_at: Option<Instant>,
    chosen_at: Option<Instant>,
}

impl Estimate {
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // means of ns stay far below 2^52
    fn sample(&mut self, now: Instant, latency: Duration) {
        let gap = self.sampled_at.map_or(f64::INFINITY, |at| (now - at).as_secs_f64());
        let by_time = (MEMORY / gap).max(1.0);
        self.samples = (self.samples + 1.0).min(MEMORY_SAMPLES).min(by_time);
        let old = self.mean_ns as f64;
        let mean = old + (latency.as_nanos() as f64 - old) / self.samples;
        self.mean_ns = (mean as u64).max(1);
        let doubt = 1.0 + self.samples.sqrt().recip() - MEMORY_SAMPLES.sqrt().recip();
        self.low_ns = (mean / doubt) as u64;
        self.high_ns = (mean * doubt) as u64;
        self.sampled_at = Some(now);
    }
}

/// A candidate as this policy sees it now.
#[derive(Clone, Copy, Debug)]
struct View {
    /// Average, or the age of a stalled request; `None` is unknown.
    latency_ns: Option<u64>,
    low_ns: u64,
    high_ns: u64,
}

#[derive(Debug)]
pub(super) struct LatencyRr {
    estimates: Vec<[Estimate; 3]>,
    last: [Option<PathId>; 3],
    /// The path and time of the last probe.
    probe: [Option<(PathId, Instant)>; 3],
    /// Present jitter, of 1024.
    jitter: u32,
    random: u64,
}

impl LatencyRr {
    pub(super) fn new(seed: u64) -> Self {
        let mut policy = Self {
            estimates: vec![[Estimate::default(); 3]; MAX_PATHS],
            last: [None; 3],
            probe: [None; 3],
            jitter: 0,
            random: seed,
        };
        policy.draw_jitter();
        policy
    }

    /// splitmix64.
    fn draw_jitter(&mut self) {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.jitter = ((z ^ (z >> 31)) % 1024) as u32;
    }

    fn estimate(&self, path: PathId, class: OpClass) -> &Estimate {
        &self.estimates[path.index()][class.index()]
    }

    fn view(&self, query: &Query, candidate: &Candidate) -> View {
        let estimate = self.estimate(candidate.path, query.class);
        let mean = estimate.mean_ns;
        if mean == 0 {
            return View { latency_ns: None, low_ns: 0, high_ns: u64::MAX };
        }
        let mut at_least = 0;
        if let Some(oldest) = candidate.oldest {
            let age = nanos(query.now - oldest);
            let silence = age.min(estimate.sampled_at.map_or(u64::MAX, |at| nanos(query.now - at)));
            if age > STALL_FACTOR * mean {
                at_least = age;
            } else if silence > band(mean) {
                at_least = silence;
            }
        }
        View {
            latency_ns: Some(mean.max(at_least)),
            low_ns: estimate.low_ns.max(at_least),
            high_ns: estimate.high_ns.max(at_least),
        }
    }

    /// A path outside the band whose turn to be measured has come.
    fn due_probe(&self, query: &Query, candidates: &[Candidate], band_ns: u64) -> Option<PathId> {
        let class = query.class;
        let last_probe = self.probe[class.index()];
        let (path, latency_ns, chosen_at) = candidates
            .iter()
            .filter_map(|c| {
                let view = self.view(query, c);
                let outside = view.low_ns > band_ns && c.has_room && c.oldest.is_none();
                let chosen_at = self.estimate(c.path, class).chosen_at;
                outside.then_some((c.path, view.latency_ns?, chosen_at))
            })
            .min_by_key(|&(_, _, chosen_at)| chosen_at)?;
        let under_way = |(probed, _): (PathId, Instant)| {
            candidates.iter().any(|c| c.path == probed && c.oldest.is_some() && self.view(query, c).low_ns > band_ns)
        };
        if last_probe.is_some_and(under_way) {
            return None;
        }
        let rest = (Duration::from_nanos(latency_ns) * PROBE_COST).clamp(PROBE_REST_MIN, PROBE_REST_MAX);
        let rest = rest + rest / PROBE_JITTER * self.jitter / 1024;
        let rested = |at: Option<Instant>| at.is_none_or(|at| query.now - at >= rest);
        (rested(chosen_at) && rested(last_probe.map(|(_, at)| at))).then_some(path)
    }

    fn decide(&self, query: &Query, candidates: &[Candidate]) -> Decision {
        let last = self.last[query.class.index()];
        let with_room = candidates.iter().filter(|c| c.has_room);
        let best_ns = candidates.iter().filter_map(|c| self.view(query, c).latency_ns).min();
        let Some(best_ns) = best_ns else {
            // Nothing is known of any path.
            return next_after(last, with_room.map(|c| c.path)).map_or(Decision::Wait { again: None }, Decision::Turn);
        };
        let best_high_ns = candidates.iter().map(|c| self.view(query, c).high_ns).min();
        let band_ns = band(best_high_ns.unwrap_or(u64::MAX));

        // A path never measured is measured at once, by one request at a time.
        let unknown = |c: &&Candidate| c.oldest.is_none() && self.estimate(c.path, query.class).mean_ns == 0;
        if let Some(new) = with_room.clone().find(unknown) {
            return Decision::Aside(new.path);
        }
        if let Some(path) = self.due_probe(query, candidates, band_ns) {
            return Decision::Probe(path);
        }

        let in_band = |c: &&Candidate| {
            let view = self.view(query, c);
            view.latency_ns.is_some() && view.low_ns <= band_ns
        };
        let turns = with_room.clone().filter(in_band).map(|c| c.path);
        if let Some(path) = next_after(last, turns) {
            return Decision::Turn(path);
        }

        let band_in_flight: u32 = candidates.iter().filter(in_band).map(|c| c.in_flight).sum();
        let queue_ns = best_ns.saturating_mul(query.queued as u64) / u64::from(band_in_flight.max(1));
        with_room
            .filter_map(|c| Some((self.view(query, c).latency_ns?, c.path)))
            .min()
            .filter(|&(latency_ns, _)| latency_ns < best_ns.saturating_add(queue_ns))
            .map_or_else(
                || Decision::Wait { again: Some(query.now + Duration::from_nanos(best_ns).clamp(AGAIN.0, AGAIN.1)) },
                |(_, path)| Decision::Aside(path),
            )
    }
}

/// What is decided, and so what is to be remembered.
#[derive(Clone, Copy, Debug)]
enum Decision {
    /// The next path in turn.
    Turn(PathId),
    /// A path out of turn: new, or used because the queue is long.
    Aside(PathId),
    /// A path outside the band, to measure it again.
    Probe(PathId),
    Wait {
        again: Option<Instant>,
    },
}

impl Policy for LatencyRr {
    fn select(&mut self, query: &Query, candidates: &[Candidate]) -> Choice {
        let class = query.class.index();
        let path = match self.decide(query, candidates) {
            Decision::Wait { again } => return Choice::Wait { again },
            Decision::Turn(path) => {
                self.last[class] = Some(path);
                path
            }
            Decision::Aside(path) => path,
            Decision::Probe(path) => {
                self.probe[class] = Some((path, query.now));
                self.draw_jitter();
                path
            }
        };
        self.estimates[path.index()][class].chosen_at = Some(query.now);
        Choice::Path(path)
    }

    fn completed(&mut self, now: Instant, path: PathId, class: OpClass, latency: Duration) {
        self.estimates[path.index()][class.index()].sample(now, latency);
    }

    fn path_changed(&mut self, path: PathId) {
        self.estimates[path.index()] = [Estimate::default(); 3];
    }
}

/// The limit of the band above a latency.
fn band(latency_ns: u64) -> u64 {
    latency_ns.saturating_mul(BAND_PERCENT) / 100
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
