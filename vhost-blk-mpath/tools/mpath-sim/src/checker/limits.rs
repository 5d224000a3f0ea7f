//! The limits of a disk, checked where its guest is answered.
//!
//! A period allows the requests and bytes of the rate in that time, and one burst. Each I/O thread may be one request ahead, and
//! waits afterwards. Requests that were under way when the limits were set do not count.

use monotonic::Duration;
use mpath_core::Limits;

/// I/O threads at most.
const THREADS_MAX: u64 = 3;
/// The largest request.
const LARGEST_BYTES: u64 = 64 * 4096;

/// The use of a disk since its limits were set.
#[derive(Debug, Default)]
pub(super) struct LimitUse {
    since: Duration,
    limits: Limits,
    /// Requests that were open when the limits were set.
    before: u64,
    ios: u64,
    bytes: u64,
}

impl LimitUse {
    pub(super) fn new(since: Duration, limits: Limits, before: u64) -> Self {
        Self { since, limits, before, ios: 0, bytes: 0 }
    }

    /// Counts an executed request. Returns an error if the limits do not allow it.
    pub(super) fn count(&mut self, at: Duration, bytes: u64) -> Result<(), String> {
        self.ios += 1;
        self.bytes += bytes;
        let time = at.saturating_sub(self.since) + self.limits.burst;
        let ahead = self.before + THREADS_MAX;
        let check = |what, per_s: Option<std::num::NonZeroU64>, ahead: u64, used: u64| {
            let allowed = |per_s: std::num::NonZeroU64| {
                (u128::from(per_s.get()) * u128::from(time.as_nanos())).div_ceil(1_000_000_000)
            };
            match per_s.map(allowed) {
                Some(allowed) if u128::from(used) > allowed + u128::from(ahead) => {
                    Err(format!("{used} {what} in {time:.3?}, burst included"))
                }
                _ => Ok(()),
            }
        };
        check("requests", self.limits.iops, ahead, self.ios)?;
        check("bytes", self.limits.bytes_per_s, ahead * LARGEST_BYTES, self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_the_rate_may_go() {
        let limits = Limits { iops: std::num::NonZeroU64::new(10), burst: SECOND, ..Limits::default() };
        let mut limit_use = LimitUse::new(SECOND, limits, 2);
        let mut used = |at: Duration| (0..100).take_while(|_| limit_use.count(at, 512).is_ok()).count();
        assert_eq!(used(SECOND), 10 + 2 + THREADS_MAX as usize);
        assert_eq!(used(2 * SECOND), 10 - 1, "the one too many counts too");
    }

    #[test]
    fn bytes_are_counted_too() {
        let limits =
            Limits { bytes_per_s: std::num::NonZeroU64::new(1 << 20), burst: Duration::ZERO, ..Limits::default() };
        let mut limit_use = LimitUse::new(SECOND, limits, 0);
        assert!((0..THREADS_MAX).all(|_| limit_use.count(SECOND, LARGEST_BYTES).is_ok()));
        assert!(limit_use.count(SECOND, 512).is_err());
        assert!(limit_use.count(2 * SECOND, LARGEST_BYTES).is_ok());
        assert!(LimitUse::default().count(SECOND, u64::MAX).is_ok(), "no limits");
    }
}
