//! A port's data rate: one pipe for all of its connections, in which I/O data follow each other in the order of arrival.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// [`Pipe::rate`] without a limit.
const UNLIMITED: u64 = 0;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

pub(super) struct Pipe {
    /// Bytes per second.
    rate: AtomicU64,
    /// When the data let in so far are through, in nanoseconds since `start`.
    free_at: AtomicU64,
    start: Instant,
}

impl Pipe {
    pub(super) fn new() -> Self {
        Self { rate: AtomicU64::new(UNLIMITED), free_at: AtomicU64::new(0), start: Instant::now() }
    }

    /// Bytes per second; `None` without a limit.
    pub(super) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|&rate| rate != UNLIMITED)
    }

    /// For what comes from now on; what is in the pipe keeps its time.
    pub(super) fn set_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// When so many bytes that arrive at `now` are through.
    pub(super) fn pass(&self, now: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.rate() else {
            return now;
        };
        let takes = (bytes as u128 * NANOS_PER_SECOND / u128::from(rate)) as u64;
        let arrives = now.saturating_duration_since(self.start).as_nanos() as u64;
        let through = |free_at: u64| Some(free_at.max(arrives).saturating_add(takes));
        let before = self.free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, through);
        let (Ok(before) | Err(before)) = before;
        self.start + Duration::from_nanos(before.max(arrives).saturating_add(takes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_follow_each_other() {
        let (pipe, start) = (Pipe::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pipe.pass(start, 1 << 30), start);
        pipe.set_rate(Some(1_000_000));
        assert_eq!(pipe.pass(start, 5000), at(5));
        assert_eq!(pipe.pass(start, 5000), at(10));
        assert_eq!(pipe.pass(at(7), 1000), at(11));
        assert_eq!(pipe.pass(at(20), 0), at(20));
        assert_eq!(pipe.pass(at(20), 1000), at(21));
        pipe.set_rate(Some(2_000_000));
        assert_eq!(pipe.pass(at(20), 2000), at(22));
        pipe.set_rate(None);
        assert_eq!(pipe.pass(at(20), 2000), at(20));
    }
}
