//! The in-flight log: what is under way, in memory that the front-end keeps for us (QEMU `docs/interop/vhost-user.rst`,
//! "Inflight I/O tracking").
//!
//! A process that is killed leaves a queue with chains taken and not used, and nothing in the ring says which. The log does: the
//! front-end asks for it (`GET_INFLIGHT_FD`), hands it to whoever serves it next (`SET_INFLIGHT_FD`), and asks for a new one when
//! the guest was reset. A guest cannot reach it. A front-end can write anything there: it is as much outside input as a ring is.
//!
//! * [`InflightMemory`] – the whole, with one [`InflightArea`] a queue.
//! * [`SplitLog`] – the log of one split ring: what is stored in which order, and how a queue goes on from it.

mod split;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

pub(crate) use self::split::SplitLog;
use crate::memory::{GuestMemory, MemoryError, RegionLayout};

/// Alignment of each area, so that no two share a cache line.
const AREA_ALIGN: u64 = 64;

/// Why in-flight memory cannot be made or used.
#[derive(Debug, thiserror::Error)]
pub enum InflightMemoryError {
    /// More queues than the disk has, or larger ones.
    #[error(
        "in-flight memory for {num_queues} queues of {queue_size} entries, of a disk with {num_queues_max} of up to {queue_size_max}"
    )]
    Shape {
        /// Queues the front-end has in mind.
        num_queues: u16,
        /// Entries of each.
        queue_size: u16,
        /// Queues of the disk.
        num_queues_max: u16,
        /// Entries they may have.
        queue_size_max: u16,
    },
    /// It does not hold the areas it should.
    #[error("in-flight memory of {bytes} bytes, but {needed} are needed")]
    TooSmall {
        /// Its length, as the front-end says.
        bytes: u64,
        /// What the queues need.
        needed: u64,
    },
    /// No memory for it.
    #[error("cannot make in-flight memory: {0}")]
    Create(#[source] io::Error),
    /// The file cannot be mapped, or is shorter than the front-end says.
    #[error("cannot map in-flight memory: {0}")]
    Map(#[source] MemoryError),
}

/// What is wrong with the log of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflightError {
    /// There is in-flight memory, but not for this queue.
    #[error("in-flight memory for {num_queues} queues only")]
    NoArea {
        /// Queues it is for.
        num_queues: u16,
    },
    /// The area does not begin at a multiple of 8 bytes.
    #[error("in-flight area at a bad address")]
    Misaligned,
    /// The queue is larger than the area.
    #[error("in-flight area for {entries} entries, and a queue of {size}")]
    Size {
        /// Entries of the area.
        entries: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A log of a kind that is not known.
    #[error("in-flight log of version {version} with features {features:#x}")]
    Version {
        /// Its version.
        version: u16,
        /// Its feature bits.
        features: u64,
    },
    /// More was used since the log was last brought up to date than a queue can hold: log and ring do not belong together.
    #[error("in-flight log at used index {logged}, and the ring of {size} at {used}")]
    UsedIndex {
        /// What the log says.
        logged: u16,
        /// What the ring says.
        used: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A chain that cannot be.
    #[error("chain head {head} in the in-flight log of a queue of {size}")]
    Head {
        /// The head's index.
        head: u16,
        /// Entries of the queue.
        size: u16,
    },
}

/// How in-flight memory is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightShape {
    pub(crate) num_queues: u16,
    /// Entries of each queue, at most.
    pub(crate) queue_size: u16,
}

impl InflightShape {
    fn area_bytes(self) -> u64 {
        split::bytes(self.queue_size).next_multiple_of(AREA_ALIGN)
    }

    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.num_queues) * self.area_bytes()
    }

    /// Whether a disk whose queues are like `max` can have these.
    pub(crate) fn check(self, max: Self) -> Result<(), InflightMemoryError> {
        let Self { num_queues, queue_size } = self;
        if num_queues <= max.num_queues && queue_size <= max.queue_size {
            return Ok(());
        }
        let Self { num_queues: num_queues_max, queue_size: queue_size_max } = max;
        Err(InflightMemoryError::Shape { num_queues, queue_size, num_queues_max, queue_size_max })
    }

    /// Fresh memory, all zeros, for the front-end to keep.
    pub(crate) fn create(self) -> Result<File, InflightMemoryError> {
        self.make().map_err(InflightMemoryError::Create)
    }

    fn make(self) -> io::Result<File> {
        let file = memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, self.bytes())?;
        // Memory that becomes shorter kills whoever touches the rest.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    }
}

/// The memory that a front-end keeps for all queues of a disk.
#[derive(Clone, Debug)]
pub(crate) struct InflightMemory {
    memory: Arc<GuestMemory>,
    shape: InflightShape,
}

impl InflightMemory {
    /// Maps the `bytes` from `offset` on of a file that a front-end has handed over.
    pub(crate) fn map(shape: InflightShape, file: File, offset: u64, bytes: u64) -> Result<Self, InflightMemoryError> {
        let needed = shape.bytes();
        if bytes < needed {
            return Err(InflightMemoryError::TooSmall { bytes, needed });
        }
        // Not the guest's, but shared, bounded and kept mapped in the same way; its addresses are offsets here.
        let layout = RegionLayout { guest_start: 0, user_start: 0, bytes: needed, file_offset: offset };
        let memory = GuestMemory::default().with_region(layout, file).map_err(InflightMemoryError::Map)?;
        Ok(Self { memory: Arc::new(memory), shape })
    }

    /// The area of queue `index`.
    pub(crate) fn area(&self, index: u16) -> Result<InflightArea, InflightError> {
        let InflightShape { num_queues, queue_size } = self.shape;
        if index >= num_queues {
            return Err(InflightError::NoArea { num_queues });
        }
        let address = u64::from(index) * self.shape.area_bytes();
        Ok(InflightArea { memory: Arc::clone(&self.memory), address, queue_size })
    }
}

/// The part of in-flight memory that is for one queue.
#[derive(Clone, Debug)]
pub(crate) struct InflightArea {
    memory: Arc<GuestMemory>,
    address: u64,
    /// Entries it is for.
    queue_size: u16,
}
