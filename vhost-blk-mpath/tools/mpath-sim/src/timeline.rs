//! Virtual time: the only clock of a simulation, and the events to come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::mem;

use monotonic::{Duration, Instant};

/// Time and the events to come, in order. Events at the same time come in the order they were set.
#[derive(Debug)]
pub(crate) struct Timeline<E> {
    start: Instant,
    now: Instant,
    seq: u64,
    events: BinaryHeap<Reverse<(Instant, u64, E)>>,
}

/// What a simulation does next.
pub(crate) enum Step<E> {
    /// It handles an event.
    Event(E),
    /// It handles the timeout.
    Timeout,
    /// It ends.
    End,
}

impl<E: Ord> Timeline<E> {
    pub(crate) fn new() -> Self {
        // The start may be any moment, because only differences from it matter.
        let start = Instant::now();
        Self { start, now: start, seq: 0, events: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    pub(crate) fn after(&mut self, delay: Duration, event: E) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, at: Instant, event: E) {
        self.seq += 1;
        self.events.push(Reverse((at.max(self.now), self.seq, event)));
    }

    /// Takes the next event, and moves time on to it.
    pub(crate) fn next(&mut self) -> Option<E> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }

    /// The next event, if its time has come.
    pub(crate) fn next_due(&mut self) -> Option<E> {
        self.events.peek().filter(|Reverse((at, ..))| *at <= self.now)?;
        self.next()
    }

    /// Moves time on to the next event, `timeout` or `end`, whichever is first. Returns which it was.
    pub(crate) fn step(&mut self, timeout: Option<Instant>, end: Instant) -> Step<E> {
        let event = self.events.peek().map(|Reverse((at, ..))| *at);
        let next = [event, timeout].into_iter().flatten().min().filter(|at| *at <= end);
        self.now = self.now.max(next.unwrap_or(end));
        match self.next_due() {
            Some(event) => Step::Event(event),
            None if next.is_some() => Step::Timeout,
            None => Step::End,
        }
    }

    /// Takes these events out, in order.
    pub(crate) fn take(&mut self, which: impl Fn(&E) -> bool) -> Vec<E> {
        let all = mem::take(&mut self.events).into_sorted_vec().into_iter().rev();
        let (taken, others): (Vec<_>, _) = all.partition(|Reverse((.., event))| which(event));
        self.events = others.into();
        taken.into_iter().map(|Reverse((.., event))| event).collect()
    }
}
