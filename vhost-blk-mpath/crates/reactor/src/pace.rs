//! How much payload a send carries: what the connection takes in about a millisecond. What comes after it, the commands of the
//! next moment among it, waits for so long; and where a link is fast, a send is worth its cost.

use std::time::{Duration, Instant};

use nvme_tcp::host::TxPart;

/// A send that takes longer is followed by smaller ones.
const LONG: Duration = Duration::from_millis(1);
/// What a link of 1 Gbit/s takes in that time, and the least.
const LEAST: u32 = 128 << 10;
/// What one of 10 Gbit/s does. More makes a send no cheaper.
const MOST: u32 = 1 << 20;

pub(crate) struct Pace {
    /// After how many bytes a send is enough.
    pub(crate) bytes: u32,
    begun: Option<Instant>,
    /// The send in flight carries as much as it may.
    is_full: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { bytes: LEAST, begun: None, is_full: false }
    }
}

impl Pace {
    /// When the send in flight began.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// A send of that begins.
    pub(crate) fn begins(&mut self, now: Instant, plan: &[TxPart]) {
        let bytes = plan.iter().map(|part| match part {
            TxPart::Staged { len, .. } => *len as u64,
            TxPart::Payload { len, .. } => u64::from(*len),
        });
        self.is_full = bytes.sum::<u64>() >= self.bytes.into();
        self.begun = Some(now);
    }

    /// All of it has been taken.
    pub(crate) fn ends(&mut self, now: Instant) {
        let Some(begun) = self.begun.take() else { return };
        if now - begun > LONG {
            self.bytes = (self.bytes / 2).max(LEAST);
        } else if self.is_full {
            self.bytes = (self.bytes * 2).min(MOST);
        }
    }
}

#[cfg(test)]
mod tests {
    use nvme_tcp::host::Tag;

    use super::*;

    fn after(pace: &mut Pace, payload: u32, took: Duration) -> u32 {
        let now = Instant::now();
        let header = TxPart::Staged { start: 0, len: 24 };
        pace.begins(now, &[header, TxPart::Payload { tag: Tag(0), offset: 0, len: payload }]);
        pace.ends(now + took);
        pace.bytes
    }

    #[test]
    fn it_follows_the_link() {
        let mut pace = Pace::default();
        assert_eq!(pace.bytes, LEAST);
        let quick = Duration::from_micros(100);
        let grown = [LEAST, 2 * LEAST, MOST, MOST, MOST].map(|payload| after(&mut pace, payload, quick));
        assert_eq!(grown, [2 * LEAST, 4 * LEAST, MOST, MOST, MOST]);
        let shrunk = [(); 4].map(|()| after(&mut pace, MOST, Duration::from_millis(6)));
        assert_eq!(shrunk, [MOST / 2, MOST / 4, LEAST, LEAST]);
    }

    /// A small send says nothing of how long a large one would take; a slow one does.
    #[test]
    fn small_sends_do_not_make_it_grow() {
        let mut pace = Pace::default();
        assert_eq!(after(&mut pace, LEAST - 25, Duration::ZERO), LEAST);
        assert_eq!(after(&mut pace, LEAST, Duration::ZERO), 2 * LEAST);
        assert_eq!(after(&mut pace, 4096, 2 * LONG), LEAST);
    }
}
