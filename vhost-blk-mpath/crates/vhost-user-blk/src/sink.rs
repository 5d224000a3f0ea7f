//! Where the queues of a connection run.

use crate::ring::Queue;
use crate::window::PolicyRefused;

/// Where queues run: the I/O threads, as a connection sees them, and what is behind them.
pub trait QueueSink: Send + Sync {
    /// Moves a queue into its I/O thread. An `Err` gives it back: no thread can take it, and the connection ends.
    #[allow(clippy::result_large_err)] // moved once a set-up
    fn start(&self, queue: Queue) -> Result<(), Queue>;

    /// Takes queues out of their I/O threads, drained: the threads pop no more of them, and every request popped before has
    /// been completed, so that nothing of it can touch guest memory any more. The result has the same order. Blocks for as
    /// long as that takes, but not longer than the sink's own bound, which is for all of them together: QEMU's main loop waits
    /// meanwhile. `None` if the bound passed (the sink then keeps the queue until it is drained and drops it, completing
    /// nothing more) or there is no such queue; the connection ends without an answer, as the only one would be a false
    /// promise. A queue may come back with requests given up, too. If the front-end keeps an in-flight log they are
    /// resubmitted when it connects again.
    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>>;

    /// Puts the path policy of that id in force, which the front-end has written into the [window](Disk::with_window), and has
    /// the window say so. QEMU's main loop may wait meanwhile. To be implemented for disks with a window.
    fn set_policy(&self, id: u16) -> Result<(), PolicyRefused> {
        Err(PolicyRefused::Unknown(id))
    }
}
