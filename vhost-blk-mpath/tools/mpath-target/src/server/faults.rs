//! The faults of a port. Connections check them in each turn; without faults that costs only atomic loads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use monotonic::{Duration, Instant};
use nvme_tcp::wire::Status;
use nvme_tcp_target::{AnswerFaults, DigestFaults};

use super::rate_limiter::RateLimiter;
use crate::setting::{BLACK_HOLES, BlackHole, CROSS_RESETS, CrossReset, Hold, MAX_DELAY, place};

/// `hold_nanos` for [`Hold::On`], beyond any [`MAX_DELAY`].
const HOLD_ON: u64 = u64::MAX;
/// `hold_nanos` for [`Hold::Off`].
const HOLD_OFF: u64 = u64::MAX - 1;

/// The faults of one port, and counters of its held commands.
pub(super) struct Faults {
    delay_nanos: AtomicU64,
    hold_nanos: AtomicU64,
    /// The number of releases of all held commands.
    releases: AtomicU64,
    /// The place in [`BLACK_HOLES`].
    black_hole: AtomicU8,
    /// The place in [`CROSS_RESETS`].
    cross_reset: AtomicU8,
    pub(super) rate_limiter: RateLimiter,
    fail_count: AtomicU32,
    fail_status: AtomicU16,
    pub(super) digests: Arc<DigestFaults>,
    pub(super) answers: Arc<AnswerFaults>,
    /// Commands that are held now.
    pub(super) held: AtomicUsize,
    /// Held commands that were executed after their connection had ended.
    pub(super) executed_late: AtomicU64,
}

/// How long a command is held, fixed when it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct HoldPeriod {
    pub(super) due: Option<Instant>,
    releases: u64,
}

impl HoldPeriod {
    /// Whether the command is released.
    pub(super) fn is_over(self, now: Instant, faults: &Faults) -> bool {
        self.due.is_some_and(|due| due <= now) || self.releases != faults.releases.load(Ordering::Acquire)
    }
}

impl Faults {
    pub(super) fn new() -> Self {
        Self {
            delay_nanos: AtomicU64::new(0),
            hold_nanos: AtomicU64::new(HOLD_OFF),
            releases: AtomicU64::new(0),
            black_hole: AtomicU8::new(0),
            cross_reset: AtomicU8::new(0),
            rate_limiter: RateLimiter::new(),
            fail_count: AtomicU32::new(0),
            fail_status: AtomicU16::new(0),
            digests: Arc::default(),
            answers: Arc::default(),
            held: AtomicUsize::new(0),
            executed_late: AtomicU64::new(0),
        }
    }

    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_nanos.load(Ordering::Relaxed))
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay_nanos.store(delay.min(MAX_DELAY).as_nanos(), Ordering::Relaxed);
    }

    pub(super) fn hold(&self) -> Hold {
        match self.hold_nanos.load(Ordering::Acquire) {
            HOLD_OFF => Hold::Off,
            HOLD_ON => Hold::On,
            nanos => Hold::For(Duration::from_nanos(nanos)),
        }
    }

    pub(super) fn set_hold(&self, hold: Hold) {
        let nanos = match hold {
            Hold::Off => HOLD_OFF,
            Hold::On => HOLD_ON,
            Hold::For(time) => time.min(MAX_DELAY).as_nanos(),
        };
        self.hold_nanos.store(nanos, Ordering::Release);
        if hold == Hold::Off {
            self.releases.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How long a command that arrives now is held; `None` if it is not held.
    pub(super) fn hold_from(&self, now: Instant) -> Option<HoldPeriod> {
        // Read before the mode, so that a release between the two reads takes effect.
        let releases = self.releases.load(Ordering::Acquire);
        match self.hold() {
            Hold::Off => None,
            Hold::On => Some(HoldPeriod { due: None, releases }),
            Hold::For(time) => Some(HoldPeriod { due: Some(now + time), releases }),
        }
    }

    pub(super) fn black_hole(&self) -> Option<BlackHole> {
        BLACK_HOLES[usize::from(self.black_hole.load(Ordering::Acquire))].1
    }

    pub(super) fn set_black_hole(&self, black_hole: Option<BlackHole>) {
        self.black_hole.store(place(&BLACK_HOLES, &black_hole) as u8, Ordering::Release);
    }

    pub(super) fn cross_reset(&self) -> CrossReset {
        CROSS_RESETS[usize::from(self.cross_reset.load(Ordering::Acquire))].1
    }

    pub(super) fn set_cross_reset(&self, cross_reset: CrossReset) {
        self.cross_reset.store(place(&CROSS_RESETS, &cross_reset) as u8, Ordering::Release);
    }

    pub(super) fn set_failures(&self, count: u32, status: Status) {
        self.fail_status.store(status.0, Ordering::Relaxed);
        self.fail_count.store(count, Ordering::Release);
    }

    pub(super) fn failures(&self) -> u32 {
        self.fail_count.load(Ordering::Acquire)
    }

    /// The status with which the next command fails without execution, if one is due.
    pub(super) fn take_failure(&self) -> Option<Status> {
        take_one(&self.fail_count).then(|| Status(self.fail_status.load(Ordering::Relaxed)))
    }
}

/// Decrements a count unless it is zero. Returns whether it did.
fn take_one(count: &AtomicU32) -> bool {
    if count.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let less = |count: u32| count.checked_sub(1);
    count.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_commands_are_released_by_time_or_at_once() {
        let (faults, now) = (Faults::new(), Instant::now());
        assert!(faults.hold_from(now).is_none());
        let time = Duration::from_secs(2);
        faults.set_hold(Hold::For(time));
        let timed = faults.hold_from(now).unwrap();
        faults.set_hold(Hold::On);
        let open = faults.hold_from(now).unwrap();
        assert!(!timed.is_over(now, &faults) && timed.is_over(now + time, &faults));
        assert!(!open.is_over(now + 1000 * time, &faults));
        faults.set_hold(Hold::Off);
        assert!(timed.is_over(now, &faults) && open.is_over(now, &faults));
        faults.set_hold(Hold::On);
        assert!(!faults.hold_from(now).unwrap().is_over(now, &faults), "an earlier release does not count");
    }

    #[test]
    fn failures_are_counted_down() {
        let faults = Faults::new();
        assert_eq!(faults.take_failure(), None);
        faults.set_failures(2, Status::INTERNAL_ERROR);
        let failure = Some(Status::INTERNAL_ERROR);
        assert_eq!([(); 3].map(|()| faults.take_failure()), [failure, failure, None]);
    }
}
