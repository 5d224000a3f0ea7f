//! Events on the host that are reasons for requests to fail.

use std::ops::Range;
use std::time::Duration;

use super::wire::CommandKind;
use super::{Checker, OpenRequest};
use crate::blocks::Operation;

impl Checker {
    /// An association has ended.
    pub(crate) fn association_lost(&mut self, at: Duration) {
        self.counts.associations_lost += 1;
        if self.spared.is_some() {
            self.violate(at, None, "an association was lost though one of its disks was spared");
        }
    }

    /// Notes that the host has received an error for a command. The error is a reason for each request to which the command can
    /// belong. `blocks` is `None` if the blocks of the command are not known.
    pub(crate) fn command_failed(
        &mut self,
        disk: usize,
        kind: CommandKind,
        blocks: Option<&Range<u64>>,
        is_final: bool,
    ) {
        let may_contain = |request: &OpenRequest| {
            let is_of_kind = match kind {
                CommandKind::Flush => request.operation == Operation::Flush,
                CommandKind::Read => request.operation == Operation::Read,
                CommandKind::Change => request.operation.changes_data(),
            };
            let is_there = |blocks: &Range<u64>| request.range.start <= blocks.start && blocks.end <= request.range.end;
            request.disk == disk && is_of_kind && blocks.is_none_or(is_there)
        };
        for request in self.open.values_mut().filter(|request| may_contain(request)) {
            request.errors_met.refused += u64::from(is_final);
            request.errors_met.errors += u64::from(!is_final);
        }
    }

    /// An I/O thread has a path to a disk, or none.
    pub(crate) fn has_path(&mut self, at: Duration, thread: usize, disk: usize, has_path: bool) {
        self.disks[disk].reasons.has_path(at, thread, has_path);
    }

    /// For how long an I/O thread has had no path to a disk, if it has none.
    pub(crate) fn pathless_for(&self, at: Duration, thread: usize, disk: usize) -> Option<Duration> {
        self.disks[disk].reasons.pathless_for(at, thread)
    }

    /// A connection of an I/O queue has ended.
    pub(crate) fn queue_lost(&mut self) {
        self.disks.iter_mut().for_each(|disk| disk.reasons.connection_ended());
    }

    /// An injection on a path of an I/O thread begins or ends.
    pub(crate) fn injected(&mut self, begins: bool) {
        self.disks.iter_mut().for_each(|disk| disk.reasons.injected(begins));
    }

    /// A link begins to flip bits, or ends.
    pub(crate) fn corrupted(&mut self, begins: bool) {
        self.disks.iter_mut().for_each(|disk| disk.reasons.corrupted(begins));
    }

    /// Whether the core may see other answers than the I/O threads receive.
    pub(crate) fn are_answers_altered(&self) -> bool {
        self.disks.first().is_some_and(|disk| disk.reasons.are_answers_altered())
    }
}
