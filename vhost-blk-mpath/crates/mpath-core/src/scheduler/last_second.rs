//! What bursts took of the last second, and how much of the service they may have so that no second gives them more than their share.
//!
//! A second is what the service does in one, in slots. When a slot ends, the rate for the next one is the largest that, kept up, gives bursts
//! no more than their share of any second that began with one of the slots. So what was saved up and taken at once is
//! made up for evenly within a second, and does not come round again with each second that ends.

/// Of a second.
const SLOTS_I64: i64 = 32;
const SLOTS: usize = SLOTS_I64.unsigned_abs() as usize;
/// The least rate is this part of the share: however many flows use up their credit, those that have some go first.
const LEAST: (i64, i64) = (4, 5);
/// Rates and shares are in millionths of the service.
pub(super) const WHOLE: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct LastSecond {
    /// By slot, what bursts took in it.
    taken: [u64; SLOTS],
    /// The slot that has not ended, and when it does, by the clock of [`super::capacity`].
    present: usize,
    ends: u64,
    /// What bursts may have in it.
    rate: i64,
}

impl LastSecond {
    pub(super) const NEW: Self = Self { taken: [0; SLOTS], present: 0, ends: 0, rate: WHOLE };

    /// What bursts may have now, if `second` is what the service does in one; of a service that is not known, their share.
    pub(super) fn rate(&mut self, clock: u64, second: u64, share: i64) -> i64 {
        let slot = second / SLOTS as u64;
        if slot == 0 {
            return share;
        }
        if clock >= self.ends.saturating_add(second) {
            *self = Self { ends: clock + slot, rate: share, ..Self::NEW };
        }
        let before = self.ends;
        while clock >= self.ends {
            self.present = (self.present + 1) % SLOTS;
            self.taken[self.present] = 0;
            self.ends += slot;
        }
        if self.ends > before {
            self.rate = self.evenly(second, share).max(share * LEAST.0 / LEAST.1);
        }
        self.rate.min(share)
    }

    /// The largest rate with which no second that has begun, or begins now, gives more than `share`.
    fn evenly(&self, second: u64, share: i64) -> i64 {
        let (mut taken, mut rate) = (0, share);
        for (back, left) in (1..SLOTS).zip((1..SLOTS_I64).rev()) {
            taken += u128::from(self.taken[(self.present + SLOTS - back) % SLOTS]);
            let taken = (taken * u128::from(WHOLE.unsigned_abs()) / u128::from(second)) as i64;
            rate = rate.min((share - taken) * SLOTS_I64 / left);
        }
        rate
    }

    /// A burst has taken this from busy flows.
    pub(super) fn take(&mut self, cost: u64) {
        self.taken[self.present] = self.taken[self.present].saturating_add(cost);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::super::allowance::{Allowance, Bounds};
    use super::*;

    const SECOND: u64 = 32_000;
    const SHARE: i64 = 740_000;

    /// Bursts take what `asks` says of the rate that they are given, in each of some slots: how much in each.
    fn run(slots: u64, asks: impl Fn(u64, i64) -> i64) -> Vec<i64> {
        let mut last = LastSecond::NEW;
        (0..slots)
            .map(|slot| {
                let rate = last.rate(slot * SECOND / SLOTS as u64, SECOND, SHARE);
                let taken = asks(slot, rate).min(WHOLE);
                last.take(taken.unsigned_abs() * SECOND / SLOTS as u64 / WHOLE.unsigned_abs());
                taken
            })
            .collect()
    }

    fn most_of_a_second(taken: &[i64]) -> i64 {
        taken.windows(SLOTS).map(|second| second.iter().sum::<i64>() / SLOTS_I64).max().unwrap_or(0)
    }

    #[test]
    fn who_takes_no_more_than_the_share_has_all_of_it() {
        assert!(run(100, |_, rate| rate).iter().all(|taken| *taken == SHARE));
    }

    #[test]
    fn what_was_taken_at_once_is_made_up_for_evenly() {
        // 125 ms of the service, after a second without bursts.
        let taken = run(200, |slot, rate| match slot {
            0..32 => 0,
            32..36 => WHOLE,
            _ => rate,
        });
        let most = most_of_a_second(&taken);
        assert!((SHARE - 5_000..=SHARE + 1_000).contains(&most), "{most}");
        let (least, after) = (taken[36..].iter().min(), &taken[100..]);
        assert!(least.is_some_and(|least| *least > 690_000), "nobody is held up for it: {least:?}");
        assert!(after.iter().all(|taken| *taken > SHARE - 5_000), "and it is over: {after:?}");
    }

    #[test]
    fn bursts_are_never_stopped() {
        let taken = run(200, |slot, rate| if slot % 32 < 30 { WHOLE } else { rate });
        assert!(taken.iter().all(|taken| *taken >= SHARE * 4 / 5), "{taken:?}");
    }

    #[test]
    fn a_pause_of_a_second_makes_up_for_all() {
        let mut last = LastSecond::NEW;
        last.rate(0, SECOND, SHARE);
        last.take(SECOND);
        assert!(last.rate(SECOND / 4, SECOND, SHARE) < SHARE);
        assert_eq!(last.rate(5 * SECOND / 2, SECOND, SHARE), SHARE);
        let mut unknown = LastSecond::NEW;
        assert_eq!(unknown.rate(0, 0, SHARE), SHARE);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        /// Bursts begin and end as they like, and go first while they have an allowance, of which 120 ms may be saved up.
        #[test]
        fn busy_flows_keep_a_quarter_of_any_second(spans in prop::collection::vec((1..400_usize, 1..400_usize), 1..100)) {
            const PER_SECOND: usize = 1300;
            const COST: u64 = 1000;
            let gap = Duration::from_millis(120);
            let second = COST * PER_SECOND as u64;
            let mut bounds = Bounds { share: SHARE, gap, least: 0, most: (second * 12 / 100 * 260).cast_signed() };
            let (mut now, mut last, mut allowance) = (Instant::now(), LastSecond::NEW, Allowance::NONE);
            allowance.fill(&bounds);
            let wanted = spans.iter().flat_map(|(busy, idle)| [vec![true; *busy], vec![false; *idle]].concat());
            let sent: Vec<bool> = (0..)
                .zip(wanted)
                .map(|(clock, wanted)| {
                    let goes = wanted && !allowance.is_spent();
                    bounds.share = last.rate(clock * COST, second, SHARE);
                    if goes {
                        last.take(COST);
                    }
                    allowance.dispatched(now, COST, goes, &bounds);
                    now += Duration::from_secs(1) / PER_SECOND as u32;
                    goes
                })
                .collect();
            let most = sent.windows(PER_SECOND).map(|second| second.iter().filter(|goes| **goes).count()).max();
            prop_assert!(most.unwrap_or(0) <= PER_SECOND * 3 / 4, "{most:?} of {PER_SECOND}");
        }
    }
}
