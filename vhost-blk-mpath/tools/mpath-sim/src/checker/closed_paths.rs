//! Paths closed in order: the node of such a path caches no write that the guest relies on.
//!
//! A write counts if the controller of the association has answered it with success, and its guest has seen the answer. A write of
//! several commands may fail after one of them has succeeded. The whole write is then repeated, perhaps at another node, and the guest
//! relies on what that node has. A flush takes the write out of the cache. Paths that the operator removes at once are not judged. A shared cache is not judged
//! either, because the other paths have it too.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use mpath_core::{Epoch, PathId};
use nvme_tcp::wire::ControllerInstance;

use crate::blocks::Origin;

/// A block that a controller has changed and answered with success.
#[derive(Debug)]
struct AnsweredChange {
    controller: ControllerInstance,
    request: u64,
    lba: u64,
    /// The number of the answer, among all answers of all nodes.
    number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ClosedPaths {
    /// By node and disk.
    answered: BTreeMap<(usize, usize), Vec<AnsweredChange>>,
    /// Answers so far.
    count: u64,
    /// Requests that may have been sent to a node before it lost the namespace of a disk. The host takes such a write for lost, though
    /// the controller may execute it afterwards.
    lost: BTreeSet<(usize, usize, u64)>,
    /// Paths that were closed in order, with their controllers, and are not judged yet.
    closed: Vec<(usize, ControllerInstance)>,
    /// Associations whose controllers have failed a flush. They are not judged: the daemon reports what is left as lost.
    flush_failed: BTreeSet<(PathId, Epoch)>,
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
            self.count += 1;
            let change = |lba| AnsweredChange { controller, request: id, lba, number: self.count };
            self.answered.entry((node, disk)).or_default().extend(blocks.map(change));
        }
    }

    /// A node loses the namespace of a disk. Its cached writes count as lost, and so do `open` requests.
    pub(super) fn namespace_gone(&mut self, node: usize, disk: usize, open: impl Iterator<Item = u64>) {
        self.answered.remove(&(node, disk));
        self.lost.extend(open.map(|id| (node, disk, id)));
    }

    /// A controller has failed a flush.
    pub(crate) fn flush_failed(&mut self, path: PathId, epoch: Epoch) {
        self.flush_failed.insert((path, epoch));
    }

    /// Whether the controller of an association has failed a flush.
    pub(crate) fn has_failed_flush(&self, path: PathId, epoch: Epoch) -> bool {
        self.flush_failed.contains(&(path, epoch))
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
        let last = |node, id, lba| {
            let changes = self.answered.get(&(node, disk)).into_iter().flatten();
            changes.rev().find(|change| change.request == id && change.lba == lba)
        };
        let is_left = |&(lba, node, origin): &(u64, usize, Origin)| {
            let Origin::Request(id) = origin else { return false };
            if node != path || !is_acknowledged(id) {
                return false;
            }
            let of_controller = last(node, id, lba).filter(|change| change.controller == controller);
            let others = self.answered.keys().filter(|(other, of)| *other != node && *of == disk);
            let is_repeated = |number| {
                let mut later = others.filter_map(|(other, _)| last(*other, id, lba));
                later.any(|change| change.number > number)
            };
            of_controller.is_some_and(|change| !is_repeated(change.number))
        };
        let left = cached.find(is_left).map(|(lba, _, origin)| (lba, origin));
        if let Some(answered) = self.answered.get_mut(&(path, disk)) {
            answered.retain(|change| change.controller != controller);
        }
        left
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
        let mut repeated = answered_by(CONTROLLER);
        repeated.answered(PATH + 1, 0, OTHER, 7, 3..4);
        assert!(!leaves(repeated, true), "another node has executed it afterwards");
        let mut first = ClosedPaths::default();
        first.answered(PATH + 1, 0, OTHER, 7, 3..4);
        first.answered(PATH, 0, CONTROLLER, 7, 2..4);
        assert!(leaves(first, true), "another node has executed it before");
        let mut lost = answered_by(CONTROLLER);
        lost.namespace_gone(PATH, 0, [7].into_iter());
        lost.answered(PATH, 0, CONTROLLER, 7, 2..4);
        assert!(!leaves(lost, true));
    }
}
