//! Virtual time, the only clock of a run, and the events to come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::connection::{ConnId, Side};

/// An event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Bytes are due at this end.
    Deliver(ConnId, Side),
    /// The handshake of TCP is over, or refused.
    Established(ConnId),
    /// A reset arrives at this end.
    Reset(ConnId, Side),
    /// The kernel closes a socket of a killed daemon.
    CloseSocket(ConnId),
    /// The daemon begins to serve.
    Serve,
    /// Fences are due.
    Fences,
    /// A turn of an I/O thread.
    IoThread(usize),
    /// A turn of the task of discovery.
    Discovery,
    /// A turn of the task of a path.
    Path(usize),
    /// The target executes a command.
    Execute(u64),
    /// A Cross-Controller Reset is done.
    CrossReset(u64),
    /// The target looks at a controller's keep-alive timer.
    KeepAlive(ConnId),
    /// The n-th fault begins.
    BeginFault(usize),
    /// The n-th fault ends.
    EndFault(usize),
    /// A user in a guest submits its next request.
    Guest { disk: usize, user: usize },
    /// Every fault has ended.
    Quiet,
}

/// Time and the events to come, in order. Events at the same time come in the order they were set.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now: Instant,
    seq: u64,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        // Only differences to the start matter.
        let start = Instant::now();
        Self { start, now: start, seq: 0, events: BinaryHeap::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Virtual time since the start of the run.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now - self.start
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn at(&mut self, at: Instant, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((at.max(self.now), self.seq, event)));
    }

    /// The next event; time moves on to it.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let Reverse((at, _, event)) = self.events.pop()?;
        self.now = at;
        Some(event)
    }
}

/// The earliest of some times that may not be set.
pub(crate) fn earliest(times: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    times.into_iter().flatten().min()
}
