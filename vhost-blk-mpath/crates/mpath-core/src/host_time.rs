//! Decides: time of a request belongs to this host, which did not run the I/O thread.
//!
//! Host time: a stall is a time in which the thread did not run, whatever its requests waited for.
//!
//! There are three signs of a stall. None of them shows all stalls:
//!
//! * The turn comes later than the thread wanted to be woken. A stopped process shows here. While a thread is busy,
//!   the driver asks to be woken every 50 ms.
//! * The kernel says for how long the thread waited for a processor. That time ends when the thread runs.
//! * The turn before took long: the thread was stopped in its midst.

use std::fmt;

use monotonic::{Duration, Instant};

use crate::Times;
use crate::attention::gap;
use crate::spans::Spans;

/// Shorter stalls are not noticed. Threads that share processors wait for about this long for one another.
const NOTICED: Duration = Duration::from_millis(5);
/// The most stalls that are remembered. So a request is compared with at least the last five seconds in which the host stood
/// still.
const STALLS_MAX: usize = 1024;

/// The time since the last turn of a driver began, as the driver knows it: see [`TurnWatch::begin_turn`].
#[derive(Clone, Copy, Debug)]
pub struct Waking {
    /// When the last turn ended.
    pub idle_since: Instant,
    /// When the driver wanted to be woken at the latest; `None`: not before the next event.
    pub due: Option<Instant>,
    /// How long the thread has waited for a processor since its last turn began; zero if that is not known.
    pub processor_wait: Duration,
    /// How long the thread has run since its last turn began; zero if that is not known.
    pub processor_time: Duration,
}

/// A time in which the I/O thread did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// When the stall began, at the latest.
    pub began: Instant,
    /// When the thread ran again.
    pub ended: Instant,
    /// The part of it in which the thread waited for a processor, as the kernel counts it. In the rest the thread was stopped.
    pub waited: Duration,
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

/// Watches the turns of a driver, for all groups that it drives.
#[derive(Debug)]
pub struct TurnWatch {
    /// When the last turn began.
    turn_began: Instant,
    stats: HostStats,
}

/// A time in which a driver stood still. All its groups have to know ([`crate::Group::stood_still`]).
#[derive(Clone, Copy, Debug)]
pub struct Standstill {
    /// See [`crate::attention`].
    pub(crate) gap: Option<(Instant, Instant)>,
    /// The stall within the last turn, and the one after that turn.
    stalls: [Option<Stall>; 2],
}

impl Standstill {
    /// The last stall.
    #[must_use]
    pub fn stall(&self) -> Option<Stall> {
        self.stalls[1].or(self.stalls[0])
    }
}

impl TurnWatch {
    /// For a driver that starts now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let stats = HostStats { stalls: 0, stalled: Duration::ZERO, lateness: Times::waits() };
        Self { turn_began: now, stats }
    }

    /// Begins a turn of the driver. Call it before anything else in the turn. Returns for how long the driver stood still before.
    #[inline]
    pub fn begin_turn(&mut self, now: Instant, waking: Waking) -> Option<Standstill> {
        let last = std::mem::replace(&mut self.turn_began, now);
        if let Some(due) = waking.due.filter(|due| waking.idle_since < *due && *due <= now) {
            self.stats.lateness.record(now - due);
        }
        if now - last < NOTICED { None } else { self.find_standstill(last, now, waking) }
    }

    /// The stall before this turn, and the one within the last turn, which began at `last`.
    #[cold]
    fn find_standstill(&mut self, last: Instant, now: Instant, waking: Waking) -> Option<Standstill> {
        let turn = waking.idle_since - last;
        // A turn of much work stalls nothing.
        let in_turn = turn.saturating_sub(waking.processor_time);
        let within = (in_turn >= NOTICED).then(|| self.stalled_for(in_turn, waking.idle_since, waking.processor_wait));
        let late = waking.due.map_or(Duration::ZERO, |due| now - due.max(waking.idle_since));
        // A stall within the turn may have been such a wait.
        let waited = waking.processor_wait.saturating_sub(within.map_or(Duration::ZERO, |stall| stall.time()));
        let idle = late.max(waited).min(now - waking.idle_since);
        let before = (idle >= NOTICED).then(|| self.stalled_for(idle, now, waited));
        let standstill = Standstill { gap: gap(last, now, waking.due), stalls: [within, before] };
        (standstill.gap.is_some() || standstill.stall().is_some()).then_some(standstill)
    }

    fn stalled_for(&mut self, time: Duration, ended: Instant, waited: Duration) -> Stall {
        // Both were measured from a later moment than the clock's start.
        let began = ended.checked_sub(time).unwrap_or(ended);
        let stall = Stall { began, ended, waited: waited.min(ended - began) };
        self.stats.stalls += 1;
        self.stats.stalled += stall.time();
        stall
    }

    /// The counts since the start.
    #[must_use]
    pub fn stats(&self) -> &HostStats {
        &self.stats
    }
}

/// The stalls of the driver, as a group remembers them.
#[derive(Clone)]
pub(crate) struct HostTime {
    stalls: Spans,
    /// Their sum since the start of the group.
    stalled: Duration,
}

/// Empty, as above.
impl fmt::Debug for HostTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTime").finish_non_exhaustive()
    }
}

impl HostTime {
    pub(crate) fn new() -> Self {
        Self { stalls: Spans::new(STALLS_MAX), stalled: Duration::ZERO }
    }

    pub(crate) fn add(&mut self, standstill: &Standstill) {
        for stall in standstill.stalls.iter().flatten() {
            self.stalls.add(stall.began, stall.ended);
            self.stalled += stall.time();
        }
    }

    /// The part of this time in which the thread did not run.
    pub(crate) fn stalled(&self, from: Instant, until: Instant) -> Duration {
        self.stalls.within(from, until)
    }

    /// The sum of all stalls.
    pub(crate) fn sum(&self) -> Duration {
        self.stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A turn begins at 0 ms, ends at `idle_since`, and has run for `ran`. The next one begins at `now`. Returns begin and end of
    /// the stalls.
    fn stalls(idle_since: u32, ran: u32, due: Option<u32>, waited: u32, now: u32) -> Vec<(u64, u64)> {
        let start = Instant::now();
        let at = |ms: u32| start + ms * MS;
        let (processor_wait, processor_time) = (waited * MS, ran * MS);
        let waking = Waking { idle_since: at(idle_since), due: due.map(at), processor_wait, processor_time };
        let (mut watch, mut host) = (TurnWatch::new(start), HostTime::new());
        let standstill = watch.begin_turn(at(now), waking);
        if let Some(standstill) = &standstill {
            host.add(standstill);
        }
        let last = standstill.and_then(|standstill| standstill.stall());
        let ms = |at: Instant| (at - start).as_millis();
        let found: Vec<_> = host.stalls.iter().map(|(began, ended)| (ms(began), ms(ended))).collect();
        assert_eq!(last.map(|stall| (ms(stall.began), ms(stall.ended))), found.last().copied());
        assert!(last.is_none_or(|stall| stall.waited <= stall.time()));
        assert_eq!(watch.stats.stalls, found.len() as u64);
        assert_eq!((watch.stats.stalled, host.sum()), (host.stalled(start, at(now)), host.stalled(start, at(now))));
        found
    }

    #[test]
    fn a_thread_that_is_woken_in_time_did_not_stall() {
        assert_eq!(stalls(1, 0, None, 0, 5000), []);
        assert_eq!(stalls(1, 0, Some(5000), 0, 5000), []);
        assert_eq!(stalls(1, 0, Some(5000), 0, 5004), [], "too short");
        assert_eq!(stalls(1, 0, Some(9000), 4, 5000), [], "too short");
        assert_eq!(stalls(30, 26, None, 0, 5000), [], "a turn of much work");
    }

    #[test]
    fn a_thread_that_is_woken_late_stalled() {
        assert_eq!(stalls(1, 0, Some(50), 0, 850), [(50, 850)]);
    }

    #[test]
    fn a_thread_that_waited_for_a_processor_stalled() {
        assert_eq!(stalls(1, 0, None, 800, 5000), [(4200, 5000)]);
        assert_eq!(stalls(1, 0, Some(4900), 800, 5000), [(4200, 5000)], "which began before the timer");
        assert_eq!(stalls(1, 0, None, 6000, 5000), [(1, 5000)], "the kernel counts waits of earlier turns, too");
    }

    #[test]
    fn a_stall_has_the_wait_for_a_processor() {
        let start = Instant::now();
        let waited = |due: u32, waited: u32| {
            let (processor_wait, processor_time) = (waited * MS, Duration::ZERO);
            let waking = Waking { idle_since: start, due: Some(start + due * MS), processor_wait, processor_time };
            TurnWatch::new(start).begin_turn(start + 1000 * MS, waking).unwrap().stall().unwrap().waited
        };
        assert_eq!((waited(100, 0), waited(100, 880)), (Duration::ZERO, 880 * MS), "stopped, and without a processor");
        assert_eq!(waited(100, 2000), 1000 * MS, "the kernel counts waits of earlier turns, too");
    }

    #[test]
    fn a_thread_that_was_stopped_in_a_turn_stalled() {
        assert_eq!(stalls(800, 0, None, 0, 5000), [(0, 800)]);
        assert_eq!(stalls(800, 30, None, 770, 5000), [(30, 800)], "it waited then, and not before the next turn");
        assert_eq!(stalls(6, 0, None, 6, 15_000), [(0, 6)], "it slept after that");
        assert_eq!(stalls(800, 0, Some(900), 0, 1700), [(0, 800), (900, 1700)], "and again later");
    }

    #[test]
    fn lateness_counts_turns_that_were_due() {
        let start = Instant::now();
        let mut watch = TurnWatch::new(start);
        for (due, now) in [(Some(10), 10), (Some(20), 21), (Some(900), 30), (None, 40), (Some(0), 50)] {
            let due = due.map(|ms: u32| start + ms * MS);
            watch.begin_turn(
                start + now * MS,
                Waking { idle_since: start, due, processor_wait: Duration::ZERO, processor_time: Duration::ZERO },
            );
        }
        assert_eq!((watch.stats.lateness.ns().len(), watch.stats.lateness.counted().sum()), (2, MS));
    }
}
