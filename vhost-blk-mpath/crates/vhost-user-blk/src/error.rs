//! Why a connection ends, or refuses what it is asked for.

use std::io;

use vhost::vhost_user::Error as MessageError;

use crate::dirty::DirtyLogError;
use crate::inflight::InflightMemoryError;
use crate::memory::{MemoryError, MemoryFault};
use crate::ring::RingError;
use crate::window::PolicyRefused;

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
