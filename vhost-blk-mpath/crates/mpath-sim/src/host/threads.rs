//! The I/O threads of a daemon.

use mpath_core::DiskId;

use super::Message;
use super::thread::IoThread;
use crate::target::Ctx;

pub(super) struct Threads(pub(super) Vec<IoThread>);

impl Threads {
    /// The one that has this virtqueue. Disks with one virtqueue each are not all on the first thread.
    pub(super) fn of(&self, disk: DiskId, queue: u16) -> usize {
        usize::from(disk.0 + queue) % self.0.len()
    }

    pub(super) fn post(&mut self, ctx: &mut Ctx<'_>, thread: usize, message: Message) {
        self.0[thread].post(ctx, message);
    }

    pub(super) fn post_all(&mut self, ctx: &mut Ctx<'_>, message: impl Fn() -> Message) {
        self.0.iter_mut().for_each(|thread| thread.post(ctx, message()));
    }
}
