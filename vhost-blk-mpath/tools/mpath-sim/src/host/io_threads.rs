//! The I/O threads of a daemon.

use std::time::Instant;

use mpath_core::DiskId;

use super::io_thread::{IoThread, Message};
use crate::context::Ctx;

/// The I/O threads of a daemon.
pub(super) struct IoThreads(pub(super) Vec<IoThread>);

impl IoThreads {
    /// The I/O thread that serves this virtqueue.
    pub(super) fn serving(&self, disk: DiskId, queue: u16) -> usize {
        mpath_host::io_thread_of(disk, queue, self.0.len())
    }

    /// The requests of a disk that wait for a path.
    pub(super) fn queued(&self, now: Instant, disk: DiskId) -> u64 {
        self.0.iter().map(|thread| thread.queued(now, disk)).sum()
    }

    pub(super) fn post(&mut self, ctx: &mut Ctx, thread: usize, message: Message) {
        self.0[thread].post(ctx, message);
    }

    pub(super) fn post_all(&mut self, ctx: &mut Ctx, message: impl Fn() -> Message) {
        self.0.iter_mut().for_each(|thread| thread.post(ctx, message()));
    }
}
