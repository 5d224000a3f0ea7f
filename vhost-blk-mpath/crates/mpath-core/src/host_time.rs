//! Decides: time of a request belongs to this host, which did not run the I/O thread.
//!
//! Host time: a stall is a time in which the thread did not run, whatever its requests waited for.
//!
//! There are three signs of a stall. None of them shows all stalls:
//!
//! * The turn comes later than the thread wanted to be woken. A stopped process shows here. While a thread is busy,
//!   the driver asks to be woken every few milliseconds.
//! * The kernel says for how long the thread waited for a processor. That time ends when the thread runs.
//! * The turn before took long: the thread was stopped in its midst.

use std::fmt;
use std::time::{Duration, Instant};

use crate::Times;
use crate::spans::Spans;

/// Shorter stalls are not noticed. Threads that share processors wait for about this long for one another.
const NOTICED: Duration = Duration::from_millis(5);
/// The most stalls that are remembered. So a request is compared with at least the last five seconds in which the host stood
/// still.
const STALLS_MAX: usize = 1024;

/// The time since the last turn of a driver began, as the driver knows it.
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    /// When the last turn ended.
    pub idle_since: Instant,
    /// When the driver wanted to be woken at the latest; `None`: not before the next event.
    pub due: Option<Instant>,
    /// How long the thread has waited for a processor since its last turn began; zero if that is not known.
    pub processor_wait: Duration,
}

/// A time in which the I/O thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When the stall began, at the latest.
    pub began: Instant,
    /// When the thread ran again.
    pub ended: Instant,
}

impl Stall {
    /// How long the stall took, at least.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.ended - self.began
    }
}

/// The stalls of an I/O thread since its start.
#[derive(Clone)]
pub struct HostStats {
    /// The number of stalls of 5 ms and more.
    pub stalls: u64,
    /// The sum of these stalls.
    pub stalled: Duration,
    /// How late the thread was woken by its own timers.
    pub lateness: Times,
}

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for HostStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostStats").finish_non_exhaustive()
    }
}

/// The stalls of an I/O thread.
#[derive(Clone)]
pub(crate) struct HostTime {
    /// When the last turn began.
    turn_began: Instant,
    stalls: Spans,
    stats: HostStats,
}

/// Empty, as above.
impl fmt::Debug for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTime").finish_non_exhaustive()
    }
}

impl HostTime {
    pub(crate) fn new(now: Instant) -> Self {
        let stats = HostStats { stalls: 0, stalled: Duration::ZERO, lateness: Times::waits() };
        Self { turn_began: now, stalls: Spans::new(STALLS_MAX), stats }
    }

    /// Takes note of a turn that begins. Returns the stall that has just ended, if there was one.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, waking: Waking) -> Option<Stall> {
        let last = std::mem::replace(&mut self.turn_began, now);
        if let Some(due) = waking.due.filter(|due| waking.idle_since < *due && *due <= now) {
            self.stats.lateness.record(now - due);
        }
        if now - last < NOTICED { None } else { self.find_stall(last, now, waking) }
    }

    /// The stall between the begin of the last turn and this turn.
    #[cold]
    fn find_stall(&mut self, last: Instant, now: Instant, waking: Waking) -> Option<Stall> {
        let late = waking.due.map_or(Duration::ZERO, |due| now - due.max(waking.idle_since));
        let idle = late.max(waking.processor_wait);
        let in_turn = waking.idle_since - last;
        let began = if in_turn >= NOTICED { last } else { now.checked_sub(idle).map_or(last, |began| began.max(last)) };
        let ended = if idle >= NOTICED { now } else { waking.idle_since };
        let stall = Stall { began, ended };
        if stall.time() < NOTICED {
            return None;
        }
        self.stalls.add(began, ended);
        self.stats.stalls += 1;
        self.stats.stalled += stall.time();
        Some(stall)
    }

    /// The part of this time in which the thread did not run.
    pub(crate) fn stalled(&self, from: Instant, until: Instant) -> Duration {
        self.stalls.within(from, until)
    }

    pub(crate) fn stats(&self) -> &HostStats {
        &self.stats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A turn begins at 0 ms and ends at `idle_since`. The next one begins at `now`. Returns begin and end of the stall.
    fn stall(idle_since: u32, due: Option<u32>, processor_wait: u32, now: u32) -> Option<(u128, u128)> {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let waking = Waking { idle_since: at(idle_since), due: due.map(at), processor_wait: processor_wait * MS };
        let mut host = HostTime::new(start);
        let found = host.look(at(now), waking);
        let ms = |at: Instant| (at - start).as_millis();
        let time = found.map_or(Duration::ZERO, |stall| stall.time());
        assert_eq!((host.stats.stalls, host.stats.stalled), (u64::from(found.is_some()), time));
        assert_eq!(host.stalled(start, at(now)), time);
        found.map(|stall| (ms(stall.began), ms(stall.ended)))
    }

    #[test]
    fn a_thread_that_is_woken_in_time_did_not_stall() {
        assert_eq!(stall(1, None, 0, 5000), None);
        assert_eq!(stall(1, Some(5000), 0, 5000), None);
        assert_eq!(stall(1, Some(5000), 0, 5004), None, "too short");
        assert_eq!(stall(1, Some(9000), 4, 5000), None, "too short");
    }

    #[test]
    fn a_thread_that_is_woken_late_stalled() {
        assert_eq!(stall(1, Some(50), 0, 850), Some((50, 850)));
    }

    #[test]
    fn a_thread_that_waited_for_a_processor_stalled() {
        assert_eq!(stall(1, None, 800, 5000), Some((4200, 5000)));
        assert_eq!(stall(1, Some(4900), 800, 5000), Some((4200, 5000)), "which began before the timer");
        assert_eq!(stall(1, None, 6000, 5000), Some((0, 5000)), "the kernel counts waits of earlier turns, too");
    }

    #[test]
    fn a_thread_that_was_stopped_in_a_turn_stalled() {
        assert_eq!(stall(800, None, 0, 5000), Some((0, 800)));
        assert_eq!(stall(800, Some(900), 0, 1700), Some((0, 1700)), "and again right after");
    }

    #[test]
    fn lateness_counts_turns_that_were_due() {
        let start = Instant::now();
        let mut host = HostTime::new(start);
        for (due, now) in [(Some(10), 10), (Some(20), 21), (Some(900), 30), (None, 40), (Some(0), 50)] {
            let due = due.map(|ms: u32| start + ms * MS);
            host.look(start + now * MS, Waking { idle_since: start, due, processor_wait: Duration::ZERO });
        }
        assert_eq!((host.stats.lateness.ns().len(), host.stats.lateness.sum()), (2, MS));
    }
}
