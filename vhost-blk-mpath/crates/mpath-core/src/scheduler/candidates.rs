//! Decides: flows are walked in this order.
//!
//! The walk over the requests that may go, in order.

use monotonic::Instant;

use super::Scheduler;
use crate::{DiskId, FlowId, Tag};

/// The position of a request that may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(super) flow: FlowId,
    /// The flow goes although its disk is paused.
    is_exception: bool,
    /// The other flows of the disk are passed.
    ends_disk: bool,
}

impl Place {
    /// The end of the turn of the request's disk.
    pub(crate) fn last_of_disk(self) -> Self {
        Self { ends_disk: !self.is_exception, ..self }
    }
}

impl Scheduler {
    /// The first request of the next flow, or of the flow after `after`, and its position.
    #[inline]
    pub(crate) fn candidate(&mut self, now: Instant, after: Option<Place>) -> Option<(Place, Tag)> {
        if self.len == 0 && self.exempt == 0 {
            return None;
        }
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
            let is_exempt = place.is_exception && of.exempt.contains(&place.flow.0);
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

    #[inline]
    fn next(&mut self, now: Instant, after: Option<Place>) -> Option<Place> {
        let turn = after.filter(|after| !after.is_exception);
        if self.paused > 0 && turn.is_none() {
            let has_more = |flow: FlowId| !self.flows[usize::from(flow.0)].queue.is_empty();
            let after = after.map(|after| after.flow);
            let next = self.disks.iter().filter_map(|disk| disk.next_exception(after, has_more)).min();
            if let Some(flow) = next {
                return Some(Place { flow, is_exception: true, ends_disk: false });
            }
        }
        let (mut disk, mut last) = match turn {
            None => (self.next_disk(now, None)?, None),
            Some(Place { flow, ends_disk, .. }) => {
                let of = &self.flows[usize::from(flow.0)];
                if ends_disk {
                    (self.next_disk(now, Some(of.disk))?, None)
                } else {
                    (of.disk, Some(of.member.place(flow.0)))
                }
            }
        };
        loop {
            let of = &mut self.disks[disk.index()];
            // The disk may have left the turns since.
            if of.has_turns()
                && let Some(flow) = of.turns.next(&self.settings, now, last.take())
            {
                return Some(Place { flow: FlowId(flow), is_exception: false, ends_disk: false });
            }
            disk = self.next_disk(now, Some(disk))?;
        }
    }

    /// The disk with the next turn. A disk without others takes no turns. If the disk before has left the turns since its own,
    /// they begin anew.
    #[inline]
    fn next_disk(&mut self, now: Instant, after: Option<DiskId>) -> Option<DiskId> {
        if self.disks.len() == 1 {
            return after.is_none().then_some(DiskId(0));
        }
        let member = |disk: DiskId| &self.disks[disk.index()].member;
        let after = after.filter(|disk| member(*disk).waits()).map(|disk| member(disk).place(disk.0));
        self.turns.next(&self.settings, now, after).map(DiskId)
    }
}
