//! A length of time.

#![allow(clippy::cast_precision_loss)] // floats of times

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Sub, SubAssign};
use std::time::TryFromFloatSecsError;

const MICRO: u64 = 1_000;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A length of time in nanoseconds.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time.
    pub const ZERO: Self = Self(0);
    /// The longest time.
    pub const MAX: Self = Self(u64::MAX);

    /// Whole nanoseconds.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Whole microseconds.
    #[inline]
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(MICRO))
    }

    /// Whole milliseconds.
    #[inline]
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(MILLI))
    }

    /// Whole seconds.
    #[inline]
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(SECOND))
    }

    /// Seconds, rounded to the nearest nanosecond. Not a number and negative numbers become zero.
    #[inline]
    #[must_use]
    pub fn from_secs_f64(secs: f64) -> Self {
        Self::from_nanos_f64(secs * SECOND as f64)
    }

    /// Seconds, rounded to the nearest nanosecond.
    ///
    /// # Errors
    ///
    /// If the number is negative, not a number, or too large for std's durations.
    pub fn try_from_secs_f64(secs: f64) -> Result<Self, TryFromFloatSecsError> {
        std::time::Duration::try_from_secs_f64(secs).map(Self::from)
    }

    #[expect(clippy::cast_sign_loss, reason = "a cast takes negative numbers to zero")]
    #[inline]
    fn from_nanos_f64(nanos: f64) -> Self {
        Self((nanos + 0.5) as u64)
    }

    #[inline]
    pub(crate) const fn nanos(self) -> u64 {
        self.0
    }

    /// Whether this is no time.
    #[inline]
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Nanoseconds.
    #[inline]
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    #[inline]
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0 / MICRO
    }

    /// Whole milliseconds.
    #[inline]
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0 / MILLI
    }

    /// Whole seconds.
    #[inline]
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / SECOND
    }

    /// Nanoseconds of the last, incomplete second.
    #[inline]
    #[must_use]
    pub const fn subsec_nanos(self) -> u32 {
        (self.0 % SECOND) as u32
    }

    /// Seconds.
    #[inline]
    #[must_use]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / SECOND as f64
    }

    /// The difference of both, whichever is longer.
    #[inline]
    #[must_use]
    pub const fn abs_diff(self, other: Self) -> Self {
        Self(self.0.abs_diff(other.0))
    }

    /// `None` if the result is too large.
    #[inline]
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// `None` if `other` is longer.
    #[inline]
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// `None` if `divisor` is zero.
    #[inline]
    #[must_use]
    pub const fn checked_div(self, divisor: u32) -> Option<Self> {
        match self.0.checked_div(divisor as u64) {
            Some(nanos) => Some(Self(nanos)),
            None => None,
        }
    }

    /// The sum, or [`Self::MAX`].
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product, or [`Self::MAX`].
    #[inline]
    #[must_use]
    pub const fn saturating_mul(self, factor: u32) -> Self {
        Self(self.0.saturating_mul(factor as u64))
    }

    /// The product, rounded to the nearest nanosecond. Not a number and negative numbers become zero.
    #[inline]
    #[must_use]
    pub fn mul_f64(self, factor: f64) -> Self {
        Self::from_nanos_f64(self.0 as f64 * factor)
    }

    /// The quotient, rounded to the nearest nanosecond. Not a number and negative numbers become zero.
    #[inline]
    #[must_use]
    pub fn div_f64(self, divisor: f64) -> Self {
        Self::from_nanos_f64(self.0 as f64 / divisor)
    }
}

/// As std's durations.
impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::time::Duration::from(*self).fmt(f)
    }
}

/// Longer times become [`Duration::MAX`].
impl From<std::time::Duration> for Duration {
    #[inline]
    fn from(time: std::time::Duration) -> Self {
        Self(time.as_secs().saturating_mul(SECOND).saturating_add(time.subsec_nanos().into()))
    }
}

impl From<Duration> for std::time::Duration {
    #[inline]
    fn from(time: Duration) -> Self {
        Self::from_nanos(time.0)
    }
}

impl Add for Duration {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        self.saturating_add(other)
    }
}

impl AddAssign for Duration {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}

impl SubAssign for Duration {
    #[inline]
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<u32> for Duration {
    type Output = Self;

    #[inline]
    fn mul(self, factor: u32) -> Self {
        self.saturating_mul(factor)
    }
}

impl Mul<Duration> for u32 {
    type Output = Duration;

    #[inline]
    fn mul(self, time: Duration) -> Duration {
        time * self
    }
}

impl MulAssign<u32> for Duration {
    #[inline]
    fn mul_assign(&mut self, factor: u32) {
        *self = *self * factor;
    }
}

/// Panics if the divisor is zero.
impl Div<u32> for Duration {
    type Output = Self;

    #[inline]
    fn div(self, divisor: u32) -> Self {
        Self(self.0 / u64::from(divisor))
    }
}

impl DivAssign<u32> for Duration {
    #[inline]
    fn div_assign(&mut self, divisor: u32) {
        *self = *self / divisor;
    }
}

impl Sum for Duration {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::ZERO, Add::add)
    }
}

impl<'a> Sum<&'a Duration> for Duration {
    fn sum<I: Iterator<Item = &'a Self>>(times: I) -> Self {
        times.copied().sum()
    }
}
