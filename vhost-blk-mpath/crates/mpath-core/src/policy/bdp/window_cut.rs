//! Window cuts: for a while a path has fewer requests, which shows how long the path takes without a queue.
//!
//! A cut goes in steps. Each step halves the window while requests still queue: the requests ahead of a request then
//! explain its latency. A path that delivers as much with fewer requests, or takes less time for them, had a queue
//! before. Its rate was its limit.

use monotonic::Instant;

use super::latency::Mean;

/// Answers per step.
const SAMPLES: u32 = 32;
/// Requests queue if their latency is less than this many times what the path takes for the bytes ahead of them. The
/// part of the latency for their own size does not count.
const QUEUED: f64 = 1.15;
/// A step has fewer requests if it has less than this part of the bytes in flight before.
const FEWER: f64 = 0.85;
/// With fewer requests, a path was at its limit if it still delivers `STILL_DELIVERED` of its rate or takes less than
/// `SHORTER` of the time.
const STILL_DELIVERED: f64 = 0.87;
const SHORTER: f64 = 0.93;
/// The factor from step to step.
const HALF: f64 = 0.5;

/// One step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowCut {
    /// Requests that were bound earlier do not count.
    since: Instant,
    /// The window, as a part of the bandwidth-delay product.
    pub(super) gain: f64,
    /// The path's limit is known, or has been seen.
    pub(super) limited: bool,
    /// Mean latency and size, and bytes per second, before this step.
    before: Mean,
    rate: f64,
    /// When the first request that counts was answered, and its bytes.
    began: Option<(Instant, f64)>,
    /// Bytes in flight when requests were bound, summed, and the number of these requests.
    ahead: f64,
    bound: u32,
    latencies: f64,
    sizes: f64,
    count: u32,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Another step follows.
    Continue(WindowCut),
    /// The latency of the path without a queue, and whether its limit is known.
    Done { mean: Mean, limited: bool },
}

impl WindowCut {
    pub(super) fn new(since: Instant, gain: f64, limited: bool, before: Mean, rate: f64) -> Self {
        let (ahead, bound, latencies, sizes, count) = (0.0, 0, 0.0, 0.0, 0);
        Self { since, gain, limited, before, rate, began: None, ahead, bound, latencies, sizes, count }
    }

    /// Counts a request that was bound behind `ahead` bytes.
    pub(super) fn bound(&mut self, ahead: f64) {
        self.ahead += ahead;
        self.bound += 1;
    }

    /// Counts an answer; `rate` is the known limit of the path, in bytes per second.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        bound_at: Instant,
        latency: f64,
        bytes: f64,
        rate: f64,
    ) -> Option<Step> {
        if bound_at < self.since {
            return None;
        }
        let (began, first) = *self.began.get_or_insert((now, bytes));
        self.latencies += latency;
        self.sizes += bytes;
        self.count += 1;
        if self.count < SAMPLES {
            return None;
        }
        let n = f64::from(self.count);
        let mean = Mean { latency: self.latencies / n, size: self.sizes / n };
        // The parts that sizes do not explain, and the part that requests ahead explain.
        let (before, wait) = (self.before.delay(rate), mean.delay(rate));
        let ahead = self.ahead / f64::from(self.bound.max(1));
        let delivered = (self.sizes - first) / (now - began).as_secs_f64().max(1e-9);
        // By Little's law, rate times latency is the number of bytes in flight before.
        let fewer = ahead + mean.size < FEWER * self.rate * self.before.latency;
        let limited = self.limited || fewer && (delivered > STILL_DELIVERED * self.rate || wait < SHORTER * before);
        let is_queued = ahead > 0.0 && wait < QUEUED * ahead / rate;
        Some(if is_queued {
            Step::Continue(Self::new(now, HALF * self.gain, limited, mean, self.rate))
        } else {
            Step::Done { mean, limited }
        })
    }
}

#[cfg(test)]
mod tests {
    use monotonic::Duration;

    use super::*;

    const RATE: f64 = 1e6;

    /// A step on a link of 1 MB/s with this delay, with `before` and then `then` requests of 1000 bytes in flight.
    fn step(delay: f64, before: f64, then: f64) -> Step {
        let start = Instant::now();
        let latency = |n: f64| (delay + 0.001).max(n * 0.001);
        let rate = |n: f64| n * 1000.0 / latency(n);
        let mean = Mean { latency: latency(before), size: 1000.0 };
        let since = start + Duration::from_millis(1);
        let mut cut = WindowCut::new(since, 0.5, false, mean, rate(before));
        assert_eq!(cut.answered(since, start, 1.0, 1e6, RATE), None, "too old to count");
        for n in 1.. {
            cut.bound((then - 1.0) * 1000.0);
            let now = since + Duration::from_secs_f64(latency(then) + f64::from(n) * 1000.0 / rate(then));
            let known = rate(before).max(rate(then));
            if let Some(step) = cut.answered(now, now, latency(then), 1000.0, known) {
                assert_eq!(n, 32);
                return step;
            }
        }
        unreachable!("a step ends")
    }

    #[test]
    fn a_queue_is_told_from_a_delay() {
        // Room for 5 without a queue: 8 queue, 4 do not.
        let Step::Done { mean, limited } = step(0.004, 8.0, 4.0) else { panic!("4 stand in no line") };
        assert!(limited && (mean.latency - 0.005).abs() < 1e-9, "{mean:?}");
        // Room for 21: neither 8 nor 2 queue.
        let Step::Done { limited, .. } = step(0.020, 8.0, 2.0) else { panic!("2 stand in no line") };
        assert!(!limited);
        // An unchanged number shows nothing.
        assert!(matches!(step(0.020, 2.0, 2.0), Step::Continue(WindowCut { limited: false, .. })));
    }

    #[test]
    fn the_cut_goes_on_while_there_is_a_queue() {
        let Step::Continue(next) = step(0.001, 16.0, 8.0) else { panic!("8 stand in line") };
        assert_eq!((next.gain, next.limited), (0.25, true));
    }
}
