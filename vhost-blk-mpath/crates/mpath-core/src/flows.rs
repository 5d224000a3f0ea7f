//! The requests that wait for a path: first in, first out per flow, flows in turn.

use std::collections::VecDeque;

use crate::{FlowId, Tag};

#[derive(Debug, Default)]
pub(crate) struct Flows {
    queues: Vec<VecDeque<Tag>>,
    /// The flows that have something waiting, the one whose turn it is first.
    turns: VecDeque<FlowId>,
    len: usize,
}

impl Flows {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many flows have something waiting.
    pub(crate) fn active(&self) -> usize {
        self.turns.len()
    }

    pub(crate) fn push_back(&mut self, flow: FlowId, tag: Tag) {
        self.queue_for_push(flow).push_back(tag);
    }

    /// For a request that had its turn before.
    pub(crate) fn push_front(&mut self, flow: FlowId, tag: Tag) {
        self.queue_for_push(flow).push_front(tag);
    }

    fn queue_for_push(&mut self, flow: FlowId) -> &mut VecDeque<Tag> {
        let index = usize::from(flow.0);
        if index >= self.queues.len() {
            self.queues.resize_with(index + 1, VecDeque::new);
        }
        let queue = &mut self.queues[index];
        if queue.is_empty() {
            self.turns.push_back(flow);
        }
        self.len += 1;
        queue
    }

    /// The first request of the flow whose turn comes after `turn` others.
    pub(crate) fn head(&self, turn: usize) -> Option<Tag> {
        let flow = self.turns.get(turn)?;
        self.queues[usize::from(flow.0)].front().copied()
    }

    /// Takes what [`Flows::head`] shows. Its flow goes to the end of the turns; flows passed over keep theirs.
    pub(crate) fn take(&mut self, turn: usize) -> Option<Tag> {
        let flow = self.turns.remove(turn)?;
        let queue = &mut self.queues[usize::from(flow.0)];
        let tag = queue.pop_front();
        if !queue.is_empty() {
            self.turns.push_back(flow);
        }
        self.len -= 1;
        tag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(flows: &mut Flows) -> Vec<u32> {
        std::iter::from_fn(|| flows.take(0)).map(|tag| tag.0).collect()
    }

    #[test]
    fn flows_take_turns_and_keep_their_order() {
        let mut flows = Flows::default();
        for tag in [10, 11, 12] {
            flows.push_back(FlowId(1), Tag(tag));
        }
        flows.push_back(FlowId(3), Tag(30));
        flows.push_back(FlowId(3), Tag(31));
        assert_eq!((flows.len(), flows.active()), (5, 2));
        assert_eq!(drain(&mut flows), [10, 30, 11, 31, 12]);
        assert_eq!((flows.len(), flows.active()), (0, 0));
    }

    #[test]
    fn a_flow_passed_over_keeps_its_turn() {
        let mut flows = Flows::default();
        for (flow, tag) in [(0, 1), (1, 2), (1, 3), (2, 4)] {
            flows.push_back(FlowId(flow), Tag(tag));
        }
        assert_eq!(flows.head(1), Some(Tag(2)));
        assert_eq!(flows.take(1), Some(Tag(2)));
        assert_eq!(drain(&mut flows), [1, 4, 3]);
    }

    #[test]
    fn what_comes_back_goes_first() {
        let mut flows = Flows::default();
        flows.push_back(FlowId(0), Tag(1));
        flows.push_front(FlowId(0), Tag(2));
        assert_eq!(drain(&mut flows), [2, 1]);
    }
}
