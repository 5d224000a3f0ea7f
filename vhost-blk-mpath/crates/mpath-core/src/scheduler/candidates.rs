//! Decides: flows are walked in this order.
//!
//! The walk over the requests that may go, in order.

use std::time::Instant;

use super::{Scheduler, fair_queue};
use crate::{DiskId, FlowId, Tag};

/// The position of a request that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The flow goes although its disk is paused.
    Exception(FlowId),
    /// The turn of the disk, and of the flow within it.
    Turn { disk: fair_queue::Place, flow: fair_queue::Place },
    /// The end of the disk's turn, behind all of its flows.
    EndOfDisk { disk: fair_queue::Place },
}

impl Place {
    pub(super) fn flow(self) -> FlowId {
        match self {
            Self::Exception(flow) => flow,
            Self::Turn { flow, .. } => FlowId(flow.member),
            Self::EndOfDisk { .. } => unreachable!("no request is behind all flows"),
        }
    }

    /// The end of the turn of the request's disk.
    pub(crate) fn last_of_disk(self) -> Self {
        match self {
            Self::Turn { disk, .. } => Self::EndOfDisk { disk },
            other => other,
        }
    }
}

impl Scheduler {
    /// The first request of the next flow, or of the flow after `after`, and its position.
    pub(crate) fn candidate(&mut self, now: Instant, after: Option<Place>) -> Option<(Place, Tag)> {
        if after.is_none() && self.exempt > 0 {
            // Exceptions come first, so the paused disks must be known.
            self.check_limits(now);
        }
        loop {
            let place = self.next(now, after)?;
            let flow = &self.flows[usize::from(place.flow().0)];
            let (disk, next) = (flow.disk, flow.queue.front().expect("a flow with a turn has a request"));
            let tag = next.tag;
            // Limits do not hold exempt flows. They do hold requests that need no path.
            let is_exempt =
                matches!(place, Place::Exception(flow) if self.disks[disk.index()].exempt.contains(&flow.0));
            let has_limits = self.disks[disk.index()].limits.are_set();
            if is_exempt || !has_limits || !self.change(disk, |disk| disk.begin_throttling(now)) {
                return Some((place, tag));
            }
            self.update_turn_of_disk(disk);
        }
    }

    fn check_limits(&mut self, now: Instant) {
        for id in (0..self.disks.len() as u16).map(DiskId) {
            if !self.disks[id.index()].exempt.is_empty() && self.change(id, |disk| disk.begin_throttling(now)) {
                self.update_turn_of_disk(id);
            }
        }
    }

    fn next(&mut self, now: Instant, after: Option<Place>) -> Option<Place> {
        let (exceptions_after, turn) = match after {
            None => (Some(None), None),
            Some(Place::Exception(flow)) => (Some(Some(flow)), None),
            Some(Place::Turn { disk, flow }) => (None, Some((disk, Some(flow)))),
            Some(Place::EndOfDisk { disk }) => (None, Some((self.turns.next(&self.settings, now, Some(disk))?, None))),
        };
        if let Some(after) = exceptions_after.filter(|_| self.paused > 0) {
            let has_more = |flow: FlowId| !self.flows[usize::from(flow.0)].queue.is_empty();
            let next = self.disks.iter().filter_map(|disk| disk.next_exception(after, has_more)).min();
            if let Some(flow) = next {
                return Some(Place::Exception(flow));
            }
        }
        let (mut disk, mut last) = match turn {
            Some(turn) => turn,
            None => (self.turns.next(&self.settings, now, None)?, None),
        };
        loop {
            let of = &mut self.disks[usize::from(disk.member)];
            // The disk may have left the turns since.
            if of.has_turns()
                && let Some(flow) = of.turns.next(&self.settings, now, last.take())
            {
                return Some(Place::Turn { disk, flow });
            }
            disk = self.turns.next(&self.settings, now, Some(disk))?;
        }
    }
}
