//! Decides: a send has enough bytes and takes no more.
//!
//! The payload of a send: as much as the connection takes in about a millisecond. Later commands wait at most that long
//! for the send. On a fast link, larger sends cost less per byte.

use monotonic::{Duration, Instant};
use nvme_tcp::host::TxPart;

/// A send that takes longer halves the budget.
const LONG_SEND: Duration = Duration::from_millis(1);
/// The smallest budget: the bytes that a link of 1 Gbit/s takes in that time.
const BYTES_MIN: u32 = 128 << 10;
/// The largest budget: the bytes that a link of 10 Gbit/s takes in that time. Larger sends are no cheaper.
const BYTES_MAX: u32 = 1 << 20;

pub(crate) struct SendBudget {
    /// Bytes after which a send takes no more payload.
    pub(crate) bytes: u32,
    started_at: Option<Instant>,
    /// Whether the send in flight uses the whole budget.
    is_full: bool,
}

impl Default for SendBudget {
    fn default() -> Self {
        Self { bytes: BYTES_MIN, started_at: None, is_full: false }
    }
}

impl SendBudget {
    /// When the send in flight started.
    pub(crate) fn started_at(&self) -> Option<Instant> {
        self.started_at
    }

    /// Notes that a send of these parts has started.
    pub(crate) fn send_started(&mut self, now: Instant, plan: &[TxPart]) {
        let bytes = plan.iter().map(|part| match part {
            TxPart::Staged { len, .. } => *len as u64,
            TxPart::Payload { len, .. } => u64::from(*len),
        });
        self.is_full = bytes.sum::<u64>() >= self.bytes.into();
        self.started_at = Some(now);
    }

    /// Notes that the socket has taken all of the send, and adapts the budget.
    ///
    /// A send that the socket takes at once takes no time here. So only a send that was under way can halve the budget.
    pub(crate) fn send_finished(&mut self, now: Instant) {
        let Some(started_at) = self.started_at.take() else { return };
        if now - started_at > LONG_SEND {
            self.bytes = (self.bytes / 2).max(BYTES_MIN);
        } else if self.is_full {
            self.bytes = (self.bytes * 2).min(BYTES_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::host::Tag;

    use super::*;

    fn after(budget: &mut SendBudget, payload: u32, took: Duration) -> u32 {
        let now = Instant::now();
        let header = TxPart::Staged { start: 0, len: 24 };
        budget.send_started(now, &[header, TxPart::Payload { tag: Tag(0), offset: 0, len: payload }]);
        budget.send_finished(now + took);
        budget.bytes
    }

    #[test]
    fn the_budget_follows_the_speed_of_the_link() {
        let mut budget = SendBudget::default();
        assert_eq!(budget.bytes, BYTES_MIN);
        let quick = Duration::from_micros(100);
        let grown = [BYTES_MIN, 2 * BYTES_MIN, BYTES_MAX, BYTES_MAX, BYTES_MAX]
            .map(|payload| after(&mut budget, payload, quick));
        assert_eq!(grown, [2 * BYTES_MIN, 4 * BYTES_MIN, BYTES_MAX, BYTES_MAX, BYTES_MAX]);
        let shrunk = [(); 4].map(|()| after(&mut budget, BYTES_MAX, Duration::from_millis(6)));
        assert_eq!(shrunk, [BYTES_MAX / 2, BYTES_MAX / 4, BYTES_MIN, BYTES_MIN]);
    }

    /// A small send does not show how long a large one would take. A slow send does.
    #[test]
    fn small_sends_do_not_raise_the_budget() {
        let mut budget = SendBudget::default();
        assert_eq!(after(&mut budget, BYTES_MIN - 25, Duration::ZERO), BYTES_MIN);
        assert_eq!(after(&mut budget, BYTES_MIN, Duration::ZERO), 2 * BYTES_MIN);
        assert_eq!(after(&mut budget, 4096, 2 * LONG_SEND), BYTES_MIN);
    }
}
