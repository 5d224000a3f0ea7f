//! The virtqueue, split (virtio 1.2, 2.7) or packed (2.8), device side.
//!
//! * [`split`] – available and used ring: indices, memory barriers, notification suppression.
//! * [`packed`] – the same for the one ring of a packed virtqueue, with wrap counters in place of indices.
//! * [`format`] – one of the two.
//! * [`chain`] – walks one descriptor chain, direct or indirect, into buffers.
//! * [`queue`] – the whole: a queue that hands out block requests and takes their completions.
//!
//! # What a broken driver gets
//! The specification leaves the answer to a malformed chain open; QEMU marks the whole device broken and waits for a reset
//! (`virtio_error`). Here damage stays where it is:
//! * A malformed chain whose status byte can be found (the last writable byte of a chain that has an end) is answered
//!   `VIRTIO_BLK_S_IOERR`.
//! * One whose status cannot be found (no writable byte, an endless chain, a link out of the table, an indirect table that
//!   is not there) is returned with length 0, so that the driver gets its descriptors back.
//! * Ring indices that make no sense (more chains available than the queue has entries, a head out of the table, more chains
//!   taken than a driver can own) leave nothing to trust: the queue is broken, its error eventfd signalled, and no chain is
//!   taken any more until the front-end sets the queue up again. Other queues go on. So it is in a packed ring with a chain that
//!   does not end before descriptors that are not the driver's: where the next one starts cannot be known.

mod chain;
mod format;
mod packed;
mod queue;
mod split;
#[cfg(test)]
mod tests;

pub(crate) use packed::START as PACKED_START;
pub(crate) use queue::QueueParts;
pub use queue::{ChainToken, Queue, Request};
pub use split::QueueError;
pub(crate) use split::RingLayout;

use crate::area::AreaError;
use crate::inflight::InflightError;

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RingError {
    /// A part of the ring is not where the front-end says.
    #[error(transparent)]
    Area(#[from] AreaError),
    /// A size that a ring of this format cannot have.
    #[error("a split ring of {size} entries, which is not a power of two")]
    Size {
        /// Entries of the ring.
        size: u16,
    },
    /// A position to go on from that is not one.
    #[error("position {position:#x} in a ring of {size} entries")]
    Position {
        /// The position, as vhost-user passes it.
        position: u32,
        /// Entries of the ring.
        size: u16,
    },
    /// A part of the ring or its log could not be accessed, so what was read of it means nothing.
    #[error("the memory of the ring or its log cannot be accessed")]
    Memory,
    /// The log of what was in flight cannot be gone on with.
    #[error(transparent)]
    Inflight(#[from] InflightError),
}
