//! The I/O threads of a daemon.

use std::sync::{Arc, Mutex, PoisonError};

use monotonic::Instant;
use mpath_core::{DiskId, FlowId};
use mpath_lifecycle::VirtqueueThreads;

use super::io_thread::{IoThread, Message};
use crate::context::Ctx;

/// The assignment of virtqueues to I/O threads, which paths share.
#[derive(Clone)]
pub(super) struct Virtqueues(Arc<Mutex<VirtqueueThreads>>);

impl Virtqueues {
    pub(super) fn new(threads: usize) -> Self {
        Self(Arc::new(Mutex::new(VirtqueueThreads::new(threads))))
    }

    pub(super) fn with<T>(&self, change: impl FnOnce(&mut VirtqueueThreads) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The I/O threads of a daemon, and their virtqueues.
pub(super) struct IoThreads(pub(super) Vec<IoThread>, pub(super) Virtqueues);

impl IoThreads {
    /// Assigns a virtqueue that starts to an I/O thread.
    pub(super) fn start(&self, disk: DiskId, queue: u16, flow: FlowId) -> usize {
        self.1.with(|virtqueues| virtqueues.start(disk, queue, flow))
    }

    /// The I/O thread of a virtqueue that runs, or the first one.
    pub(super) fn serving(&self, flow: FlowId) -> usize {
        self.1.with(|virtqueues| virtqueues.thread_of(flow)).unwrap_or(0)
    }

    /// A virtqueue is back from its I/O thread.
    pub(super) fn stopped(&self, flow: FlowId) {
        self.1.with(|virtqueues| virtqueues.stopped(flow));
    }

    /// Whether every I/O thread with a virtqueue, and at least the first, does this.
    pub(super) fn all_that_serve(&self, does: impl Fn(&IoThread) -> bool) -> bool {
        let needed = self.1.with(|virtqueues| virtqueues.needed());
        self.0[..needed.max(1)].iter().all(does)
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
