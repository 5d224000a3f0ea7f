//! A point in time.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub, SubAssign};

use rustix::time::{ClockId, clock_gettime};

use crate::Duration;

/// The time at which `CLOCK_MONOTONIC` began, in seconds. With std too, an instant may be before that.
const BOOT: u64 = 100 * 365 * 86_400;

/// A time of `CLOCK_MONOTONIC`, the clock of `std::time::Instant`: at most 100 years before the clock began, 484 years after.
///
/// It is never 0, so an `Option<Instant>` is one word too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(NonZeroU64);

impl Instant {
    /// The time of the clock.
    #[must_use]
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Monotonic);
        // Linux never sets this clock to a negative time.
        Self::from_nanos((BOOT + time.tv_sec.unsigned_abs()) * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }

    #[inline]
    const fn from_nanos(nanos: u64) -> Self {
        match NonZeroU64::new(nanos) {
            Some(nanos) => Self(nanos),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// The time since `earlier`, or zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        self - earlier
    }

    /// The same as [`Self::duration_since`].
    #[inline]
    #[must_use]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        self - earlier
    }

    /// The time since this instant.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now() - self
    }

    /// `None` if the result is too large.
    #[inline]
    #[must_use]
    pub fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(time.nanos()).map(Self)
    }

    /// `None` if the result is too early.
    #[inline]
    #[must_use]
    pub fn checked_sub(self, time: Duration) -> Option<Self> {
        self.0.get().checked_sub(time.nanos()).and_then(NonZeroU64::new).map(Self)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.get();
        f.debug_struct("Instant")
            .field("tv_sec", &(nanos / 1_000_000_000).cast_signed().wrapping_sub_unsigned(BOOT))
            .field("tv_nsec", &(nanos % 1_000_000_000))
            .finish()
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time.nanos()))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, time: Duration) -> Self {
        Self::from_nanos(self.0.get().saturating_sub(time.nanos()))
    }
}

impl SubAssign<Duration> for Instant {
    #[inline]
    fn sub_assign(&mut self, time: Duration) {
        *self = *self - time;
    }
}

impl Sub for Instant {
    type Output = Duration;

    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }
}
