//! Events on the host that are reasons for requests to fail.

use std::ops::Range;

use monotonic::Duration;

use super::wire::{CommandEnd, CommandKind};
use super::{Checker, OpenRequest};
use crate::blocks::Operation;
use crate::connection::ConnId;

impl Checker {
    /// An association has ended.
    pub(crate) fn association_lost(&mut self, at: Duration) {
        self.counts.associations_lost += 1;
        self.array_reads.association_lost();
        if self.spared.is_some() {
            self.violate(at, None, "an association was lost though one of its disks was spared");
        }
    }

    /// Notes that the host has received an error for a command. The error is a reason for each request to which the command can
    /// belong. `blocks` is `None` if the blocks of the command are not known. `counts`: the path has served requests of the disk
    /// since its last error of this kind.
    pub(crate) fn command_failed(
        &mut self,
        disk: usize,
        kind: CommandKind,
        blocks: Option<&Range<u64>>,
        end: CommandEnd,
        counts: bool,
    ) {
        if let (CommandKind::Change, Some(most), Some(blocks)) = (kind, self.write_zeroes_max, blocks)
            && blocks.end - blocks.start > most
        {
            // The host has to find the limit, and no request fails of it.
            return;
        }
        if kind == CommandKind::Flush && end != CommandEnd::OfPath {
            self.flushes.flush_failed(disk);
        }
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
            let met = &mut request.errors_met;
            match end {
                CommandEnd::Success => {}
                CommandEnd::OfPath => met.path_errors += u64::from(counts),
                CommandEnd::Final => met.refused += 1,
                CommandEnd::Passing => {
                    // Each part of a request has attempts of its own.
                    let range = &request.range;
                    let blocks = blocks.cloned().unwrap_or_else(|| range.clone());
                    request.errors_by_block.resize((range.end - range.start).max(1) as usize, 0);
                    let places = (blocks.start - range.start) as usize..(blocks.end - range.start).max(1) as usize;
                    request.errors_by_block[places].iter_mut().for_each(|errors| *errors += 1);
                    met.errors = request.errors_by_block.iter().copied().max().unwrap_or_default();
                }
            }
        }
    }

    /// A node gets a command of a write.
    pub(crate) fn write_arrived(&mut self, at: Duration, id: u64, conn: ConnId) {
        self.lost_attempts.arrived(id, conn);
        let lost = self.lost_attempts.of(id);
        if lost > self.config.max_failovers as usize && self.open.contains_key(&id) {
            self.violate(at, None, format_args!("#{id} is sent again after {lost} attempts that were lost"));
        }
    }

    /// A connection has ended before a command of a write was answered.
    pub(crate) fn write_lost(&mut self, id: u64, conn: ConnId) {
        self.counts.writes_lost += u64::from(self.lost_attempts.add(id, conn));
    }

    /// An I/O thread has a path to a disk, or none, and commands of the disk under way, or none.
    pub(crate) fn has_path(&mut self, at: Duration, thread: usize, disk: usize, has_path: bool, is_busy: bool) {
        self.disks[disk].reasons.has_path(at, thread, has_path, is_busy);
    }

    /// An I/O thread is told of a path to a disk.
    pub(crate) fn told_of_path(&mut self, at: Duration, thread: usize, disk: usize) {
        self.disks[disk].reasons.served(at, thread, at);
    }

    /// An I/O thread answers a request with success. A flush without unflushed writes needs no path.
    pub(crate) fn served(&mut self, at: Duration, thread: usize, id: u64) {
        if let Some(request) = self.open.get(&id).filter(|request| request.operation != Operation::Flush) {
            self.disks[request.disk].reasons.served(at, thread, request.at);
        }
    }

    /// For how long an I/O thread has had no path to a disk and no command of the disk under way, if that is so.
    pub(crate) fn idle_without_path_for(&self, at: Duration, thread: usize, disk: usize) -> Option<Duration> {
        self.disks[disk].reasons.idle_without_path_for(at, thread)
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
