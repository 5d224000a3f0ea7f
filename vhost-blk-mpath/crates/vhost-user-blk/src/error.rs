//! Errors of a connection and of a front-end's messages.

use std::io;

use vhost::vhost_user::Error as MessageError;
use vhost::vhost_user::message::FrontendReq;

use crate::dirty_log::DirtyLogError;
use crate::inflight::InflightMemoryError;
use crate::memory::{MemoryError, MemoryFault};
use crate::ring::RingError;
use crate::vendor_window::SetPolicyError;

/// Why a front-end's message was refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The disk has fewer queues.
    #[error("queue {index} does not exist: the disk has {num_queues} queues")]
    QueueIndex {
        /// Index of the queue.
        index: u32,
        /// Queues of the disk.
        num_queues: u16,
    },
    /// The size is above the disk's maximum, or a split ring's size is not a power of two.
    #[error("queue size {size} is not possible: at most {max}, and a power of two in a split ring")]
    QueueSize {
        /// The size asked for.
        size: u32,
        /// Largest size of the disk.
        max: u16,
    },
    /// The front-end set features that were not offered.
    #[error("features {0:#x} were not offered")]
    Features(u64),
    /// The front-end set protocol features that were not offered.
    #[error("protocol features {0:#x} were not offered")]
    ProtocolFeatures(u64),
    /// The field cannot be written. A front-end may write `writeback`, if `CONFIG_WCE` was negotiated, and the policy
    /// in the vendor window.
    #[error("{bytes} bytes at offset {offset} of the configuration space cannot be written")]
    ConfigWrite {
        /// Offset of the first byte.
        offset: u32,
        /// Bytes to write.
        bytes: usize,
    },
    /// The policy written into the vendor window was not set.
    #[error(transparent)]
    Policy(#[from] SetPolicyError),
    /// The front-end passed no kick descriptor. This back-end does not poll rings.
    #[error("queue {0} has no kick descriptor, and polling is not supported")]
    NoKick(u16),
    /// A kick, call or error descriptor is unusable.
    #[error("cannot use the kick, call or error descriptor: {0}")]
    Descriptor(#[source] io::Error),
    /// A memory region is unusable.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The dirty log of a migration cannot be used.
    #[error(transparent)]
    DirtyLog(#[from] DirtyLogError),
    /// In-flight memory cannot be created or used.
    #[error(transparent)]
    Inflight(#[from] InflightMemoryError),
}

/// Why a connection ended before the front-end hung up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An operation on the socket failed.
    #[error("vhost-user socket: {0}")]
    Socket(#[source] io::Error),
    /// The front-end sent a message that this back-end does not know.
    #[error("vhost-user message {0} is not known")]
    UnknownMessage(u32),
    /// The front-end sent a message that is not valid vhost-user.
    #[error(
        "vhost-user message {}: {error}{}",
        number.map_or("without a number".into(), |number| number.to_string()),
        remedy(*number)
    )]
    Message {
        /// The number of its request, if that could be read.
        number: Option<u32>,
        /// The fault of the message.
        #[source]
        error: MessageError,
    },
    /// The front-end's message was refused.
    #[error("front-end request refused: {0}")]
    Request(#[from] RequestError),
    /// A queue cannot be set up with the front-end's parameters.
    #[error("queue {index}: {error}")]
    Ring {
        /// Index of the queue.
        index: u16,
        /// The cause.
        #[source]
        error: RingError,
    },
    /// Memory that the front-end shares could not be accessed.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    /// A write to a call or error descriptor has held up an I/O thread.
    #[error("it has made a call or error descriptor block an I/O thread")]
    Blocked,
    /// No I/O thread took the queue.
    #[error("no I/O thread took queue {0}")]
    NotStarted(u16),
    /// The queue's requests did not finish in time.
    #[error("queue {0} was not drained in time")]
    NotDrained(u16),
    /// The queue stopped before the requests in its in-flight log were resubmitted.
    #[error(
        "queue {0} stops before the requests in its in-flight log were resubmitted: \
         they wait for a path or for the fence of an earlier daemon or front-end, or the queue is broken"
    )]
    NotResubmitted(u16),
}

/// The remedy for a message with this number that is not valid.
fn remedy(number: Option<u32>) -> &'static str {
    if number == Some(FrontendReq::SET_MEM_TABLE.into()) {
        "; the front-end shares no memory of its guest: give QEMU `-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine \
         memory-backend=mem`"
    } else {
        ""
    }
}

impl ServeError {
    /// The end of a connection on which this message failed.
    pub(crate) fn message(number: Option<u32>, error: MessageError) -> Self {
        match number {
            Some(number) if FrontendReq::try_from(number).is_err() => Self::UnknownMessage(number),
            _ => Self::Message { number, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_table_that_shares_nothing_is_explained() {
        let said = |number| ServeError::message(Some(number), MessageError::InvalidMessage).to_string();
        assert!(said(FrontendReq::SET_MEM_TABLE.into()).contains("share=on"));
        assert!(!said(FrontendReq::SET_FEATURES.into()).contains("share=on"));
    }
}
