//! Decides: a disk is degraded because its host is starved (`starved`).
//!
//! Times in which this host did not run the daemon: its process was stopped, or a thread waited for a processor.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mpath_core::Stall;

use crate::events::utc;

/// Shorter stalls are only counted, by the I/O threads.
const TOLD: Duration = Duration::from_millis(100);
/// The host is starved if the stalls of this time...
const STARVED_WITHIN: Duration = Duration::from_secs(60);
/// ...come to this.
const STARVED: Duration = Duration::from_secs(1);
/// The time between two events at least.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// A connection that ends this long after a stall may have ended because of the stall.
const SEEN_AFTER: Duration = Duration::from_secs(5);
/// The most stalls that are kept. No more stalls of [`TOLD`] fit into [`STARVED_WITHIN`].
const MOST: usize = 600;
/// How often the control thread calls [`HostStalls::beat`].
pub(crate) const BEAT: Duration = Duration::from_millis(500);

/// The recent stalls of all threads.
pub(crate) struct HostStalls(Mutex<Stalls>);

struct Stalls {
    /// Stalls that do not overlap, by their end.
    kept: VecDeque<Kept>,
    told_at: Option<Instant>,
    /// The last [`HostStalls::beat`].
    beat_at: Instant,
}

struct Kept {
    stall: Stall,
    is_told: bool,
}

/// Several stalls together.
struct Sum {
    count: usize,
    total: Duration,
    longest: Duration,
}

impl Sum {
    fn of<'a>(stalls: impl Iterator<Item = &'a Kept>) -> Self {
        let none = Self { count: 0, total: Duration::ZERO, longest: Duration::ZERO };
        stalls.map(|kept| kept.stall.time()).fold(none, |sum, time| Self {
            count: sum.count + 1,
            total: sum.total + time,
            longest: sum.longest.max(time),
        })
    }

    fn text(&self) -> String {
        let Self { count, total, longest } = self;
        if *count == 1 {
            format!("for {total:.1?}")
        } else {
            format!("{count} times, for {total:.1?} in all and {longest:.1?} at most")
        }
    }
}

impl HostStalls {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Stalls { kept: VecDeque::new(), told_at: None, beat_at: now }))
    }

    fn lock(&self) -> MutexGuard<'_, Stalls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the stall of a thread that has just ended. Stalls of several threads at one time are one.
    pub(crate) fn add(&self, stall: Stall) {
        if stall.time() >= TOLD {
            self.lock().add(stall);
        }
    }

    /// The control thread runs. It calls this at least every [`BEAT`], so a longer time without a call is a stall.
    pub(crate) fn beat(&self, now: Instant) {
        self.lock().beat(now);
    }

    /// The text of an event, if there are stalls of which none has told.
    pub(crate) fn untold(&self, now: Instant, time: SystemTime) -> Option<String> {
        let mut stalls = self.lock();
        if stalls.told_at.is_some_and(|at| now - at < TELL_EVERY) {
            return None;
        }
        let last = stalls.kept.iter().rev().find(|kept| !kept.is_told)?.stall.ended;
        let sum = Sum::of(stalls.kept.iter().filter(|kept| !kept.is_told));
        stalls.kept.iter_mut().for_each(|kept| kept.is_told = true);
        stalls.told_at = Some(now);
        Some(format!(
            "this host did not run the daemon {}, until {}: it was stopped, or a thread of it had no processor; its requests \
             waited for this host and not for storage",
            sum.text(),
            utc(time - (now - last)),
        ))
    }

    /// Why the host counts as starved, if it does.
    pub(crate) fn starved(&self, now: Instant) -> Option<String> {
        let stalls = self.lock();
        let sum = Sum::of(stalls.kept.iter().filter(|kept| now - kept.stall.ended < STARVED_WITHIN));
        let text = || format!("the host is starved: in the last minute it did not run the daemon {}", sum.text());
        (sum.total >= STARVED).then(text)
    }

    /// An explanation why a controller with this keep-alive timeout has just ended its connections: this host was silent.
    pub(crate) fn silence(&self, now: Instant, keep_alive: Duration) -> Option<String> {
        let mut stalls = self.lock();
        stalls.beat(now);
        let recent = stalls.kept.iter().filter(|kept| now - kept.stall.ended < SEEN_AFTER);
        let longest = recent.map(|kept| kept.stall.time()).max()?;
        // The host speaks twice in this time.
        (longest >= keep_alive / 2).then(|| {
            format!(
                "; just before, this host did not run the daemon for {longest:.1?}, so the controller may have missed the \
                 keep-alive of this host (keep-alive-tmo {keep_alive:?})"
            )
        })
    }
}

impl Stalls {
    fn add(&mut self, stall: Stall) {
        let Stall { mut began, mut ended } = stall;
        let mut is_told = false;
        self.kept.retain(|Kept { stall, is_told: told }| {
            let overlaps = stall.began <= ended && began <= stall.ended;
            if overlaps {
                (began, ended) = (began.min(stall.began), ended.max(stall.ended));
                is_told |= told;
            }
            !overlaps
        });
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        let at = self.kept.partition_point(|kept| kept.stall.ended < ended);
        self.kept.insert(at, Kept { stall: Stall { began, ended }, is_told });
    }

    fn beat(&mut self, now: Instant) {
        let due = std::mem::replace(&mut self.beat_at, now) + BEAT;
        if now > due + TOLD {
            self.add(Stall { began: due, ended: now });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    struct Test {
        start: Instant,
        stalls: HostStalls,
    }

    impl Test {
        fn new() -> Self {
            let start = Instant::now();
            Self { start, stalls: HostStalls::new(start) }
        }

        fn at(&self, ms: u32) -> Instant {
            self.start + ms * MS
        }

        fn add(&self, began: u32, ended: u32) {
            self.stalls.add(Stall { began: self.at(began), ended: self.at(ended) });
        }

        fn untold(&self, ms: u32) -> Option<String> {
            self.stalls.untold(self.at(ms), SystemTime::UNIX_EPOCH + ms * MS)
        }
    }

    #[test]
    fn stalls_of_several_threads_at_one_time_are_one() {
        let test = Test::new();
        test.add(0, 99);
        assert_eq!(test.untold(100), None, "too short");
        for (began, ended) in [(50, 850), (350, 851), (20, 849)] {
            test.add(began, ended);
        }
        let text = test.untold(900).unwrap();
        assert!(
            text.starts_with("this host did not run the daemon for 831.0ms, until 1970-01-01T00:00:00.851Z: "),
            "{text}"
        );
        test.add(400, 852);
        assert_eq!(test.untold(20_000), None, "told before");
    }

    #[test]
    fn events_are_told_every_ten_seconds_at_most() {
        let test = Test::new();
        test.add(0, 200);
        assert!(test.untold(200).is_some());
        test.add(1000, 1300);
        test.add(2000, 2200);
        assert_eq!(test.untold(10_199), None);
        let text = test.untold(10_200).unwrap();
        assert!(
            text.starts_with("this host did not run the daemon 2 times, for 500.0ms in all and 300.0ms at most, "),
            "{text}"
        );
        assert_eq!(test.untold(30_000), None);
    }

    #[test]
    fn a_host_is_starved_by_a_second_in_a_minute() {
        let test = Test::new();
        let starved = |ms| test.stalls.starved(test.at(ms));
        test.add(0, 600);
        assert_eq!(starved(1000), None);
        test.add(5000, 5400);
        let text = "the host is starved: in the last minute it did not run the daemon 2 times, for 1.0s in all and 600.0ms at most";
        assert_eq!(starved(60_599).as_deref(), Some(text));
        assert_eq!(starved(60_600), None);
    }

    #[test]
    fn a_control_thread_that_is_not_run_notices() {
        let test = Test::new();
        for ms in [500, 1000, 1100, 1700] {
            test.stalls.beat(test.at(ms));
            assert_eq!(test.untold(ms), None);
        }
        test.stalls.beat(test.at(3000));
        assert!(test.untold(3000).unwrap().contains("for 800.0ms, until 1970-01-01T00:00:03.000Z"));
    }

    #[test]
    fn a_silent_host_may_be_why_a_controller_ended_its_connections() {
        let test = Test::new();
        let silence = |ms, keep_alive| test.stalls.silence(test.at(ms), keep_alive);
        assert_eq!(silence(100, 5000 * MS), None);
        let text = silence(12_600, 5000 * MS).unwrap();
        assert!(text.contains("did not run the daemon for 12.0s") && text.ends_with("(keep-alive-tmo 5s)"), "{text}");
        assert_eq!(silence(12_700, 30_000 * MS), None, "the stall was too short");
        (26..36).for_each(|half| test.stalls.beat(test.at(500 * half)));
        assert_eq!(silence(17_600, 5000 * MS), None, "long after");
    }

    #[test]
    fn the_memory_is_bounded() {
        let test = Test::new();
        (0..2000).for_each(|n| test.add(1000 * n, 1000 * n + 500));
        assert_eq!(test.stalls.lock().kept.len(), MOST);
    }
}
