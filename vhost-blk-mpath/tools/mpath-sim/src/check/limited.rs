//! The limits of a disk, checked where its guest is answered.
//!
//! A period allows what the rate gives in that time, and one burst. Each I/O thread may be one request ahead, which is
//! waited for afterwards, and what was under way when the limits were set has not been counted by them.

use std::time::Duration;

use mpath_core::Limits;

/// I/O threads at most.
const THREADS_MAX: u64 = 3;
/// The largest request.
const LARGEST_BYTES: u64 = 64 * 4096;

#[derive(Debug, Default)]
pub(super) struct Limited {
    since: Duration,
    limits: Limits,
    /// Requests that were open then.
    before: u64,
    ios: u64,
    bytes: u64,
}

impl Limited {
    pub(super) fn new(since: Duration, limits: Limits, before: u64) -> Self {
        Self { since, limits, before, ios: 0, bytes: 0 }
    }

    /// One more request was carried out.
    pub(super) fn take(&mut self, at: Duration, bytes: u64) -> Result<(), String> {
        self.ios += 1;
        self.bytes += bytes;
        let time = at.saturating_sub(self.since) + self.limits.burst;
        let ahead = self.before + THREADS_MAX;
        let check = |what, per_s: Option<std::num::NonZeroU64>, ahead: u64, taken: u64| {
            let allowed =
                |per_s: std::num::NonZeroU64| (u128::from(per_s.get()) * time.as_nanos()).div_ceil(1_000_000_000);
            match per_s.map(allowed) {
                Some(allowed) if u128::from(taken) > allowed + u128::from(ahead) => {
                    Err(format!("{taken} {what} in {time:.3?}, burst included"))
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
        let mut limited = Limited::new(SECOND, limits, 2);
        let mut taken = |at: Duration| (0..100).take_while(|_| limited.take(at, 512).is_ok()).count();
        assert_eq!(taken(SECOND), 10 + 2 + THREADS_MAX as usize);
        assert_eq!(taken(2 * SECOND), 10 - 1, "the one too many counts too");
    }

    #[test]
    fn bytes_are_counted_too() {
        let limits =
            Limits { bytes_per_s: std::num::NonZeroU64::new(1 << 20), burst: Duration::ZERO, ..Limits::default() };
        let mut limited = Limited::new(SECOND, limits, 0);
        assert!((0..THREADS_MAX).all(|_| limited.take(SECOND, LARGEST_BYTES).is_ok()));
        assert!(limited.take(SECOND, 512).is_err());
        assert!(limited.take(2 * SECOND, LARGEST_BYTES).is_ok());
        assert!(Limited::default().take(SECOND, u64::MAX).is_ok(), "no limits");
    }
}
