//! Paths closed in order: the node of such a path caches no write that the guest relies on.
//!
//! A write counts if the controller of the association has answered it with success, and its guest has seen the answer. A flush
//! takes the write out of the cache. The operator may remove a path at once, and a shared cache is the other paths' too.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use nvme_tcp::wire::ControllerInstance;

use super::Checker;
use crate::blocks::{Block, Origin};

/// A block that a controller has changed and answered with success: the request, and the block.
type AnsweredChange = (ControllerInstance, u64, u64);

#[derive(Debug, Default)]
pub(crate) struct ClosedPaths {
    /// By node and disk.
    answered: BTreeMap<(usize, usize), Vec<AnsweredChange>>,
    /// Paths that were closed in order, with their controllers, and are not judged yet.
    closed: Vec<(usize, ControllerInstance)>,
}

impl ClosedPaths {
    /// A controller has changed blocks of a disk for a request, and answers with success.
    pub(crate) fn answered(
        &mut self,
        node: usize,
        disk: usize,
        controller: ControllerInstance,
        id: u64,
        blocks: Range<u64>,
    ) {
        self.answered.entry((node, disk)).or_default().extend(blocks.map(|lba| (controller, id, lba)));
    }

    /// A node reports that the namespace of a disk is gone. What it caches counts as lost.
    pub(crate) fn namespace_gone(&mut self, node: usize, disk: usize) {
        self.answered.remove(&(node, disk));
    }

    /// A path is closed in order.
    pub(crate) fn closed(&mut self, path: usize, controller: ControllerInstance) {
        self.closed.push((path, controller));
    }

    /// A path that was closed in order, with its controller.
    pub(crate) fn next(&mut self) -> Option<(usize, ControllerInstance)> {
        self.closed.pop()
    }
}

impl Checker {
    /// Judges a path that was closed in order, for one disk. `cached`: the changes that are not durable.
    pub(crate) fn path_closed(
        &mut self,
        at: Duration,
        (path, controller): (usize, ControllerInstance),
        disk: usize,
        mut cached: impl Iterator<Item = (u64, usize, Origin)>,
    ) {
        let Some(answered) = self.closed_paths.answered.get_mut(&(path, disk)) else { return };
        let is_left = |&(lba, node, origin): &(u64, usize, Origin)| {
            let Origin::Request(id) = origin else { return false };
            let is_acknowledged = self.disks[disk].durability.is_acknowledged(id);
            node == path && is_acknowledged && answered.contains(&(controller, id, lba))
        };
        let left = cached.find(is_left);
        answered.retain(|(of, ..)| *of != controller);
        if let Some((lba, _, origin)) = left {
            let what =
                format_args!("path {path} is closed in order, and its node caches {origin:?}, which nobody flushed");
            self.violate(at, Some(Block { disk, lba }), what);
        }
    }
}

#[cfg(test)]
mod tests {
    use mpath_core::GroupConfig;

    use super::*;

    const CONTROLLER: ControllerInstance = ControllerInstance { cntlid: 1, ciu: 1, cirn: 1 };
    const OTHER: ControllerInstance = ControllerInstance { cntlid: 1, ciu: 2, cirn: 2 };
    const PATH: usize = 1;

    /// Whether path 1 may be closed with request 7 in the cache of its node, after these steps.
    fn may_close(steps: impl FnOnce(&mut Checker)) -> bool {
        let mut checker = Checker::new([(8, 512)].into_iter(), None, &GroupConfig::default(), false);
        steps(&mut checker);
        let cached = [(3, PATH, Origin::Request(7))];
        checker.path_closed(Duration::ZERO, (PATH, CONTROLLER), 0, cached.into_iter());
        checker.violation.is_none()
    }

    #[test]
    fn a_write_that_its_controller_and_the_guest_have_seen_answered_is_not_left() {
        let acknowledge = |checker: &mut Checker| checker.disks[0].durability.acknowledged(7, 1, false);
        assert!(!may_close(|checker| {
            checker.closed_paths.answered(PATH, 0, CONTROLLER, 7, 2..4);
            acknowledge(checker);
        }));
        assert!(may_close(|checker| checker.closed_paths.answered(PATH, 0, CONTROLLER, 7, 2..4)), "the guest waits");
        assert!(may_close(acknowledge), "another path has executed it too");
        assert!(may_close(|checker| {
            checker.closed_paths.answered(PATH, 0, OTHER, 7, 2..4);
            acknowledge(checker);
        }));
        assert!(may_close(|checker| {
            checker.closed_paths.answered(PATH, 0, CONTROLLER, 7, 2..4);
            acknowledge(checker);
            checker.closed_paths.namespace_gone(PATH, 0);
        }));
    }
}
