//! Each change of the store belongs to a request of that disk, and promised data stay in the store.

use std::ops::Range;

use monotonic::Duration;
use nvme_tcp::wire::ControllerInstance;

use super::{Checker, OpenRequest};
use crate::blocks::{Block, Loss, Origin, pattern};

/// Added to the message if the connection of the command is gone.
const CONNECTION_GONE: &str = ", its connection being gone";

impl Checker {
    /// Judges a command that is about to change the store to this payload, or to zeroes if there is none. Returns the request to
    /// which the command belongs.
    pub(crate) fn change_begins(
        &mut self,
        at: Duration,
        node: usize,
        disk: usize,
        range: Range<u64>,
        payload: Option<&[u8]>,
        is_orphan: bool,
    ) -> Origin {
        let first = Some(Block { disk, lba: range.start });
        self.tick();
        self.counts.store_changes += 1;
        self.counts.late_store_changes += u64::from(is_orphan);
        let id = if let Some(payload) = payload {
            let block_bytes = payload.len() / (range.end - range.start) as usize;
            let blocks = range.clone().zip(payload.chunks_exact(block_bytes));
            let mut origins = blocks.map(|(lba, block)| pattern::parse(disk, block, lba));
            let one = origins.next().unwrap_or(Ok(Origin::Initial));
            match origins.fold(one.clone(), |same, next| if next == one { same } else { next.and(Err("mixed".into())) })
            {
                Ok(Origin::Request(id)) => Some(id),
                other => {
                    let torn = self.writer_of_torn(disk, range.start, payload, block_bytes);
                    if torn.is_none() {
                        let what = other.err().unwrap_or_else(|| "zeroes that no request wrote".into());
                        self.violate(at, first, format_args!("written to the store: {what}"));
                        return Origin::Initial;
                    }
                    torn
                }
            }
        } else {
            // The host sends long ones in parts, if controllers refuse them.
            let covers = |request: &OpenRequest| {
                let Range { start, end } = request.range;
                request.range == range || self.write_zeroes_max.is_some() && start <= range.start && range.end <= end
            };
            let zeroes =
                |request: &OpenRequest| request.disk == disk && request.operation.is_zeroing() && covers(request);
            self.open.iter().find(|(_, request)| zeroes(request)).map(|(&id, _)| id)
        };
        let gone = if is_orphan { CONNECTION_GONE } else { "" };
        let Some(id) = id else {
            self.violate(at, first, format_args!("node {node} zeroed {range:?} for no request{gone}"));
            return Origin::Initial;
        };
        self.disks[disk].durability.executed(id);
        self.check_change(at, node, disk, range, id, gone);
        Origin::Request(id)
    }

    /// Judges a further piece of a command that is about to change the store.
    pub(crate) fn change_continues(
        &mut self,
        at: Duration,
        node: usize,
        disk: usize,
        range: Range<u64>,
        origin: Origin,
        is_orphan: bool,
    ) {
        self.tick();
        self.counts.late_store_changes += u64::from(is_orphan);
        if let Origin::Request(id) = origin {
            self.check_change(at, node, disk, range, id, if is_orphan { CONNECTION_GONE } else { "" });
        }
    }

    fn check_change(&mut self, at: Duration, node: usize, disk: usize, range: Range<u64>, id: u64, gone: &str) {
        let first = Some(Block { disk, lba: range.start });
        self.history.note(at, id, disk, range.clone(), || format!("  executed by node {node}{gone}"));
        let is_not_fetched =
            |request: &OpenRequest| self.disks[disk].stopped.is_some_and(|stopped| stopped < request.submitted);
        if self.open.get(&id).is_some_and(is_not_fetched) {
            self.violate(at, first, format_args!("node {node} executed #{id}, which no virtqueue had delivered yet"));
        }
        match self.open.get(&id).map(|request| request.range.clone()) {
            None => self.violate(
                at,
                first,
                format_args!("stale write: node {node} executed #{id} after it had been answered{gone}"),
            ),
            Some(requested) if requested.start > range.start || requested.end < range.end => {
                self.violate(at, first, format_args!("#{id} for {requested:?} wrote {range:?}"));
            }
            Some(_) => {}
        }
    }

    /// Judges a flush that has succeeded for the guest. No data that the flush covers may be in a cache, or be lost with one.
    pub(crate) fn flushed(&mut self, at: Duration, disk: usize, cached: impl Iterator<Item = (u64, usize, Origin)>) {
        // The host cannot notice the loss of a shared cache: with `shared-write-cache`, no data are lost with a path.
        if !self.config.shared_write_cache
            && let Some(origin) = self.disks[disk].durability.silently_lost()
        {
            self.violate(at, None, format_args!("silent loss: {origin:?} was lost, and a flush of it succeeded"));
        }
        for (lba, node, origin) in cached {
            if self.disks[disk].durability.is_promised(origin) {
                let what = format_args!("{origin:?} is not durable at node {node} though a flush of it succeeded");
                return self.violate(at, Some(Block { disk, lba }), what);
            }
        }
    }

    /// Judges a path that was closed in order, with its controller, for one disk. `cached`: the changes that are not durable.
    pub(crate) fn path_closed(
        &mut self,
        at: Duration,
        closed: (usize, ControllerInstance),
        disk: usize,
        cached: impl Iterator<Item = (u64, usize, Origin)>,
    ) {
        let Self { closed_paths, disks, .. } = self;
        let durability = &disks[disk].durability;
        let left = closed_paths.left_behind(closed, disk, cached, |id| durability.is_acknowledged(id));
        if let Some((lba, origin)) = left {
            let path = closed.0;
            let what =
                format_args!("path {path} is closed in order, and its node caches {origin:?}, which no flush covered");
            self.violate(at, Some(Block { disk, lba }), what);
        }
    }

    /// A node has lost its cache of a disk.
    pub(crate) fn cache_lost(&mut self, at: Duration, node: usize, disk: usize, losses: &[Loss]) {
        let moment = self.tick();
        self.history.note(at, 0, disk, 0..0, || format!("node {node} lost its cache"));
        for loss in losses {
            for origin in &loss.gone {
                if self.disks[disk].durability.is_promised(*origin) && !loss.left.contains(origin) {
                    let what = format_args!("lost write: {origin:?} was promised to be durable, node {node} lost it");
                    self.violate(at, Some(Block { disk, lba: loss.lba }), what);
                }
            }
            let lost = loss.gone.iter().filter(|origin| !loss.left.contains(origin));
            lost.for_each(|origin| self.disks[disk].durability.lost(*origin));
            if loss.visible {
                self.counts.blocks_lost += 1;
                self.disks[disk].registers.reverted(loss.lba, moment);
                self.history
                    .note(at, 0, disk, loss.lba..loss.lba + 1, || format!("  fell back to {:?}", loss.left.last()));
            }
        }
    }
}
