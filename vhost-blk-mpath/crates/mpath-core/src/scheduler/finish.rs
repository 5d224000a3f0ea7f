//! In which order bursts go whole: first the one that would be over first if all had their parts at the same time.
//!
//! So of equal ones the first to come is served first and the mean wait is shorter, a small one has not to wait for a large one, and none is over later than
//! if it had its part all the time. A burst would be over at its finish tag, in virtual time, which goes on by a request's cost divided by the weight of all
//! that would be there yet. The tag is of what a flow has when its first request comes, and grows by what has come since whenever one has
//! gone, as far as credit covers that. A flow whose last burst would not be over begins the next one behind it.
//!
//! Source: Friedman, Henderson: Fairness and Efficiency in Web Server Protocols (2003), FSP, with weights; virtual time as in Parekh, Gallager: A Generalized
//! Processor Sharing Approach to Flow Control (1993).

use std::collections::BTreeSet;

use super::turns::WHOLE;
use super::{DEFAULT_WEIGHT, by_flow};
use crate::FlowId;

/// What a flow has to send before it belongs to the normal tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) cost: u64,
    /// Of the flow.
    pub(super) weight: u64,
}

impl Burst {
    pub(super) const NONE: Self = Self { cost: 0, weight: 1 };
}

/// Where a flow stands among those that send bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// Those that have waited for too long go first, as they were seen to.
    late: u64,
    finish: FinishTag,
}

const IN_TIME: u64 = u64::MAX;

/// In virtual time; of equal ones the one that was made first counts as the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct FinishTag {
    at: u128,
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    finish: FinishTag,
    /// The cost of what is counted in it and has not gone.
    left: u64,
    weight: u64,
    late: u64,
}

impl Default for Counted {
    fn default() -> Self {
        Self { finish: FinishTag::default(), left: 0, weight: 0, late: IN_TIME }
    }
}

#[derive(Debug, Default)]
pub(super) struct FinishTags {
    /// By flow.
    bursts: Vec<Counted>,
    /// Those that would not be over yet, and their weight in all.
    unfinished: BTreeSet<(FinishTag, FlowId)>,
    weight: u64,
    made: u64,
    now: u128,
}

/// Virtual time goes on by this, divided by the weight of all, for each unit of cost: by 1 while one flow of the default weight is alone.
const SCALE: u128 = DEFAULT_WEIGHT as u128 * WHOLE as u128;

fn in_virtual_time(cost: u64, weight: u64) -> u128 {
    u128::from(cost) * SCALE / u128::from(weight)
}

impl FinishTags {
    /// The flow has a burst of so much cost to send, with what it had before.
    pub(super) fn count(&mut self, flow: FlowId, Burst { cost, weight }: Burst) {
        let left = by_flow(&mut self.bursts, flow).left;
        if cost == left {
            return;
        }
        let (now, made) = (self.now, self.made + 1);
        self.change(flow, |burst| {
            if left == 0 {
                burst.finish.at = burst.finish.at.max(now);
            }
            if cost > left {
                burst.weight = weight.max(1);
                burst.finish = FinishTag { at: burst.finish.at + in_virtual_time(cost - left, burst.weight), made };
            } else {
                // It has lost its credit, or will not be sent.
                burst.finish.at = burst.finish.at.saturating_sub(in_virtual_time(left - cost, burst.weight));
            }
            burst.left = cost;
        });
        self.made = made;
    }

    /// A request of the flow goes; `of_burst`: it belongs to a burst.
    pub(super) fn sent(&mut self, flow: FlowId, cost: u64, of_burst: bool) {
        let burst = by_flow(&mut self.bursts, flow);
        burst.late = IN_TIME;
        let counted = burst.left;
        burst.left = counted.saturating_sub(cost);
        if !of_burst {
            return;
        }
        if counted > 0 && cost > counted {
            // The last one costs more than there was credit for.
            let now = self.now;
            self.change(flow, |burst| {
                burst.finish.at = burst.finish.at.max(now) + in_virtual_time(cost - counted, burst.weight);
            });
        }
        self.advance(cost);
    }

    fn change(&mut self, flow: FlowId, change: impl FnOnce(&mut Counted)) {
        let burst = by_flow(&mut self.bursts, flow);
        if self.unfinished.remove(&(burst.finish, flow)) {
            self.weight -= burst.weight;
        }
        change(burst);
        if burst.finish.at > self.now {
            self.unfinished.insert((burst.finish, flow));
            self.weight += burst.weight;
        }
    }

    /// So much was done for all that would be there yet.
    fn advance(&mut self, mut cost: u64) {
        while let Some(&(first, flow)) = self.unfinished.first() {
            let needed = first.at.saturating_sub(self.now) * u128::from(self.weight) / SCALE;
            if u128::from(cost) < needed {
                self.now += in_virtual_time(cost, self.weight);
                return;
            }
            cost -= needed as u64;
            self.now = first.at;
            self.unfinished.pop_first();
            self.weight -= self.bursts[usize::from(flow.0)].weight;
        }
    }

    /// The flow has waited for too long: it is one of the next, for a request. Whether that is news.
    pub(super) fn hurry(&mut self, flow: FlowId) -> bool {
        let burst = by_flow(&mut self.bursts, flow);
        let is_news = burst.late == IN_TIME;
        if is_news {
            self.made += 1;
            burst.late = self.made;
        }
        is_news
    }

    pub(super) fn of(&self, flow: FlowId) -> Order {
        let burst = self.bursts.get(usize::from(flow.0)).copied().unwrap_or_default();
        Order { late: burst.late, finish: burst.finish }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: u64 = SCALE as u64;

    fn order(tags: &FinishTags, flows: u16) -> Vec<u16> {
        let mut order: Vec<u16> = (0..flows).collect();
        order.sort_by_key(|flow| tags.of(FlowId(*flow)));
        order
    }

    #[test]
    fn a_burst_that_is_not_sent_leaves_nothing_behind() {
        let mut tags = FinishTags::default();
        tags.count(FlowId(0), Burst { cost: 1000, weight: ONE });
        tags.count(FlowId(0), Burst { cost: 0, weight: ONE });
        tags.count(FlowId(1), Burst { cost: 500, weight: ONE });
        tags.count(FlowId(0), Burst { cost: 400, weight: ONE });
        assert_eq!(order(&tags, 2), [0, 1]);
        assert_eq!(tags.weight, 2 * ONE);
    }

    #[test]
    fn those_that_are_late_go_first_as_they_were_seen_to_be() {
        let mut tags = FinishTags::default();
        (0..4).for_each(|flow| tags.count(FlowId(flow), Burst { cost: 1000 * (1 + u64::from(flow)), weight: ONE }));
        assert!([3, 2].map(|flow| tags.hurry(FlowId(flow))) == [true; 2] && !tags.hurry(FlowId(3)));
        assert_eq!(order(&tags, 4), [3, 2, 0, 1]);
        // For a request.
        tags.sent(FlowId(3), 10, true);
        assert_eq!(order(&tags, 4), [2, 0, 1, 3]);
    }

    /// One with a quarter of the weight of others has a quarter of what they have, so a burst that is served before its time has the next one behind it.
    #[test]
    fn virtual_time_goes_on_by_the_weight_of_all() {
        let mut tags = FinishTags::default();
        tags.count(FlowId(0), Burst { cost: 4000, weight: ONE });
        tags.count(FlowId(1), Burst { cost: 1000, weight: ONE / 4 });
        tags.sent(FlowId(0), 2500, true);
        // They have had 2000 and 500.
        assert_eq!(tags.now, 2000);
        tags.sent(FlowId(0), 1500, true);
        tags.count(FlowId(0), Burst { cost: 100, weight: ONE });
        tags.sent(FlowId(1), 1000, true);
        tags.count(FlowId(1), Burst { cost: 100, weight: ONE / 4 });
        assert_eq!((tags.now, tags.bursts[0].finish.at, tags.bursts[1].finish.at), (4000, 4100, 4400));
        // Both of what is left; then nothing is there yet.
        tags.sent(FlowId(0), 100, true);
        tags.sent(FlowId(1), 100, true);
        assert_eq!((tags.now, tags.weight, tags.unfinished.len()), (4400, 0, 0));
    }

    /// Credit covers the beginning of it.
    #[test]
    fn a_request_that_costs_more_than_was_counted_is_counted_then() {
        let mut tags = FinishTags::default();
        (0..2).for_each(|flow| tags.count(FlowId(flow), Burst { cost: 1000, weight: ONE }));
        tags.sent(FlowId(0), 5000, true);
        assert_eq!((tags.bursts[0].left, tags.bursts[0].finish.at), (0, 5000));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn who_is_not_over_yet_is_known(
            events in prop::collection::vec((0..5_u16, 1..=ONE, 0..3000_u64, 0..1000_u64, any::<bool>()), 1..200),
        ) {
            let mut tags = FinishTags::default();
            for (flow, weight, cost, sent, of_burst) in events {
                tags.count(FlowId(flow), Burst { cost, weight });
                tags.sent(FlowId(flow), sent, of_burst);
                let unfinished = |flow: &u16| tags.bursts.get(usize::from(*flow)).is_some_and(|burst| burst.finish.at > tags.now);
                let expected: Vec<u16> = (0..5).filter(unfinished).collect();
                let mut known: Vec<u16> = tags.unfinished.iter().map(|(_, flow)| flow.0).collect();
                known.sort_unstable();
                prop_assert_eq!(&known, &expected);
                let weight: u64 = expected.iter().map(|flow| tags.bursts[usize::from(*flow)].weight).sum();
                prop_assert_eq!(tags.weight, weight);
            }
        }
    }
}
