//! The split virtqueue (virtio 1.2, 2.7), device side.
//!
//! * [`area`] – parts of the ring, and of the in-flight log, in shared memory; the only place that follows ring pointers.
//! * [`split`] – available and used ring: indices, memory barriers, notification suppression.
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
//!   taken any more until the front-end sets the queue up again. Other queues go on.

mod area;
mod chain;
mod queue;
mod split;
#[cfg(test)]
mod tests;

pub(crate) use area::Area;
pub(crate) use queue::QueueParts;
pub use queue::{BlkStatus, ChainToken, Queue, Request};
pub use split::QueueError;
pub(crate) use split::RingLayout;

use crate::inflight::InflightError;

/// Why a ring could not be set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RingError {
    /// A part of the ring is not, or not wholly, in one memory region.
    #[error("ring area of {bytes} bytes at front-end address {address:#x} is not in one memory region")]
    Unmapped {
        /// Front-end address of the part.
        address: u64,
        /// Its length.
        bytes: u64,
    },
    /// A part of the ring has not the alignment that virtio 1.2, 2.7 demands.
    #[error("ring area at front-end address {address:#x} is misaligned")]
    Misaligned {
        /// Front-end address of the part.
        address: u64,
    },
    /// The log of what was in flight cannot be gone on with.
    #[error(transparent)]
    Inflight(#[from] InflightError),
}
