//! The interface between a connection and the I/O threads that run its queues.

use crate::ring::Queue;
use crate::vendor_window::SetPolicyError;

/// The I/O threads of a disk, as a connection sees them.
pub trait QueueRunner: Send + Sync {
    /// Moves a queue into its I/O thread. If no thread can take it, `Err` returns it, and the connection ends.
    #[allow(clippy::result_large_err)] // moved once a set-up
    fn start(&self, queue: Queue) -> Result<(), Queue>;

    /// Takes queues out of their I/O threads, drained, in the order of `indices`.
    ///
    /// Drained means: the threads pop no more requests, and every popped request is completed, so that none can touch
    /// guest memory. The call blocks until then, up to the runner's own time limit for all queues together. QEMU's main
    /// loop waits meanwhile.
    ///
    /// A result is `None` if there is no such queue, or if the limit passed. The runner then keeps the queue until it
    /// is drained, drops it, and completes nothing more. The connection ends without an answer, because an answer would
    /// be a false promise. A queue may also come back with requests given up. If the front-end keeps an in-flight log,
    /// those are resubmitted when it reconnects.
    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>>;

    /// Sets the path policy with that id, which the front-end wrote into the [vendor
    /// window](crate::VirtioDisk::with_vendor_window), and updates the window. QEMU's main loop may wait meanwhile. Implement
    /// it for disks with a vendor window.
    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        Err(SetPolicyError::Unknown(id))
    }
}

impl<T: QueueRunner + ?Sized> QueueRunner for &T {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        (**self).start(queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        (**self).stop(indices)
    }

    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        (**self).set_policy(id)
    }
}
