//! `burst-credit`: the published rule. When work arrives for a flow that has nothing queued and nothing in flight, its credit
//! becomes 64. While it has credit, each of its requests spends one and goes before the requests of flows without any,
//! strictly; within a tier flows take turns.
//!
//! Source: the SUNRPC rule in path-selection literature ("sparse-flow dispatch"). What it leaves open, and `burst-sim` shows:
//! bursts beyond the credit lose the floor at once, and a few flows that send no more than their credit, drain and repeat
//! take everything.

use std::time::Instant;

use super::turns::Part;
use super::{About, Dispatched, Rule, SchedulerSpec, Tier, by_flow};
use crate::{FlowId, Param};

pub(super) const ABOUT: About = About {
    name: "burst-credit",
    description: "the first requests of a flow that was idle go strictly before those of busy flows",
    params: &[Param::whole("credit", "I/Os", (1, 65536), 64, "requests that go first when a flow was idle")],
    build: |_, spec| Box::new(BurstCredit { credit: spec.number("credit"), left: Vec::new() }),
};

#[derive(Debug)]
struct BurstCredit {
    credit: u64,
    /// By flow.
    left: Vec<u64>,
}

impl Rule for BurstCredit {
    fn activated(&mut self, _now: Instant, flow: FlowId, _part: Part) {
        *by_flow(&mut self.left, flow) = self.credit;
    }

    fn tier(&self, flow: FlowId) -> Tier {
        let left = self.left.get(usize::from(flow.0)).copied().unwrap_or(0);
        if left > 0 { Tier::First } else { Tier::Normal }
    }

    fn dispatched(&mut self, sent: &Dispatched) {
        let left = by_flow(&mut self.left, sent.flow);
        *left = left.saturating_sub(1);
    }

    fn credit(&self, flow: FlowId) -> Option<u64> {
        Some(self.left.get(usize::from(flow.0)).copied().unwrap_or(0))
    }

    fn configure(&mut self, spec: &SchedulerSpec) {
        self.credit = spec.number("credit");
        self.left.iter_mut().for_each(|left| *left = (*left).min(self.credit));
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use crate::SchedulerKind;
    use crate::scheduler::Limits;
    use crate::scheduler::testing::Test;

    #[test]
    fn a_flow_that_was_idle_goes_first_until_its_credit_is_spent() {
        let mut t = Test::new("burst-credit", &[("credit", "2")]);
        for tag in 0..6 {
            t.push(0, tag, 4096);
        }
        assert_eq!(t.take(3), [0, 1, 2]);
        for tag in 10..14 {
            t.push(1, tag, 4096);
        }
        // Two with credit, then in turn.
        assert_eq!(t.take(5), [10, 11, 3, 12, 4]);
    }

    #[test]
    fn credit_comes_back_only_when_nothing_is_left_in_flight() {
        let mut t = Test::new("burst-credit", &[("credit", "1")]);
        (0..4).for_each(|tag| t.push(0, tag, 4096));
        (10..12).for_each(|tag| t.push(1, tag, 4096));
        assert_eq!(t.take(4), [0, 10, 1, 11], "each has spent its credit");
        t.complete(1, 4096);
        t.push(1, 12, 4096);
        assert_eq!(t.take(1), [2], "flow 1 has one in flight: it waits for its turn");
        assert_eq!(t.take(1), [12]);
        t.complete(1, 4096);
        t.complete(1, 4096);
        t.push(1, 13, 4096);
        assert_eq!(t.take(1), [13], "it was idle");
    }

    /// Others send no more than their credit, wait for all and begin again: what has none waits for ever.
    #[test]
    fn what_waits_when_the_rule_comes_into_force_goes() {
        let mut t = Test::new("fifo", &[]);
        t.push(0, 0, 4096);
        t.scheduler.set(t.now, SchedulerKind::BurstCredit.into());
        for round in 0.. {
            assert!(round < 10, "it waits for ever");
            (0..8).for_each(|_| t.push(1, 1, 4096));
            let taken = t.take(8);
            for tag in &taken {
                t.complete(*tag as u16, 4096);
            }
            if taken.contains(&0) {
                break;
            }
        }
    }

    #[test]
    fn all_that_are_not_idle_when_a_rule_comes_into_force_are_new_to_it() {
        for (kind, credit) in [(SchedulerKind::BurstCredit, 64), (SchedulerKind::BurstCreditDrr, 16)] {
            let mut t = Test::new("fifo", &[]);
            t.limits[1].set(t.now, Limits { iops: NonZeroU64::new(1), ..Limits::default() });
            // The first one waits for an answer, the second for its turn, and the others for their limit; the last one was idle.
            (0..2).for_each(|_| t.push_of(1, 2, 2, 4096));
            t.push_of(1, 3, 3, 4096);
            t.push(0, 0, 4096);
            t.push(4, 4, 4096);
            assert_eq!(t.drain(), [2, 0, 4]);
            t.push(1, 1, 4096);
            t.complete(4, 4096);
            t.scheduler.set(t.now, kind.into());
            let flows = t.scheduler.stats(t.now).flows;
            let credits: Vec<Option<u64>> = flows.iter().map(|flow| flow.credit).collect();
            let new = Some(credit);
            let idle = (kind == SchedulerKind::BurstCredit).then_some(0);
            assert_eq!(credits, [new, new, new, new, idle], "{kind}");
        }
    }
}
