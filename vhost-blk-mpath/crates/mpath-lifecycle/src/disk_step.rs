//! The steps of a disk, which its surroundings carry out.

use crate::pending_fences::PendingFence;

/// A step of a disk. [`DiskDriver::done`](crate::DiskDriver::done) follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiskStep {
    /// Record this fence for the disk. A removed disk has left it on the namespace.
    InheritFence(PendingFence),
    /// Name the namespace in the fence record.
    RecordNamespace,
    /// Save the disk for the next daemon. Fails if the file cannot be written, or if guests cannot see such a size.
    Save {
        /// The blocks to which it grows. `None`: as many as guests see or are to see.
        grow_to: Option<u64>,
    },
    /// Serve front-ends. This cannot fail.
    Serve,
    /// Wait until every I/O thread has the sizes that were reported.
    TellThreads,
    /// Show guests [`DiskDriver::to_show`](crate::DiskDriver::to_show), before any other path becomes live. Fails if they see
    /// less.
    Show,
    /// Remove the inherited fences from the fence record. If that fails, the next daemon waits longer.
    ForgetFences,
}
