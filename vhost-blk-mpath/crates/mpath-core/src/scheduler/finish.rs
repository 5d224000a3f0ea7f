//! In which order bursts go whole: first the one that would be over first if all had their parts at the same time.
//!
//! So of equal ones the first to come is served first and the mean wait is shorter, and a small one has not to wait for a large one. A burst would be over
//! at its finish tag, in virtual time, of which a request's cost is divided among those that send. The tag is of what a flow has when its
//! first request comes, as far as its credit covers that, and grows by what has come since whenever one has gone.
//!
//! Source: Friedman, Henderson: Fairness and Efficiency in Web Server Protocols (2003), with a virtual time that is simpler, by how many wait.

use super::by_flow;
use super::turns::WHOLE;
use crate::FlowId;

/// What a flow has to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    /// Requests that credit covers.
    pub(super) ios: u64,
    /// Of the first one.
    pub(super) cost: u64,
}

/// In virtual time; of equal ones the one that was made first goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FinishTag(u128, u64);

#[derive(Clone, Copy, Debug, Default)]
struct Burst {
    tag: FinishTag,
    /// How many requests it is of, and what one of them adds.
    ios: u64,
    each: u128,
}

#[derive(Debug, Default)]
pub(super) struct FinishTags {
    /// By flow.
    bursts: Vec<Burst>,
    made: u64,
    now: u128,
}

impl FinishTags {
    /// The flow had nothing to send before.
    pub(super) fn begin(&mut self, flow: FlowId, share: u32, queued: Queued) {
        *by_flow(&mut self.bursts, flow) = Burst { tag: FinishTag(self.now, 0), ..Burst::default() };
        self.grow(flow, share, queued);
    }

    /// The flow may have more to send than it had.
    pub(super) fn grow(&mut self, flow: FlowId, share: u32, queued: Queued) {
        let burst = by_flow(&mut self.bursts, flow);
        if queued.ios > burst.ios {
            burst.each = u128::from(queued.cost) * u128::from(WHOLE) / u128::from(share.max(1));
            self.made += 1;
            burst.tag = FinishTag(burst.tag.0 + u128::from(queued.ios - burst.ios) * burst.each, self.made);
        }
        burst.ios = queued.ios;
    }

    /// One of its requests goes; `among`: so many flows send bursts, this one too, or it is none of those.
    pub(super) fn sent(&mut self, flow: FlowId, among: Option<usize>) {
        let burst = by_flow(&mut self.bursts, flow);
        burst.ios = burst.ios.saturating_sub(1);
        if let Some(among) = among {
            // One that has sent all would be there for longer if all had their parts at the same time.
            self.now += burst.each / (among as u128 + 1);
        }
    }

    pub(super) fn of(&self, flow: FlowId) -> FinishTag {
        self.bursts.get(usize::from(flow.0)).map_or(FinishTag::default(), |burst| burst.tag)
    }
}
