//! Decides: a disk has reached its limit.
//!
//! Limits of a disk: requests and bytes per second. Each has a burst, which refills while less is used.
//!
//! A token bucket, stored as the time at which it will be full. A request may go while any balance is left, however
//! large the request is. Requests then wait for the excess. So a request larger than the burst goes too, and the rate
//! holds on average.
//!
//! Source: the generic cell rate algorithm (ITU-T I.371), in its form with a virtual schedule.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use monotonic::{Duration, Instant};

/// Limits of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Requests per second.
    pub iops: Option<NonZeroU64>,
    /// Bytes per second.
    pub bytes_per_s: Option<NonZeroU64>,
    /// The burst, as a time: the burst is what the limit allows in this time. An unused limit refills it in this
    /// time.
    pub burst: Duration,
}

impl Limits {
    /// The longest burst. A longer one would hardly be a limit.
    pub const MAX_BURST: Duration = Duration::from_secs(3600);
}

impl Default for Limits {
    /// No limits; a burst of one second.
    fn default() -> Self {
        Self { iops: None, bytes_per_s: None, burst: Duration::from_secs(1) }
    }
}

/// What is left of limits. A negative balance is excess, for which requests wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Requests, if they are limited.
    pub ios: Option<i64>,
    /// Bytes, if they are limited.
    pub bytes: Option<i64>,
}

/// The limits of a disk, shared by all its [`crate::Group`]s: the requests of every group count.
///
/// Several groups may let a request go at the same moment. So the limits can be exceeded by one request per group.
/// Requests then wait for the excess, and the rate holds. The order of the groups is left to chance.
#[derive(Debug, Default)]
pub struct DiskLimits {
    /// Whether a limit is set. Groups of disks without limits take no lock.
    limited: AtomicBool,
    /// How often the limits were changed.
    changes: AtomicU64,
    meter: Mutex<Meter>,
}

impl DiskLimits {
    /// Changes the limits, and keeps the balance. Groups that wait for the earlier limits have to be polled.
    pub fn set(&self, now: Instant, limits: Limits) {
        let mut meter = self.meter();
        meter.set(now, limits);
        self.limited.store(meter.ios.is_some() || meter.bytes.is_some(), Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// The limits.
    #[must_use]
    pub fn get(&self) -> Limits {
        self.meter().limits
    }

    /// What is left of the limits.
    #[must_use]
    pub fn balance(&self, now: Instant) -> Balance {
        self.meter().balance(now)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn are_set(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, now: Instant, bytes: u32) {
        self.meter().take(now, bytes);
    }

    pub(super) fn throttled_until(&self, now: Instant) -> Option<Instant> {
        self.meter().throttled_until(now)
    }

    fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Measures use against [`Limits`].
#[derive(Clone, Copy, Debug, Default)]
struct Meter {
    limits: Limits,
    ios: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Meter {
    /// Changes the limits. The balance is kept, up to the new burst. A new limit starts with its whole burst.
    fn set(&mut self, now: Instant, limits: Limits) {
        let limits = Limits { burst: limits.burst.min(Limits::MAX_BURST), ..limits };
        let bucket = |before: Option<Bucket>, per_s: Option<NonZeroU64>| {
            let mut new = Bucket { per_s: per_s?.get(), burst: limits.burst, full_at: now };
            if let Some(before) = before {
                new.take(now, new.burst_tokens() - before.balance(now).min(new.burst_tokens()));
            }
            Some(new)
        };
        (self.ios, self.bytes) = (bucket(self.ios, limits.iops), bucket(self.bytes, limits.bytes_per_s));
        self.limits = limits;
    }

    fn take(&mut self, now: Instant, bytes: u32) {
        self.ios.iter_mut().for_each(|bucket| bucket.take(now, 1));
        self.bytes.iter_mut().for_each(|bucket| bucket.take(now, bytes.into()));
    }

    /// When a request may go again; `None`: now.
    fn throttled_until(&self, now: Instant) -> Option<Instant> {
        [self.ios, self.bytes].into_iter().flatten().filter_map(|bucket| bucket.throttled_until(now)).max()
    }

    fn balance(&self, now: Instant) -> Balance {
        let of = |bucket: Option<Bucket>| Some(bucket?.balance(now));
        Balance { ios: of(self.ios), bytes: of(self.bytes) }
    }
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    per_s: u64,
    burst: Duration,
    full_at: Instant,
}

impl Bucket {
    fn take(&mut self, now: Instant, tokens: i64) {
        // At most MAX_BURST and one request: 2^32 bytes at one byte a second are 136 years.
        let ns = (u128::from(tokens.max(0).unsigned_abs()) * 1_000_000_000).div_ceil(self.per_s.into());
        let time = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        self.full_at = self.full_at.max(now) + time;
    }

    fn throttled_until(&self, now: Instant) -> Option<Instant> {
        let left = self.full_at.saturating_duration_since(now);
        (left >= self.burst && !left.is_zero()).then(|| now + left.saturating_sub(self.burst) + Duration::from_nanos(1))
    }

    fn burst_tokens(&self) -> i64 {
        self.tokens(self.burst)
    }

    fn tokens(&self, time: Duration) -> i64 {
        i64::try_from(u128::from(self.per_s) * u128::from(time.as_nanos()) / 1_000_000_000).unwrap_or(i64::MAX)
    }

    fn balance(&self, now: Instant) -> i64 {
        self.burst_tokens().saturating_sub(self.tokens(self.full_at.saturating_duration_since(now)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn limits(iops: u64, bytes_per_s: u64, burst: Duration) -> Limits {
        Limits { iops: NonZeroU64::new(iops), bytes_per_s: NonZeroU64::new(bytes_per_s), burst }
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.set(start, limits(1000, 0, 10 * MS));
        for _ in 0..10 {
            assert_eq!(meter.throttled_until(start), None);
            meter.take(start, 0);
        }
        let (open, ns) = (meter.throttled_until(start).expect("the burst is spent"), Duration::from_nanos(1));
        assert_eq!((open, meter.throttled_until(open)), (start + ns, None));
        meter.take(open, 0);
        assert_eq!(meter.throttled_until(open), Some(start + MS + ns));
        assert_eq!(meter.balance(start + 500 * MS).ios, Some(10));
    }

    #[test]
    fn a_third_of_a_second_is_not_rounded_down() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.set(start, limits(3, 0, Duration::ZERO));
        meter.take(start, 0);
        assert_eq!(
            meter.throttled_until(start),
            Some(start + Duration::from_nanos(333_333_335)),
            "a ns after it is full"
        );
    }

    #[test]
    fn a_large_request_goes_and_later_requests_wait_for_it() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.set(start, limits(0, 1 << 20, 100 * MS));
        meter.take(start, 1 << 20);
        let open = meter.throttled_until(start).expect("too much was taken");
        assert_eq!(open, start + 900 * MS + Duration::from_nanos(1));
    }

    #[test]
    fn a_change_keeps_the_balance() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.set(start, limits(100, 0, Duration::from_secs(1)));
        (0..40).for_each(|_| meter.take(start, 0));
        meter.set(start, limits(1000, 0, Duration::from_secs(1)));
        assert_eq!(meter.balance(start).ios, Some(60));
        meter.set(start, limits(10, 0, Duration::from_secs(1)));
        assert_eq!(meter.balance(start).ios, Some(10));
        meter.set(start, Limits::default());
        assert_eq!((meter.balance(start), meter.throttled_until(start)), (Balance::default(), None));
    }

    #[test]
    fn requests_of_one_group_count_for_all() {
        let start = Instant::now();
        let shared = DiskLimits::default();
        assert!(!shared.are_set());
        shared.set(start, limits(1000, 0, 10 * MS));
        assert!(shared.are_set());
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..5).for_each(|_| shared.take(start, 4096)));
            }
        });
        assert_eq!((shared.balance(start).ios, shared.throttled_until(start).is_some()), (Some(0), true));
        shared.set(start, Limits::default());
        assert_eq!((shared.are_set(), shared.throttled_until(start)), (false, None));
    }

    proptest! {
        /// Never more than rate, burst and one request; and no less while more is wanted.
        #[test]
        fn rate_and_burst_hold(per_s in 1_u64..1 << 40, burst_ms in 0_u32..5000, sizes in prop::collection::vec(1_u32..1 << 22, 1..200)) {
            let start = Instant::now();
            let mut meter = Meter::default();
            meter.set(start, limits(0, per_s, burst_ms * MS));
            let (mut now, mut sent) = (start, 0_u128);
            for bytes in sizes {
                while let Some(until) = meter.throttled_until(now) {
                    prop_assert!(until > now);
                    now = until;
                }
                let allowed = u128::from(per_s) * u128::from((now - start + burst_ms * MS).as_nanos()) / 1_000_000_000;
                prop_assert!(sent <= allowed, "{sent} before this one, {allowed}");
                // Nothing waited longer than needed, to a ns and rounding for each.
                prop_assert!(now == start || allowed - sent <= 1 + u128::from(per_s) * 300 / 1_000_000_000 + 1);
                meter.take(now, bytes);
                sent += u128::from(bytes);
            }
        }
    }
}
