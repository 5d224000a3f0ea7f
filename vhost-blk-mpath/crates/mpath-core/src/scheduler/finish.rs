//! In which order bursts go whole: first the one that would be over first if all had their parts at the same time.
//!
//! So of equal ones the first to come is served first and the mean wait is shorter, a small one has not to wait for a large one, and none is over later than
//! if it had its part all the time. A burst would be over at its finish tag, in virtual time, which goes on by a request's cost divided by the shares of all
//! that would be there yet. The tag is of what a flow has when its first request comes, and grows by what has come since whenever one has
//! gone, as far as credit covers that. A flow whose last burst would not be over begins the next one behind it.
//!
//! Source: Friedman, Henderson: Fairness and Efficiency in Web Server Protocols (2003), FSP, with weights; virtual time as in Parekh, Gallager: A Generalized
//! Processor Sharing Approach to Flow Control (1993).

use std::collections::BTreeSet;

use super::by_flow;
use super::turns::WHOLE;
use crate::FlowId;

/// Where a flow stands among those that send bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    /// Those that have waited for too long go first, as they were seen to.
    late: u64,
    finish: Tag,
}

const IN_TIME: u64 = u64::MAX;

/// In virtual time; of equal ones the one that was made first counts as the earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    at: u128,
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct Burst {
    finish: Tag,
    /// The cost of what is counted in it and has not gone.
    left: u64,
    share: u32,
    late: u64,
}

impl Default for Burst {
    fn default() -> Self {
        Self { finish: Tag::default(), left: 0, share: 0, late: IN_TIME }
    }
}

#[derive(Debug, Default)]
pub(super) struct FinishTags {
    /// By flow.
    bursts: Vec<Burst>,
    /// Those that would not be over yet, and their shares in all.
    unfinished: BTreeSet<(Tag, FlowId)>,
    shares: u64,
    made: u64,
    now: u128,
}

impl FinishTags {
    /// The flow has a burst of so much cost to send, with what it had before.
    pub(super) fn count(&mut self, flow: FlowId, share: u32, cost: u64) {
        let burst = by_flow(&mut self.bursts, flow);
        if cost == burst.left {
            return;
        }
        if self.unfinished.remove(&(burst.finish, flow)) {
            self.shares -= u64::from(burst.share);
        }
        if burst.left == 0 {
            burst.finish.at = burst.finish.at.max(self.now);
        }
        let in_virtual_time = |cost: u64, share: u32| u128::from(cost) * u128::from(WHOLE) / u128::from(share);
        if cost > burst.left {
            burst.share = share.max(1);
            burst.finish.at += in_virtual_time(cost - burst.left, burst.share);
            self.made += 1;
            burst.finish.made = self.made;
        } else {
            // It has lost its credit, or will not be sent.
            burst.finish.at = burst.finish.at.saturating_sub(in_virtual_time(burst.left - cost, burst.share));
        }
        burst.left = cost;
        if burst.finish.at > self.now {
            self.unfinished.insert((burst.finish, flow));
            self.shares += u64::from(burst.share);
        }
    }

    /// A request of the flow goes; `of_burst`: it belongs to a burst.
    pub(super) fn sent(&mut self, flow: FlowId, cost: u64, of_burst: bool) {
        let burst = by_flow(&mut self.bursts, flow);
        burst.left = burst.left.saturating_sub(cost);
        burst.late = IN_TIME;
        if of_burst {
            self.advance(cost);
        }
    }

    /// So much was done for all that would be there yet.
    fn advance(&mut self, mut cost: u64) {
        while let Some(&(first, flow)) = self.unfinished.first() {
            let needed = first.at.saturating_sub(self.now) * u128::from(self.shares) / u128::from(WHOLE);
            if u128::from(cost) < needed {
                self.now += u128::from(cost) * u128::from(WHOLE) / u128::from(self.shares);
                return;
            }
            cost -= needed as u64;
            self.now = first.at;
            self.unfinished.pop_first();
            self.shares -= u64::from(self.bursts[usize::from(flow.0)].share);
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

    const ONE: u32 = WHOLE;

    fn order(tags: &FinishTags, flows: u16) -> Vec<u16> {
        let mut order: Vec<u16> = (0..flows).collect();
        order.sort_by_key(|flow| tags.of(FlowId(*flow)));
        order
    }

    #[test]
    fn a_burst_that_is_not_sent_leaves_nothing_behind() {
        let mut tags = FinishTags::default();
        tags.count(FlowId(0), ONE, 1000);
        tags.count(FlowId(0), ONE, 0);
        tags.count(FlowId(1), ONE, 500);
        tags.count(FlowId(0), ONE, 400);
        assert_eq!(order(&tags, 2), [0, 1]);
        assert_eq!(tags.shares, 2 * u64::from(ONE));
    }

    #[test]
    fn those_that_are_late_go_first_as_they_were_seen_to_be() {
        let mut tags = FinishTags::default();
        (0..4).for_each(|flow| tags.count(FlowId(flow), ONE, 1000 * (1 + u64::from(flow))));
        assert!([3, 2].map(|flow| tags.hurry(FlowId(flow))) == [true; 2] && !tags.hurry(FlowId(3)));
        assert_eq!(order(&tags, 4), [3, 2, 0, 1]);
        // For a request.
        tags.sent(FlowId(3), 10, true);
        assert_eq!(order(&tags, 4), [2, 0, 1, 3]);
    }

    /// One with a quarter of the share of others has a quarter of what they have, so a burst that is served before its time has the next one behind it.
    #[test]
    fn virtual_time_goes_on_by_the_shares_of_all() {
        let mut tags = FinishTags::default();
        tags.count(FlowId(0), ONE, 4000);
        tags.count(FlowId(1), ONE / 4, 1000);
        tags.sent(FlowId(0), 2500, true);
        // They have had 2000 and 500.
        assert_eq!(tags.now, 2000);
        tags.sent(FlowId(0), 1500, true);
        tags.count(FlowId(0), ONE, 100);
        tags.sent(FlowId(1), 1000, true);
        tags.count(FlowId(1), ONE / 4, 100);
        assert_eq!((tags.now, tags.bursts[0].finish.at, tags.bursts[1].finish.at), (4000, 4100, 4400));
        // Both of what is left; then nothing is there yet.
        tags.sent(FlowId(0), 500, true);
        assert_eq!((tags.now, tags.shares, tags.unfinished.len()), (4400, 0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn who_is_not_over_yet_is_known(
            events in prop::collection::vec((0..5_u16, 1..=ONE, 0..3000_u64, 0..1000_u64, any::<bool>()), 1..200),
        ) {
            let mut tags = FinishTags::default();
            for (flow, share, cost, sent, of_burst) in events {
                tags.count(FlowId(flow), share, cost);
                tags.sent(FlowId(flow), sent, of_burst);
                let unfinished = |flow: &u16| tags.bursts.get(usize::from(*flow)).is_some_and(|burst| burst.finish.at > tags.now);
                let expected: Vec<u16> = (0..5).filter(unfinished).collect();
                let mut known: Vec<u16> = tags.unfinished.iter().map(|(_, flow)| flow.0).collect();
                known.sort_unstable();
                prop_assert_eq!(&known, &expected);
                let shares: u64 = expected.iter().map(|flow| u64::from(tags.bursts[usize::from(*flow)].share)).sum();
                prop_assert_eq!(tags.shares, shares);
            }
        }
    }
}
