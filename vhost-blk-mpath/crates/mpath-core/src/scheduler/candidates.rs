//! Decides: flows are walked in this order.
//!
//! The walk over the requests that may go, in order.

use std::time::Instant;

use super::{Scheduler, fair_queue};
use crate::{DiskId, FlowId, Tag};

/// The position of a request that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) flow: FlowId,
    /// The turn of the flow's disk. `None`: the flow goes although its disk is paused.
    disk: Option<fair_queue::Place>,
    /// The other flows of the disk are passed.
    ends_disk: bool,
}

impl Place {
    /// The end of the turn of the request's disk.
    pub(crate) fn last_of_disk(self) -> Self {
        Self { ends_disk: self.disk.is_some(), ..self }
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
            let flow = &self.flows[usize::from(place.flow.0)];
            let (disk, tag) = (flow.disk, flow.queue.front().expect("a flow with a turn has a request").tag);
            let of = &self.disks[disk.index()];
            if !of.limits.are_set() {
                return Some((place, tag));
            }
            // Limits do not hold exempt flows. They do hold requests that need no path.
            let is_exempt = place.disk.is_none() && of.exempt.contains(&place.flow.0);
            if is_exempt || !self.change(disk, |disk| disk.begin_throttling(now)) {
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
        if self.paused > 0 && after.is_none_or(|after| after.disk.is_none()) {
            let has_more = |flow: FlowId| !self.flows[usize::from(flow.0)].queue.is_empty();
            let after = after.map(|after| after.flow);
            let next = self.disks.iter().filter_map(|disk| disk.next_exception(after, has_more)).min();
            if let Some(flow) = next {
                return Some(Place { flow, disk: None, ends_disk: false });
            }
        }
        let (mut disk, mut last) = match after {
            Some(Place { flow, disk: Some(disk), ends_disk: false }) => {
                (disk, Some(self.flows[usize::from(flow.0)].member.place(flow.0)))
            }
            Some(Place { disk: Some(disk), .. }) => (self.next_disk(now, Some(disk))?, None),
            _ => (self.next_disk(now, None)?, None),
        };
        loop {
            let of = &mut self.disks[usize::from(disk.member())];
            // The disk may have left the turns since.
            if of.has_turns()
                && let Some(flow) = of.turns.next(&self.settings, now, last.take())
            {
                return Some(Place { flow: FlowId(flow.member()), disk: Some(disk), ends_disk: false });
            }
            disk = self.next_disk(now, Some(disk))?;
        }
    }

    /// The disk with the next turn. A disk without others takes no turns.
    fn next_disk(&mut self, now: Instant, after: Option<fair_queue::Place>) -> Option<fair_queue::Place> {
        match &*self.disks {
            [only] => (after.is_none() && only.has_turns()).then(|| only.member.place(0)),
            _ => self.turns.next(&self.settings, now, after),
        }
    }
}
