//! Paths closed in order: the node of such a path caches no write that the guest relies on.
//!
//! A write counts if the controller of the association has answered it with success, and its guest has seen the answer.
//! A flush takes the write out of the cache. Paths that the operator removes at once are not judged. A shared cache is not judged
//! either, because the other paths have it too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use nvme_tcp::wire::ControllerInstance;

use crate::blocks::Origin;

/// A block that a controller has changed and answered with success: the request, and the block.
type AnsweredChange = (ControllerInstance, u64, u64);

#[derive(Debug, Default)]
pub(crate) struct ClosedPaths {
    /// By node and disk.
    answered: BTreeMap<(usize, usize), Vec<AnsweredChange>>,
    /// Requests that may have been sent to a node before it lost the namespace of a disk. The host takes such a write for lost, though
    /// the controller may execute it afterwards.
    lost: BTreeSet<(usize, usize, u64)>,
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
        if !self.lost.contains(&(node, disk, id)) {
            self.answered.entry((node, disk)).or_default().extend(blocks.map(|lba| (controller, id, lba)));
        }
    }

    /// A node loses the namespace of a disk. Its cached writes count as lost, and so do `open` requests.
    pub(super) fn namespace_gone(&mut self, node: usize, disk: usize, open: impl Iterator<Item = u64>) {
        self.answered.remove(&(node, disk));
        self.lost.extend(open.map(|id| (node, disk, id)));
    }

    /// Notes a path that is closed in order. It is judged later.
    pub(crate) fn closed(&mut self, path: usize, controller: ControllerInstance) {
        self.closed.push((path, controller));
    }

    /// Takes the next path to be judged, with its controller.
    pub(crate) fn next(&mut self) -> Option<(usize, ControllerInstance)> {
        self.closed.pop()
    }

    /// The first block of a disk that a path closed in order has left in a cache, and its origin. `cached`: the changes that are not durable,
    /// by block and node. `is_acknowledged`: the guest has seen the request succeed.
    pub(super) fn left_behind(
        &mut self,
        (path, controller): (usize, ControllerInstance),
        disk: usize,
        mut cached: impl Iterator<Item = (u64, usize, Origin)>,
        is_acknowledged: impl Fn(u64) -> bool,
    ) -> Option<(u64, Origin)> {
        let answered = self.answered.get_mut(&(path, disk))?;
        let is_left = |&(lba, node, origin): &(u64, usize, Origin)| {
            let Origin::Request(id) = origin else { return false };
            node == path && is_acknowledged(id) && answered.contains(&(controller, id, lba))
        };
        let left = cached.find(is_left);
        answered.retain(|(of, ..)| *of != controller);
        left.map(|(lba, _, origin)| (lba, origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTROLLER: ControllerInstance = ControllerInstance { cntlid: 1, ciu: 1, cirn: 1 };
    const OTHER: ControllerInstance = ControllerInstance { cntlid: 1, ciu: 2, cirn: 2 };
    const PATH: usize = 1;

    /// Whether path 1 leaves request 7 in the cache of its node.
    fn leaves(mut closed_paths: ClosedPaths, is_acknowledged: bool) -> bool {
        let cached = [(3, PATH, Origin::Request(7))].into_iter();
        closed_paths.left_behind((PATH, CONTROLLER), 0, cached, |_| is_acknowledged).is_some()
    }

    fn answered_by(controller: ControllerInstance) -> ClosedPaths {
        let mut closed_paths = ClosedPaths::default();
        closed_paths.answered(PATH, 0, controller, 7, 2..4);
        closed_paths
    }

    #[test]
    fn a_write_that_its_controller_and_the_guest_have_seen_answered_is_not_left() {
        assert!(leaves(answered_by(CONTROLLER), true));
        assert!(!leaves(answered_by(CONTROLLER), false), "the guest waits");
        assert!(!leaves(answered_by(OTHER), true), "it is of an earlier association");
        assert!(!leaves(ClosedPaths::default(), true), "another path has executed it too");
        let mut lost = answered_by(CONTROLLER);
        lost.namespace_gone(PATH, 0, [7].into_iter());
        lost.answered(PATH, 0, CONTROLLER, 7, 2..4);
        assert!(!leaves(lost, true));
    }
}
