//! The socket of a queue pair.

use std::collections::{BTreeMap, BTreeSet};

use monotonic::Instant;
use mpath_core::{AnaStates, DiskId, Epoch, PathId};

use crate::checker::is_accessible;
use crate::checker::wire::Wire;

/// A path that refuses commands of a disk.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) since: Instant,
    /// The path has carried out a command since, which may have been on its way before.
    pub(super) has_served: bool,
}

/// The socket of a queue pair.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) path: PathId,
    pub(super) epoch: Epoch,
    pub(super) wire: Wire,
    /// Bytes that were sent.
    pub(super) sent: usize,
    /// Bytes that the checker has read.
    pub(super) checked: usize,
    /// The most commands that are open at a time.
    pub(super) queue_depth: usize,
    /// The ANA states that the thread was told.
    pub(super) ana: AnaStates,
    /// Disks whose commands the path refuses.
    pub(super) refusing: BTreeMap<usize, Refusal>,
    /// Disks whose namespaces the thread knew to be inaccessible there before the next send.
    pub(super) inaccessible: BTreeSet<usize>,
    /// The thread does not use it any more.
    pub(super) is_ended: bool,
    /// When the kernel ends its operations, once it is shut down.
    pub(super) released_at: Option<Instant>,
}

impl Socket {
    /// Notes which namespaces the thread knows to be inaccessible. No send is under way and nothing is left to send, so the
    /// thread knows them before it sends again. If the queue is full, nothing is noted: commands that the thread has already picked may wait.
    pub(super) fn note_inaccessible(&mut self, disks: usize) {
        if self.wire.open_commands() >= self.queue_depth {
            return;
        }
        let inaccessible = (0..disks).filter(|disk| !is_accessible(self.ana.of(DiskId(*disk as u16))));
        self.inaccessible = inaccessible.collect();
    }
}
