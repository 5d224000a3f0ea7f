//! Timers of the group, earliest first.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use monotonic::{Duration, Instant};

use crate::{OpClass, Outcome, PathId, Tag};

/// What a timer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Release a request that the injection of its path delays, or let it fail.
    Inject(PathId, Tag, Option<Outcome>),
    /// Release an answer that the injection of its path delays.
    Answer(PathId, Tag, Answer),
    /// The abandoned answer of a recalled request arrives: the injection would have released it now.
    Abandoned(PathId, OpClass),
    /// Release a hedge, or its answer, that the injection of its path delays.
    Hedge(PathId, Tag),
    /// Release a probe, or its answer, that the injection of its path delays.
    Probe(PathId),
    /// Put a request back in its queue.
    Retry(Tag),
    /// Repeat a flush command on this path.
    RetryFlushCommand(PathId, Tag),
}

/// An answer that an injection delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The outcome of the target.
    pub(crate) outcome: Outcome,
    /// The outcome that replaces it.
    pub(crate) error: Option<Outcome>,
}

/// A request or an answer that an injection delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delayed {
    Request(Tag),
    /// With the target's answer.
    Answer(Tag, Outcome),
}

/// The longest timer. The longest delay a controller can ask for is 65535 × 100 ms, a little less.
const MAX_DELAY: Duration = Duration::from_secs(2 * 3600);

#[derive(Debug)]
struct Timer {
    at: Instant,
    /// The order of setting. Equal times come out in this order.
    seq: u64,
    due: Due,
}

impl Timer {
    fn key(&self) -> (Instant, u64) {
        (self.at, self.seq)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Timer {}
impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

/// The timers of a group. The heap is bounded: at most one timer per request (for a flush, per path), per hedge, per
/// abandoned answer, and per path.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<Timer>>,
    seq: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, now: Instant, delay: Duration, due: Due) {
        self.seq += 1;
        self.heap.push(Reverse(Timer { at: now + delay.min(MAX_DELAY), seq: self.seq, due }));
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(timer)| timer.at)
    }

    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Due> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(timer)| timer.due)
    }

    /// Forgets the delayed probe of a path. For rare events: it walks all timers.
    pub(crate) fn forget_probe(&mut self, path: PathId) {
        self.heap.retain(|Reverse(timer)| timer.due != Due::Probe(path));
    }

    /// Forgets a delayed hedge. For rare events: it walks all timers.
    pub(crate) fn forget_hedge(&mut self, path: PathId, tag: Tag) {
        self.heap.retain(|Reverse(timer)| timer.due != Due::Hedge(path, tag));
    }

    /// Forgets a delayed request before it is issued. For rare events: it walks all timers.
    pub(crate) fn forget_injected(&mut self, path: PathId, tag: Tag) {
        let held = |due| matches!(due, Due::Inject(on, of, _) if (on, of) == (path, tag));
        self.heap.retain(|Reverse(timer)| !held(timer.due));
    }

    /// Takes out the delayed requests of a path that `which` selects, in the order of their due times. For rare
    /// events: it walks all timers.
    pub(crate) fn take_injected(&mut self, path: PathId, which: impl Fn(Tag) -> bool) -> Vec<Tag> {
        self.take(|due| match due {
            Due::Inject(on, tag, _) if on == path && which(tag) => Some(tag),
            _ => None,
        })
    }

    /// Takes out the delayed requests and answers of a path that `which` selects, in the order of their due times. It
    /// walks all timers, so call it for rare events only.
    pub(crate) fn take_delayed(&mut self, path: PathId, which: impl Fn(Tag) -> bool) -> Vec<Delayed> {
        self.take(|due| match due {
            Due::Inject(on, tag, _) if on == path && which(tag) => Some(Delayed::Request(tag)),
            Due::Answer(on, tag, answer) if on == path && which(tag) => Some(Delayed::Answer(tag, answer.outcome)),
            _ => None,
        })
    }

    /// Takes out the requests whose answers from this path are delayed, in the order in which these answers are due. It
    /// walks all timers, so call it for rare events only.
    pub(crate) fn take_answers(&mut self, path: PathId) -> Vec<Tag> {
        self.take(|due| match due {
            Due::Answer(on, tag, _) if on == path => Some(tag),
            _ => None,
        })
    }

    /// Takes out the requests that wait for a retry and that `which` selects, in the order of their due times. It
    /// walks all timers, so call it for rare events only.
    pub(crate) fn take_retries(&mut self, which: impl Fn(Tag) -> bool) -> Vec<Tag> {
        self.take(|due| match due {
            Due::Retry(tag) if which(tag) => Some(tag),
            _ => None,
        })
    }

    /// The time of a request's retry. It walks all timers.
    pub(crate) fn retry_at(&self, tag: Tag) -> Option<Instant> {
        self.heap.iter().find(|Reverse(timer)| timer.due == Due::Retry(tag)).map(|Reverse(timer)| timer.at)
    }

    /// Takes out the flushes with a command to repeat on a path, in the order of their due times. For rare events: it
    /// walks all timers.
    pub(crate) fn take_flush_command_retries(&mut self, path: PathId) -> Vec<Tag> {
        self.take(|due| match due {
            Due::RetryFlushCommand(on, tag) if on == path => Some(tag),
            _ => None,
        })
    }

    /// Makes a delayed answer an abandoned one, because its request was recalled. For rare events: it walks all
    /// timers.
    pub(crate) fn make_abandoned(&mut self, path: PathId, tag: Tag, class: OpClass) {
        let mut timers = std::mem::take(&mut self.heap).into_vec();
        for Reverse(timer) in &mut timers {
            if matches!(timer.due, Due::Answer(on, of, _) if (on, of) == (path, tag)) {
                timer.due = Due::Abandoned(path, class);
            }
        }
        self.heap = timers.into();
    }

    /// Forgets the abandoned answers of a path in the classes that `which` selects. For rare events: it walks all
    /// timers.
    pub(crate) fn forget_abandoned(&mut self, path: PathId, which: impl Fn(OpClass) -> bool) {
        self.heap
            .retain(|Reverse(timer)| !matches!(timer.due, Due::Abandoned(on, class) if on == path && which(class)));
    }

    fn take<T>(&mut self, of: impl Fn(Due) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.heap.retain(|Reverse(timer)| {
            let found = of(timer.due);
            let keeps = found.is_none();
            taken.extend(found.map(|found| (timer.key(), found)));
            keeps
        });
        taken.sort_unstable_by_key(|(key, _)| *key);
        taken.into_iter().map(|(_, found)| found).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn earliest_first_and_equal_times_in_order() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(now, 2 * MS, Due::Retry(Tag(1)));
        timers.set(now, MS, Due::Retry(Tag(2)));
        timers.set(now, MS, Due::Retry(Tag(3)));
        assert_eq!(timers.next(), Some(now + MS));
        assert_eq!(timers.pop_due(now), None);
        assert_eq!(timers.pop_due(now + 2 * MS), Some(Due::Retry(Tag(2))));
        assert_eq!(timers.pop_due(now + 2 * MS), Some(Due::Retry(Tag(3))));
        assert_eq!(timers.pop_due(now + 2 * MS), Some(Due::Retry(Tag(1))));
        assert_eq!(timers.pop_due(now + 2 * MS), None);
    }

    #[test]
    fn takes_only_delayed_requests_of_that_path() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(now, 3 * MS, Due::Inject(PathId(0), Tag(1), None));
        timers.set(now, 2 * MS, Due::Inject(PathId(0), Tag(2), None));
        timers.set(now, MS, Due::Inject(PathId(1), Tag(3), None));
        timers.set(now, MS, Due::RetryFlushCommand(PathId(0), Tag(4)));
        assert_eq!(timers.take_injected(PathId(0), |_| true), [Tag(2), Tag(1)]);
        assert_eq!(timers.pop_due(now + MS), Some(Due::Inject(PathId(1), Tag(3), None)));
        assert_eq!(timers.pop_due(now + MS), Some(Due::RetryFlushCommand(PathId(0), Tag(4))));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_delay_without_end_does_not_overflow() {
        let mut timers = Timers::default();
        timers.set(Instant::now(), Duration::MAX, Due::Retry(Tag(1)));
        assert!(timers.next().is_some());
    }
}
