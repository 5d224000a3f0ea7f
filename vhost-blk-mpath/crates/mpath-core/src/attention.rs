//! Decides: the I/O thread stood still.
//!
//! Attention: the time in which this process ran and could look at its paths.
//!
//! A thread that stood still (stopped, starved of a processor, its host suspended) has seen no answer, whatever the
//! paths sent. So the time since its last turn says nothing about any path: it is a *gap*. Silences, ages of reads and
//! the I/O timeout count attention, which is time without gaps.
//!
//! The thread asks to be woken at a time ([`crate::Waking::due`]). If a turn begins more than [`LATE`] after
//! that, the time since the turn before is a gap, from [`BEFORE_DUE`] before it was due. The thread may have been right to sleep
//! during a part of the gap, but cannot say which.

use monotonic::{Duration, Instant};

use crate::spans::Spans;

/// A thread that is woken this much too late did not look. Shorter delays are those of a busy host, and shorter than
/// every deadline.
const LATE: Duration = Duration::from_millis(100);
/// A gap begins at most this much before the thread was due. So a thread that is late after a long sleep does not count that
/// sleep as a gap. No deadline that was further away can have been missed.
const BEFORE_DUE: Duration = Duration::from_secs(1);
/// The most gaps that are remembered. An older gap counts as attention, so even on a host that always stands still an
/// I/O timeout comes in the end.
const GAPS_MAX: usize = 64;

/// The time without attention before a turn that begins at `now`, if the driver wanted to be woken at `due` and its last turn began
/// at `last`.
#[inline]
pub(crate) fn gap(last: Instant, now: Instant, due: Option<Instant>) -> Option<(Instant, Instant)> {
    let due = due.filter(|due| *due + LATE < now)?;
    Some((due.checked_sub(BEFORE_DUE).map_or(last, |begin| begin.max(last)), now))
}

/// The gaps of a driver.
#[derive(Debug)]
pub(crate) struct Attention(Spans);

impl Attention {
    /// That of a driver that has never stood still.
    pub(crate) fn new() -> Self {
        Self(Spans::new(GAPS_MAX))
    }

    /// Adds a gap after all others.
    pub(crate) fn add_gap(&mut self, (began, ended): (Instant, Instant)) {
        self.0.add(began, ended);
    }

    /// The attention from `from` until `now`.
    #[inline]
    pub(crate) fn between(&self, from: Instant, now: Instant) -> Duration {
        (now - from).saturating_sub(self.0.since(from))
    }

    /// When there will have been this much attention since `from`, if there is no gap until then.
    #[inline]
    pub(crate) fn after(&self, from: Instant, attention: Duration) -> Instant {
        from + attention + self.0.since(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The attention of a driver with turns at these times, and with the times at which each wanted the next one.
    fn attention(start: Instant, turns: &[(u32, Option<u32>)]) -> Attention {
        let (mut attention, mut last) = (Attention::new(), start);
        for &(at, due) in turns {
            let now = start + at * MS;
            if let Some(gap) = gap(last, now, due.map(|due| start + due * MS)) {
                attention.add_gap(gap);
            }
            last = now;
        }
        attention
    }

    #[test]
    fn a_gap_is_no_attention() {
        let start = Instant::now();
        // Asleep from the start until 50 ms, due at 350 ms, and stopped until 5000 ms.
        let attention = attention(start, &[(50, None), (5000, Some(350))]);
        let of = |from, until| attention.between(start + from * MS, start + until * MS).as_millis();
        assert_eq!([of(0, 5000), of(40, 5100), of(50, 5000), of(60, 5000), of(5000, 5001)], [50, 110, 0, 0, 1]);
        let after = |from, time| (attention.after(start + from * MS, time * MS) - start).as_millis();
        assert_eq!([after(0, 300), after(60, 300), after(5000, 300)], [5250, 5300, 5300]);
    }

    #[test]
    fn a_thread_that_is_woken_in_time_or_had_nothing_to_do_was_attentive() {
        let start = Instant::now();
        for due in [None, Some(900)] {
            let attention = attention(start, &[(1000, due)]);
            assert_eq!(attention.between(start, start + 1000 * MS), 1000 * MS, "{due:?}");
        }
    }

    #[test]
    fn a_long_sleep_before_a_late_turn_is_attention() {
        let start = Instant::now();
        let attention = attention(start, &[(30_200, Some(30_000))]);
        assert_eq!(attention.between(start, start + 30_200 * MS), 29_000 * MS);
    }

    #[test]
    fn a_host_that_always_stands_still_is_attentive_in_the_end() {
        let start = Instant::now();
        let turns: Vec<_> = (0..2 * GAPS_MAX as u32).map(|n| ((n + 1) * 1000, Some(n * 1000 + 500))).collect();
        let until = start + turns[turns.len() - 1].0 * MS;
        assert_eq!(attention(start, &turns).between(start, until), 64_000 * MS);
    }
}
