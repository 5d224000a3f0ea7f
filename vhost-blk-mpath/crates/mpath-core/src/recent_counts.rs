//! Counts of recent requests, for the operator.

use std::fmt;
use std::time::Duration;

/// Requests of the last second, to a tenth of a second, and of the last minute, to a second.
#[derive(Clone, Copy, Default)]
pub(crate) struct RecentCounts {
    second: SlotCounts<10>,
    minute: SlotCounts<60>,
}

impl fmt::Debug for RecentCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecentCounts").finish_non_exhaustive()
    }
}

impl RecentCounts {
    /// Counts a request. Times are measured from any fixed moment, and do not go backwards.
    pub(crate) fn record(&mut self, at: Duration) {
        let (tenth, second) = slots(at);
        self.second.record(tenth);
        self.minute.record(second);
    }

    /// The requests of the last ten whole tenths of a second, and of the last sixty whole seconds.
    pub(crate) fn counts(&self, at: Duration) -> (u64, u64) {
        let (tenth, second) = slots(at);
        (self.second.sum(tenth), self.minute.sum(second))
    }
}

fn slots(at: Duration) -> (u64, u64) {
    let second = at.as_secs();
    (second * 10 + u64::from(at.subsec_nanos() / 100_000_000), second)
}

/// Counts of the present time slot and of the `N` slots before it.
#[derive(Clone, Copy)]
struct SlotCounts<const N: usize> {
    /// The present slot.
    slot: u64,
    count: u32,
    /// Counts of earlier slots, each at its slot number modulo `N`.
    past: [u32; N],
}

impl<const N: usize> Default for SlotCounts<N> {
    fn default() -> Self {
        Self { slot: 0, count: 0, past: [0; N] }
    }
}

impl<const N: usize> SlotCounts<N> {
    fn record(&mut self, slot: u64) {
        if slot != self.slot {
            self.past[self.slot as usize % N] = self.count;
            // The slots between are empty.
            for between in (self.slot + 1..slot).take(N) {
                self.past[between as usize % N] = 0;
            }
            (self.slot, self.count) = (slot, 0);
        }
        self.count = self.count.saturating_add(1);
    }

    /// The sum over the `N` slots before this one.
    fn sum(&self, slot: u64) -> u64 {
        let of = |slot: u64| match self.slot.checked_sub(slot) {
            Some(0) => self.count,
            Some(ago) if ago <= N as u64 => self.past[slot as usize % N],
            _ => 0,
        };
        (slot.saturating_sub(N as u64)..slot).map(|slot| u64::from(of(slot))).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_second_and_the_last_minute() {
        let mut recent = RecentCounts::default();
        let ms = Duration::from_millis;
        for at in [0, 50, 150, 950, 1000] {
            recent.record(ms(at));
        }
        // The present slot does not count yet.
        assert_eq!(recent.counts(ms(1050)), (4, 4));
        assert_eq!(recent.counts(ms(1100)), (3, 4));
        assert_eq!(recent.counts(ms(2000)), (1, 5));
        assert_eq!(recent.counts(ms(60_999)), (0, 5));
        assert_eq!(recent.counts(ms(61_000)), (0, 1));
        recent.record(ms(3_600_000));
        assert_eq!(recent.counts(ms(3_600_100)), (1, 0));
    }

    proptest! {
        #[test]
        fn counts_match_a_plain_list(gaps in prop::collection::vec(0_u64..90_000, 1..60), after in 0_u64..70_000) {
            let mut recent = RecentCounts::default();
            let mut times = Vec::new();
            let mut at = 0;
            for gap in gaps {
                at += gap / 3;
                times.push(at);
                recent.record(Duration::from_millis(at));
            }
            let now = at + after;
            let count = |width: u64, slots: u64| {
                let end = now / width;
                times.iter().filter(|at| (end.saturating_sub(slots)..end).contains(&(*at / width))).count() as u64
            };
            prop_assert_eq!(recent.counts(Duration::from_millis(now)), (count(100, 10), count(1000, 60)));
        }
    }
}
