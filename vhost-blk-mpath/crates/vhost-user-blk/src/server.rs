//! One front-end connection from accept to hang-up.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use vhost::vhost_user::message::{FrontendReq, MAX_MSG_SIZE};
use vhost::vhost_user::{
    BackendReqHandler, Error as MessageError, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
};

use crate::channel::FrontendChannel;
use crate::connection::{Connection, Verdict};
use crate::dirty::DirtyLogError;
use crate::disk::Disk;
use crate::inflight::InflightMemoryError;
use crate::memory::{MemoryError, MemoryFault};
use crate::notify::Alarm;
use crate::ring::{Queue, RingError};
use crate::window::PolicyRefused;
use crate::{mem_table, message};

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
    /// Above the disk's maximum, or, for a split ring, not a power of two.
    #[error("queue size {size}; up to {max} are possible, in a split ring a power of two")]
    QueueSize {
        /// The size asked for.
        size: u32,
        /// Largest size of the disk.
        max: u16,
    },
    /// Features that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// Protocol features that were not offered.
    #[error("protocol features {0:#x} were not offered")]
    ProtocolFeatures(u64),
    /// Only `writeback` can be written, when `CONFIG_WCE` was negotiated, and the policy in the window of a disk that has one.
    #[error("{bytes} bytes at offset {offset} of the configuration space cannot be written")]
    ConfigWrite {
        /// First byte.
        offset: u32,
        /// How many.
        bytes: usize,
    },
    /// The policy written into the window is not put in force.
    #[error(transparent)]
    Policy(#[from] PolicyRefused),
    /// A queue without a kick descriptor would have to be polled.
    #[error("queue {0} has no kick descriptor")]
    NoKick(u16),
    /// A kick, call or error descriptor is unusable.
    #[error("cannot use the kick, call or error descriptor: {0}")]
    Descriptor(#[source] io::Error),
    /// A memory region is unusable.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The dirty log of a migration is unusable.
    #[error(transparent)]
    DirtyLog(#[from] DirtyLogError),
    /// In-flight memory cannot be made or used.
    #[error(transparent)]
    Inflight(#[from] InflightMemoryError),
}

/// Why a connection ended before the front-end hung up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket cannot be used.
    #[error("vhost-user socket: {0}")]
    Socket(#[source] io::Error),
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
    /// Memory that it shares could not be accessed.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    /// No I/O thread takes the queue.
    #[error("no I/O thread for queue {0}")]
    NotStarted(u16),
    /// The queue's requests did not finish in time.
    #[error("queue {0} was not drained in time")]
    NotDrained(u16),
    /// The queue has to stop, and requests that its in-flight log was found with were not taken up yet.
    #[error(
        "queue {0} stops with requests in flight from before, which wait for the fence of an earlier daemon or front-end"
    )]
    NotTakenUp(u16),
}

/// Serves one front-end until it hangs up, which is `Ok`. In any case, all queues are stopped and drained at the end (but for
/// [`ServeError::NotDrained`]), and the caller can serve the next connection with the same disk and sink.
///
/// Blocks; to end it from outside, shut down a clone of the stream.
pub fn serve_connection(stream: UnixStream, disk: &Arc<Disk>, sink: &dyn QueueSink) -> Result<(), ServeError> {
    let socket = stream.try_clone().map_err(ServeError::Socket)?;
    let hang_up = stream.try_clone().map_err(ServeError::Socket)?;
    let alarm = Arc::new(Alarm::new().map_err(ServeError::Socket)?);
    let connection = Connection::new(Arc::clone(disk), sink, hang_up, Arc::clone(&alarm));
    let connection = Arc::new(Mutex::new(connection));
    let mut messages = BackendReqHandler::from_stream(stream, Arc::clone(&connection));
    let lock = || connection.lock().unwrap_or_else(PoisonError::into_inner);
    let mut handle_next = || {
        let has = |feature| lock().has_protocol_feature(feature);
        let answer = |request, wanted: bool| {
            let wanted = wanted && has(VhostUserProtocolFeatures::REPLY_ACK);
            if wanted { message::answer(&socket, request) } else { Ok(()) }
        };
        let request = match message::next(&socket) {
            Some(request @ FrontendReq::SET_MEM_TABLE) => {
                let message = message::receive(&socket, MAX_MSG_SIZE)?;
                let wanted = message.answer_wanted;
                let (regions, files) = mem_table::regions(message)?;
                lock().set_mem_table(&regions, files, None)?;
                return answer(request, wanted);
            }
            Some(request @ FrontendReq::SET_BACKEND_REQ_FD) if has(VhostUserProtocolFeatures::BACKEND_REQ) => request,
            _ => return messages.handle_request(),
        };
        let message = message::receive(&socket, 0)?;
        let wanted = message.answer_wanted;
        let is_news = disk.set_channel(FrontendChannel::of(message)?);
        answer(request, wanted)?;
        // Not before: who reads the space when told to must not find the answer in place of it.
        if is_news {
            disk.tell_of_change();
        }
        Ok(())
    };
    let outcome = loop {
        if lock().memory_fault().is_some() {
            break Ok(());
        }
        match alarm.wait_beside(&socket) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(error) => break Err(ServeError::Socket(error)),
        }
        let Err(error) = handle_next() else { continue };
        let verdict = lock().take_verdict();
        match (verdict, error) {
            (Some(Verdict::Refused(error)), _) => tracing::warn!(%error, "front-end request refused"),
            (Some(Verdict::End(error)), _) => break Err(error),
            (None, MessageError::Disconnected | MessageError::SocketBroken(_)) => break Ok(()),
            (None, MessageError::SocketRetry(_)) => {}
            (None, error) => break Err(ServeError::Message(error)),
        }
    };
    disk.forget_front_end();
    let stopped = lock().stop_all();
    // Whatever else was found in memory that could not be accessed.
    let fault = lock().memory_fault();
    fault.map_or_else(|| outcome.and(stopped), |fault| Err(fault.into()))
}
