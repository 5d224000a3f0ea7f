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

#[derive(Debug)]
pub(crate) struct Attention {
    /// When the last turn began.
    last: Instant,
    gaps: Spans,
}

impl Attention {
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: now, gaps: Spans::new(GAPS_MAX) }
    }

    /// Takes note of a turn that begins. `due`: when the thread asked to be woken.
    #[inline]
    pub(crate) fn look(&mut self, now: Instant, due: Option<Instant>) {
        let last = std::mem::replace(&mut self.last, now);
        if due.is_some_and(|due| due + LATE < now) {
            let begin = due.and_then(|due| due.checked_sub(BEFORE_DUE)).map_or(last, |begin| begin.max(last));
            self.gaps.add(begin, now);
        }
    }

    /// The attention from `from` until `now`.
    #[inline]
    pub(crate) fn between(&self, from: Instant, now: Instant) -> Duration {
        (now - from).saturating_sub(self.gaps.since(from))
    }

    /// When there will have been this much attention since `from`, if there is no gap until then.
    #[inline]
    pub(crate) fn after(&self, from: Instant, attention: Duration) -> Instant {
        from + attention + self.gaps.since(from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A thread that slept from the start until 50 ms, was due at 350 ms, and came at 5000 ms.
    fn stopped(start: Instant) -> Attention {
        let mut attention = Attention::new(start);
        attention.look(start + 50 * MS, None);
        attention.look(start + 5000 * MS, Some(start + 350 * MS));
        attention
    }

    #[test]
    fn a_gap_is_no_attention() {
        let start = Instant::now();
        let attention = stopped(start);
        let of = |from, until| attention.between(start + from * MS, start + until * MS).as_millis();
        assert_eq!([of(0, 5000), of(40, 5100), of(50, 5000), of(60, 5000), of(5000, 5001)], [50, 110, 0, 0, 1]);
        let after = |from, time| (attention.after(start + from * MS, time * MS) - start).as_millis();
        assert_eq!([after(0, 300), after(60, 300), after(5000, 300)], [5250, 5300, 5300]);
    }

    #[test]
    fn a_thread_that_is_woken_in_time_or_had_nothing_to_do_was_attentive() {
        let start = Instant::now();
        for due in [None, Some(start + 900 * MS)] {
            let mut attention = Attention::new(start);
            attention.look(start + 1000 * MS, due);
            assert_eq!(attention.between(start, start + 1000 * MS), 1000 * MS, "{due:?}");
        }
    }

    #[test]
    fn a_long_sleep_before_a_late_turn_is_attention() {
        let start = Instant::now();
        let mut attention = Attention::new(start);
        attention.look(start + 30_200 * MS, Some(start + 30_000 * MS));
        assert_eq!(attention.between(start, start + 30_200 * MS), 29_000 * MS);
    }

    #[test]
    fn a_host_that_always_stands_still_is_attentive_in_the_end() {
        let start = Instant::now();
        let (mut attention, mut now) = (Attention::new(start), start);
        for _ in 0..2 * GAPS_MAX {
            let due = now + 500 * MS;
            now += 1000 * MS;
            attention.look(now, Some(due));
        }
        assert_eq!(attention.between(start, now), 64_000 * MS);
    }
}
