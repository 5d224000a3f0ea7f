//! Hedges: second copies of slow reads, over another path. A hedge reads into a buffer of this process, because the
//! first path may write to guest memory.

use monotonic::Instant;
use mpath_core::{Outcome, PathId, Tag};

use super::IoThread;
use crate::ring::Ring;
use crate::translate::command_of;

impl<R: Ring> IoThread<R> {
    pub(super) fn hedge(&mut self, now: Instant, path: PathId, tag: Tag) {
        let Some((disk, request)) = self.requests.hedge(tag) else {
            self.group.hedged(now, path, tag, Outcome::GivenUp);
            return;
        };
        let command = command_of(request, self.disks[disk].block_size_bytes);
        let submitted = self
            .connections
            .open_mut(path)
            .is_some_and(|connection| connection.submit(tag.of_hedge(), disk, command).is_ok());
        if !submitted {
            self.group.hedged(now, path, tag, Outcome::Lost { indeterminate: false });
        }
    }

    /// Takes back the hedge of a read, and drops its buffer. The queue pair discards data that come later.
    pub(super) fn drop_hedge(&mut self, now: Instant, path: PathId, tag: Tag) {
        let open = self.connections.open_mut(path);
        if let Some(outcome) = open.and_then(|connection| connection.take_back(tag.of_hedge())) {
            self.group.hedged(now, path, tag, outcome);
        }
        self.requests.drop_hedge(tag);
    }
}
