//! Virtual time: the only clock there is, and what is to happen when.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

use crate::net::{ConnId, Side};

/// Something that happens at a moment. The order of variants is the order within one moment only where the order of
/// scheduling does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Bytes are due at this end.
    Deliver(ConnId, Side),
    /// The handshake of TCP is over, or refused.
    Established(ConnId),
    /// A reset arrives at this end.
    Reset(ConnId, Side),
    /// The kernel closes a socket of a daemon that was killed.
    Exit(ConnId),
    /// The daemon may serve.
    Serve,
    /// A look at the fences is due.
    Fences,
    /// A turn of an I/O thread.
    Thread(usize),
    /// The task of discovery has something to do.
    Discovery,
    /// The task of a path has something to do.
    Path(usize),
    /// The target executes a command.
    Execute(u64),
    /// A Cross-Controller Reset is done.
    CrossReset(u64),
    /// The target looks at a controller's keep-alive timer.
    KeepAlive(ConnId),
    /// The n-th fault begins.
    Begin(usize),
    /// The n-th fault ends.
    End(usize),
    /// A user of a disk has thought enough.
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
        // Only differences to it are ever seen.
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
