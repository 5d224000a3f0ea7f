//! The I/O threads of a daemon.

use mpath_core::DiskId;

use super::Message;
use super::thread::IoThread;
use crate::target::Ctx;

pub(super) struct Threads(pub(super) Vec<IoThread>);

impl Threads {
    /// The one that has this virtqueue.
    pub(super) fn of(&self, disk: DiskId, queue: u16) -> usize {
        mpath_host::io_thread_of(disk, queue, self.0.len())
    }

    pub(super) fn post(&mut self, ctx: &mut Ctx<'_>, thread: usize, message: Message) {
        self.0[thread].post(ctx, message);
    }

    pub(super) fn post_all(&mut self, ctx: &mut Ctx<'_>, message: impl Fn() -> Message) {
        self.0.iter_mut().for_each(|thread| thread.post(ctx, message()));
    }
}
