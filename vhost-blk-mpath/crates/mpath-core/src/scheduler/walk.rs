//! The walk over the requests that may go, in order.

use std::time::Instant;

use super::{Scheduler, level};
use crate::{DiskId, FlowId, Tag};

/// The position of a request that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// The flow goes although its disk is paused.
    Exception(FlowId),
    /// The turn of the disk, and of the flow within it.
    Turn { disk: level::Place, flow: level::Place },
}

impl Place {
    pub(super) fn flow(self) -> FlowId {
        match self {
            Self::Exception(flow) => flow,
            Self::Turn { flow, .. } => FlowId(flow.member),
        }
    }
}

impl Scheduler {
    /// The first request of the next flow, or of the flow after `after`, and its position.
    pub(crate) fn candidate(&mut self, now: Instant, after: Option<Place>) -> Option<(Place, Tag)> {
        if after.is_none() && self.lifted > 0 {
            // Exceptions come first, so the paused disks must be known.
            self.ask_limits(now);
        }
        loop {
            let place = self.next(now, after)?;
            let flow = &self.flows[usize::from(place.flow().0)];
            let (disk, next) = (flow.disk, flow.queue.front().expect("a flow with a turn has a request"));
            let tag = next.tag;
            // Limits also count requests that need no path.
            let is_lifted =
                matches!(place, Place::Exception(flow) if self.disks[disk.index()].lifted.contains(&flow.0));
            if is_lifted || !self.change(disk, |disk| disk.closes(now)) {
                return Some((place, tag));
            }
            self.refile_disk(disk);
        }
    }

    fn ask_limits(&mut self, now: Instant) {
        for id in (0..self.disks.len() as u16).map(DiskId) {
            if !self.disks[id.index()].lifted.is_empty() && self.change(id, |disk| disk.closes(now)) {
                self.refile_disk(id);
            }
        }
    }

    fn next(&mut self, now: Instant, after: Option<Place>) -> Option<Place> {
        let (exceptions_after, turn) = match after {
            None => (Some(None), None),
            Some(Place::Exception(flow)) => (Some(Some(flow)), None),
            Some(Place::Turn { disk, flow }) => (None, Some((disk, flow))),
        };
        if let Some(after) = exceptions_after.filter(|_| self.kept > 0) {
            let has_more = |flow: FlowId| !self.flows[usize::from(flow.0)].queue.is_empty();
            let next = self.disks.iter().filter_map(|disk| disk.next_exception(after, has_more)).min();
            if let Some(flow) = next {
                return Some(Place::Exception(flow));
            }
        }
        let (mut disk, mut last) = match turn {
            Some((disk, flow)) => (disk, Some(flow)),
            None => (self.level.next(&self.rule, now, None)?, None),
        };
        loop {
            let of = &mut self.disks[usize::from(disk.member)];
            // The disk may have left the turns since.
            if of.has_turns()
                && let Some(flow) = of.level.next(&self.rule, now, last.take())
            {
                return Some(Place::Turn { disk, flow });
            }
            disk = self.level.next(&self.rule, now, Some(disk))?;
        }
    }
}
