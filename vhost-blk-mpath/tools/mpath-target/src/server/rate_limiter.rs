//! The data rate of a port. All its connections share it, and I/O data are served in the order of arrival.

use std::sync::atomic::{AtomicU64, Ordering};

use monotonic::{Duration, Instant};

/// [`RateLimiter::rate`] without a limit.
const UNLIMITED: u64 = 0;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

pub(super) struct RateLimiter {
    /// Bytes per second.
    rate: AtomicU64,
    /// When all data so far are transferred, in nanoseconds since `start`.
    free_at: AtomicU64,
    start: Instant,
}

impl RateLimiter {
    pub(super) fn new() -> Self {
        Self { rate: AtomicU64::new(UNLIMITED), free_at: AtomicU64::new(0), start: Instant::now() }
    }

    /// Bytes per second; `None` without a limit.
    pub(super) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|&rate| rate != UNLIMITED)
    }

    /// Sets the rate of data that arrive later. Data that have arrived keep their times.
    pub(super) fn set_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// When `bytes` bytes that arrive at `now` are transferred.
    pub(super) fn schedule(&self, now: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.rate() else {
            return now;
        };
        let duration = (bytes as u128 * NANOS_PER_SECOND / u128::from(rate)) as u64;
        let arrival = now.saturating_duration_since(self.start).as_nanos();
        let finish = |free_at: u64| Some(free_at.max(arrival).saturating_add(duration));
        let before = self.free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, finish);
        let (Ok(before) | Err(before)) = before;
        self.start + Duration::from_nanos(before.max(arrival).saturating_add(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_are_transferred_one_after_another() {
        let (limiter, start) = (RateLimiter::new(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(limiter.schedule(start, 1 << 30), start);
        limiter.set_rate(Some(1_000_000));
        assert_eq!(limiter.schedule(start, 5000), at(5));
        assert_eq!(limiter.schedule(start, 5000), at(10));
        assert_eq!(limiter.schedule(at(7), 1000), at(11));
        assert_eq!(limiter.schedule(at(20), 0), at(20));
        assert_eq!(limiter.schedule(at(20), 1000), at(21));
        limiter.set_rate(Some(2_000_000));
        assert_eq!(limiter.schedule(at(20), 2000), at(22));
        limiter.set_rate(None);
        assert_eq!(limiter.schedule(at(20), 2000), at(20));
    }
}
