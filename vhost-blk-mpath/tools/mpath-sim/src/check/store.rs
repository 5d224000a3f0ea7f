//! Each change of the store must belong to a request of that disk, and promised data must stay in the store.

use std::ops::Range;
use std::time::Duration;

use super::{Asked, Block, Checker, Origin, pattern};
use crate::target::store::Loss;

/// A command whose connection is gone.
const ALONE: &str = ", its connection being gone";

impl Checker {
    /// The store is about to be changed by a command with this payload (none: zeroes): whose it is.
    pub(crate) fn applying(
        &mut self,
        at: Duration,
        node: usize,
        disk: usize,
        range: Range<u64>,
        payload: Option<&[u8]>,
        orphan: bool,
    ) -> Origin {
        let first = Some(Block { disk, lba: range.start });
        self.tick();
        self.counts.applied += 1;
        self.counts.late += u64::from(orphan);
        let id = if let Some(payload) = payload {
            let block_bytes = payload.len() / (range.end - range.start) as usize;
            let blocks = range.clone().zip(payload.chunks_exact(block_bytes));
            let mut origins = blocks.map(|(lba, block)| pattern::parse(disk, block, lba));
            let one = origins.next().unwrap_or(Ok(Origin::Initial));
            match origins.fold(one.clone(), |same, next| if next == one { same } else { next.and(Err("mixed".into())) })
            {
                Ok(Origin::Request(id)) => Some(id),
                other => {
                    let torn = self.torn_write(disk, range.start, payload, block_bytes);
                    if torn.is_none() {
                        let what = other.err().unwrap_or_else(|| "zeroes that no request wrote".into());
                        self.violate(at, first, format_args!("written to the store: {what}"));
                        return Origin::Initial;
                    }
                    torn
                }
            }
        } else {
            let zeroes = |asked: &Asked| asked.disk == disk && asked.kind.is_zeroing() && asked.range == range;
            self.open.iter().find(|(_, asked)| zeroes(asked)).map(|(&id, _)| id)
        };
        let alone = if orphan { ALONE } else { "" };
        let Some(id) = id else {
            self.violate(at, first, format_args!("node {node} zeroed {range:?} for nobody{alone}"));
            return Origin::Initial;
        };
        self.disks[disk].durability.executed(id);
        self.applied(at, node, disk, range, id, alone);
        Origin::Request(id)
    }

    /// One more piece of a command is about to change the store.
    pub(crate) fn applying_more(
        &mut self,
        at: Duration,
        node: usize,
        disk: usize,
        range: Range<u64>,
        origin: Origin,
        orphan: bool,
    ) {
        self.tick();
        self.counts.late += u64::from(orphan);
        if let Origin::Request(id) = origin {
            self.applied(at, node, disk, range, id, if orphan { ALONE } else { "" });
        }
    }

    fn applied(&mut self, at: Duration, node: usize, disk: usize, range: Range<u64>, id: u64, alone: &str) {
        let first = Some(Block { disk, lba: range.start });
        self.note(at, id, disk, range.clone(), || format!("  executed by node {node}{alone}"));
        let since = |asked: &Asked| self.disks[disk].stopped.is_some_and(|stopped| stopped < asked.submitted);
        if self.open.get(&id).is_some_and(since) {
            self.violate(at, first, format_args!("node {node} executed #{id}, which no virtqueue had brought yet"));
        }
        match self.open.get(&id).map(|asked| asked.range.clone()) {
            None => self.violate(
                at,
                first,
                format_args!("stale write: node {node} executed #{id} after it had been answered{alone}"),
            ),
            Some(asked) if asked.start > range.start || asked.end < range.end => {
                self.violate(at, first, format_args!("#{id} for {asked:?} wrote {range:?}"));
            }
            Some(_) => {}
        }
    }

    /// A flush of a disk has succeeded for the guest: what it covers must not be in any cache, nor have gone with one.
    pub(crate) fn flushed(&mut self, at: Duration, disk: usize, cached: impl Iterator<Item = (u64, usize, Origin)>) {
        // That of a cache which all controllers share the host cannot know: with `shared-write-cache` nothing is lost with a path.
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

    /// A node has lost its cache of a disk.
    pub(crate) fn cache_lost(&mut self, at: Duration, node: usize, disk: usize, losses: &[Loss]) {
        let moment = self.tick();
        self.note(at, 0, disk, 0..0, || format!("node {node} lost its cache"));
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
                self.counts.lost += 1;
                self.disks[disk].registers.reverted(loss.lba, moment);
                self.note(at, 0, disk, loss.lba..loss.lba + 1, || format!("  fell back to {:?}", loss.left.last()));
            }
        }
    }
}
