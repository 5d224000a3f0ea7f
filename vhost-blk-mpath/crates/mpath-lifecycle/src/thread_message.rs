//! What I/O threads are told about paths.

use mpath_core::{AnaState, DiskId, Epoch, PathId};
use nvme_tcp::host::NamespaceLimits;

/// A message to an I/O thread about a path.
#[expect(missing_docs, reason = "the types of the fields say what they are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadMessage {
    /// Remove a path. Its queue pair must be closed, and the statistics must show nothing in flight, fenced or to be flushed.
    /// See [`mpath_core::Group::remove_path`].
    RemovePath(PathId),
    /// Close the queue pair of an association that has ended or ends, and report [`Report::Closed`](crate::Report::Closed), unless
    /// that was reported before. `drain`: shut down only the sending side at first.
    PathDown { path: PathId, epoch: Epoch, half_close: bool },
    /// Commands sent under this association can no longer change data.
    FenceLifted { path: PathId, epoch: Epoch },
    /// The disk's namespace can be used on this path. Its ANA state follows.
    AddNamespace { path: PathId, epoch: Epoch, disk: DiskId, limits: NamespaceLimits },
    /// The ANA state of the disk's namespace on this path.
    Ana { path: PathId, epoch: Epoch, disk: DiskId, state: AnaState },
    /// Have the controller of a path flush the writes that no flush has covered. See [`mpath_core::Group::begin_daemon_flush`].
    DaemonFlush(PathId),
}

/// The I/O threads of a subsystem.
pub trait IoThreads {
    /// The number of threads.
    fn count(&self) -> usize;

    /// Posts a message to a thread. Messages to one thread are carried out in their order.
    fn post(&mut self, thread: usize, message: ThreadMessage);

    /// Posts a message to every thread.
    fn post_all(&mut self, message: ThreadMessage) {
        (0..self.count()).for_each(|thread| self.post(thread, message));
    }
}
