//! What bursts took of the last second, and how much of the service they may have so that no second gives them more than their share.
//!
//! A second is what the service does in one, in slots. When a slot ends, the rate for the next one is the largest that, kept up, gives bursts
//! no more than their share of any second that began with one of the slots. So what was saved up and taken at once is
//! made up for evenly within a second, and does not come round again with each second that ends.

/// Of a second.
const SLOTS_I64: i64 = 45;
const SLOTS: usize = SLOTS_I64.unsigned_abs() as usize;
/// The first of so many slots is a pause of bursts that have had so much of their share. They have that much more in the others: most bursts meet
/// no pause, and are shorter than the mean, which follows from the share.
const PAUSE_EACH_I64: i64 = 15;
const PAUSE_EACH: usize = PAUSE_EACH_I64.unsigned_abs() as usize;
const HAD: (i64, i64) = (9, 10);
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
    /// They pause. What they had of the last pause, as some have fair credit.
    pub(super) pauses: bool,
    in_pause: i64,
}

impl LastSecond {
    pub(super) const NEW: Self =
        Self { taken: [0; SLOTS], present: 0, ends: 0, rate: WHOLE, in_pause: 0, pauses: false };

    /// What bursts may have now, if `second` is what the service does in one; of a service that is not known, their share.
    pub(super) fn rate(&mut self, clock: u64, second: u64, share: i64) -> i64 {
        let slot = second / SLOTS as u64;
        if slot == 0 {
            return share;
        }
        if clock >= self.ends.saturating_add(second) {
            *self = Self { ends: clock + slot, rate: share, ..Self::NEW };
        }
        // Of a service that has become a slower one.
        self.ends = self.ends.min(clock + slot);
        let before = self.ends;
        while clock >= self.ends {
            if is_pause(self.present) {
                self.in_pause = part(self.taken[self.present], slot).min(WHOLE);
            }
            self.present = (self.present + 1) % SLOTS;
            self.taken[self.present] = 0;
            self.ends += slot;
        }
        if self.ends > before {
            self.rate = self.evenly(second, share);
        }
        self.rate.min(share.max(self.between_pauses(share)))
    }

    /// The rate that comes to `share` with the pauses.
    fn between_pauses(&self, share: i64) -> i64 {
        (share * PAUSE_EACH_I64 - self.in_pause) / (PAUSE_EACH_I64 - 1)
    }

    /// The largest rate with which no second that has begun, or begins now, gives more than `share`.
    fn evenly(&mut self, second: u64, share: i64) -> i64 {
        let pauses = part(self.taken.iter().sum(), second) > share * HAD.0 / HAD.1;
        self.pauses = pauses && is_pause(self.present);
        let mut rate = if pauses { self.between_pauses(share) } else { share };
        // From now to the end of the second: slots, and pauses among them.
        let (mut left, mut left_pauses) = (SLOTS_I64, SLOTS_I64 / PAUSE_EACH_I64);
        let mut taken: u64 = 0;
        for back in 1..SLOTS {
            let slot = (self.present + SLOTS - back) % SLOTS;
            taken = taken.saturating_add(self.taken[slot]);
            left -= 1;
            left_pauses -= i64::from(is_pause(slot));
            let of_pauses = if pauses { left_pauses } else { 0 };
            let rest = (share - part(taken, second)) * SLOTS_I64 - of_pauses * self.in_pause;
            if left > of_pauses {
                rate = rate.min(rest / (left - of_pauses));
            }
        }
        rate.max(share * LEAST.0 / LEAST.1)
    }

    /// A burst has taken this from busy flows.
    pub(super) fn take(&mut self, cost: u64) {
        self.taken[self.present] = self.taken[self.present].saturating_add(cost);
    }
}

fn is_pause(slot: usize) -> bool {
    slot.is_multiple_of(PAUSE_EACH)
}

/// In millionths.
fn part(taken: u64, of: u64) -> i64 {
    (u128::from(taken) * u128::from(WHOLE.unsigned_abs()) / u128::from(of)) as i64
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::super::allowance::{Allowance, Bounds};
    use super::*;

    const SECOND: u64 = 45_000;
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
            0..45 => 0,
            45..50 => WHOLE,
            _ => rate,
        });
        let most = most_of_a_second(&taken);
        assert!((SHARE - 5_000..=SHARE + 2_000).contains(&most), "{most}");
        let (least, after) = (taken[50..].iter().min(), &taken[120..]);
        assert!(least.is_some_and(|least| *least > 690_000), "nobody is held up for it: {least:?}");
        assert!(after.iter().all(|taken| *taken > SHARE - 5_000), "and it is over: {after:?}");
    }

    #[test]
    fn bursts_are_never_stopped() {
        let taken = run(200, |slot, rate| if slot % 45 < 42 { WHOLE } else { rate });
        assert!(taken.iter().all(|taken| *taken >= SHARE * 4 / 5), "{taken:?}");
    }

    /// By slot, what bursts take that heed pauses, if they take so much of the rate.
    fn with_pauses(percent: i64) -> Vec<i64> {
        let mut last = LastSecond::NEW;
        let slot = |slot| {
            let rate = last.rate(slot * SECOND / SLOTS as u64, SECOND, SHARE);
            let taken = if last.pauses { 0 } else { rate * percent / 100 };
            last.take(taken.unsigned_abs() * SECOND / SLOTS as u64 / WHOLE.unsigned_abs());
            taken
        };
        (0..200).map(slot).collect()
    }

    #[test]
    fn what_a_pause_costs_bursts_they_have_between_two() {
        let taken = with_pauses(100);
        let second = &taken[100..100 + SLOTS];
        assert_eq!(second.iter().filter(|taken| **taken == 0).count(), SLOTS / PAUSE_EACH);
        assert!(second.iter().all(|taken| *taken == 0 || *taken > SHARE * 103 / 100), "{second:?}");
        assert!((SHARE - 3_000..=SHARE + 1_000).contains(&most_of_a_second(&taken[100..])), "{taken:?}");
    }

    /// As when a limit is set in a pause.
    #[test]
    fn a_pause_is_no_longer_when_the_service_becomes_slow() {
        let (mut last, mut clock) = (LastSecond::NEW, 0);
        while !last.pauses {
            let rate = last.rate(clock, SECOND, SHARE);
            last.take(rate.unsigned_abs() * SECOND / SLOTS as u64 / WHOLE.unsigned_abs());
            clock += SECOND / SLOTS as u64;
        }
        // Just begun.
        clock -= SECOND / SLOTS as u64;
        let slow = SECOND / 100;
        last.rate(clock, slow, SHARE);
        assert!(last.pauses);
        last.rate(clock + slow / SLOTS as u64, slow, SHARE);
        assert!(!last.pauses);
    }

    #[test]
    fn who_has_less_than_the_share_meets_no_pause() {
        assert!(with_pauses(85).iter().all(|taken| *taken == SHARE * 85 / 100));
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
