//! The device side of a virtqueue, split (virtio 1.2, 2.7) or packed (2.8).
//!
//! * [`split`] – available and used ring: indices, memory barriers, notification suppression.
//! * [`packed`] – the one ring of a packed virtqueue, with wrap counters in place of indices.
//! * [`mod@format`] – a ring of either format.
//! * [`chain`] – walks one descriptor chain, direct or indirect, into buffers.
//! * [`plain`] – reads the usual chain of a read or write without lists.
//! * [`queue`] – a queue that yields block requests and takes their completions.
//!
//! # Broken drivers
//!
//! The specification does not define the answer to a malformed chain. QEMU marks the whole device broken and waits for
//! a reset (`virtio_error`). Here the damage stays with the chain or the queue:
//! * A malformed chain with a status byte is answered with `VIRTIO_BLK_S_IOERR`. The status byte is the last writable
//!   byte of a chain that has an end. Chains have a status byte up to four times the length of those that are served.
//! * A chain without a status byte breaks the queue. It has no writable byte, no end, a link out of the table, an
//!   indirect table that is not valid, or a status outside memory. Returned without a status it would look like success
//!   to a driver that presets the byte. So it stays available, or in flight if it was in the in-flight log.
//! * Invalid ring indices break the queue: more chains available than the queue has entries, a head out of the table,
//!   or more chains taken than a driver can own. In a packed ring, a chain may run into descriptors that the driver does
//!   not own. This breaks the queue too, because the start of the next chain is unknown then.
//!
//! When a queue breaks, its error eventfd is signalled. No chain is taken until the front-end sets up the queue again.
//! Requests taken before are completed, and other queues continue.

mod chain;
mod format;
mod packed;
mod plain;
mod queue;
mod split;
#[cfg(test)]
mod tests;

pub use chain::ChainDefect;
pub(crate) use packed::START as PACKED_START;
pub(crate) use queue::QueueParts;
pub use queue::{Queue, RefusedRequests, Request};
pub use split::QueueError;
pub(crate) use split::RingLayout;

use crate::area::AreaError;
use crate::inflight::InflightError;

/// Why a ring cannot be set up.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RingError {
    /// A part of the ring is not at the front-end's address.
    #[error(transparent)]
    Area(#[from] AreaError),
    /// A split ring's size is not a power of two.
    #[error("a split ring of {size} entries is not possible: the size must be a power of two")]
    Size {
        /// Entries of the ring.
        size: u16,
    },
    /// The start position is not in the ring.
    #[error("position {position:#x} is not in a ring of {size} entries")]
    Position {
        /// The position, as vhost-user passes it.
        position: u32,
        /// Entries of the ring.
        size: u16,
    },
    /// A part of the ring or its log could not be accessed, so its contents are not known.
    #[error("the memory of the ring or its log cannot be accessed")]
    Memory,
    /// The in-flight log cannot be resumed.
    #[error(transparent)]
    Inflight(#[from] InflightError),
}
