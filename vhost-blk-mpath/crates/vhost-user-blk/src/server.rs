//! One front-end connection from accept to hang-up.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use vhost::vhost_user::{BackendReqHandler, Error as MessageError};

use crate::connection::{Connection, Verdict};
use crate::disk::Disk;
use crate::inflight::InflightMemoryError;
use crate::memory::MemoryError;
use crate::ring::{Queue, RingError};

/// Where queues run: the I/O threads, as a connection sees them.
pub trait QueueSink: Send + Sync {
    /// Moves a queue into its I/O thread. An `Err` gives it back: no thread can take it, and the connection ends.
    #[allow(clippy::result_large_err)] // moved once a set-up
    fn start(&self, queue: Queue) -> Result<(), Queue>;

    /// Takes queue `index` out of its I/O thread, drained: the thread pops no more, and every request popped before has been
    /// completed, so that nothing of it can touch guest memory any more. Blocks for as long as that takes, but not longer
    /// than the sink's own bound: QEMU's main loop waits meanwhile. `None` if the bound passed (the sink then keeps the queue
    /// until it is drained and drops it, publishing nothing more) or there is no such queue; the connection ends without an
    /// answer, as the only one would be a false promise. A queue may come back with requests given up, too. If the front-end
    /// keeps an in-flight log they are resubmitted when it connects again.
    fn stop(&self, index: u16) -> Option<Queue>;
}

/// What a front-end asked for that cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The disk has not that many queues.
    #[error("queue {index} of a disk with {num_queues}")]
    QueueIndex {
        /// The queue named.
        index: u32,
        /// Queues of the disk.
        num_queues: u16,
    },
    /// Not a power of two, or above the disk's maximum.
    #[error("queue size {size}; a power of two up to {max} is possible")]
    QueueSize {
        /// The size asked for.
        size: u32,
        /// Largest size of the disk.
        max: u16,
    },
    /// A ring position that is not one.
    #[error("ring position {0:#x}")]
    RingPosition(u32),
    /// Features that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// Protocol features that were not offered.
    #[error("protocol features {0:#x} were not offered")]
    ProtocolFeatures(u64),
    /// Only `writeback` can be written, and only when `CONFIG_WCE` was negotiated.
    #[error("{bytes} bytes at offset {offset} of the configuration space cannot be written")]
    ConfigWrite {
        /// First byte.
        offset: u32,
        /// How many.
        bytes: usize,
    },
    /// A queue without a kick descriptor would have to be polled.
    #[error("queue {0} has no kick descriptor")]
    NoKick(u16),
    /// A kick, call or error descriptor is unusable.
    #[error("cannot use the kick, call or error descriptor: {0}")]
    Descriptor(#[source] io::Error),
    /// A memory region is unusable.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// In-flight memory cannot be made or used.
    #[error(transparent)]
    Inflight(#[from] InflightMemoryError),
}

/// Why a connection ended before the front-end hung up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The front-end sent what is not vhost-user.
    #[error("vhost-user: {0}")]
    Message(#[source] MessageError),
    /// The front-end asked for what cannot be done.
    #[error("front-end request refused: {0}")]
    Request(#[from] RequestError),
    /// A queue cannot be set up as told.
    #[error("queue {index}: {error}")]
    Ring {
        /// The queue.
        index: u16,
        /// Why.
        #[source]
        error: RingError,
    },
    /// No I/O thread takes the queue.
    #[error("no I/O thread for queue {0}")]
    NotStarted(u16),
    /// The queue's requests did not finish in time.
    #[error("queue {0} was not drained in time")]
    NotDrained(u16),
}

/// Serves one front-end until it hangs up, which is `Ok`. In any case, all queues are stopped and drained at the end (but for
/// [`ServeError::NotDrained`]), and the caller can serve the next connection with the same disk and sink.
///
/// Blocks; to end it from outside, shut down a clone of the stream.
pub fn serve_connection(stream: UnixStream, disk: &Arc<Disk>, sink: &dyn QueueSink) -> Result<(), ServeError> {
    let connection = Arc::new(Mutex::new(Connection::new(Arc::clone(disk), sink)));
    let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
    let lock = || connection.lock().unwrap_or_else(PoisonError::into_inner);
    let outcome = loop {
        let Err(error) = messages.handle_request() else { continue };
        let verdict = lock().take_verdict();
        match (verdict, error) {
            (Some(Verdict::Refused(error)), _) => tracing::warn!(%error, "front-end request refused"),
            (Some(Verdict::End(error)), _) => break Err(error),
            (None, MessageError::Disconnected | MessageError::SocketBroken(_)) => break Ok(()),
            (None, MessageError::SocketRetry(_)) => {}
            (None, error) => break Err(ServeError::Message(error)),
        }
    };
    let stopped = lock().stop_all();
    outcome.and(stopped)
}
