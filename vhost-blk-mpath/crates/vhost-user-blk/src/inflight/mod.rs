//! The in-flight log: requests under way, recorded in memory that the front-end keeps (QEMU
//! `docs/interop/vhost-user.rst`, "Inflight I/O tracking").
//!
//! A killed process leaves chains that are taken and not used, and the ring does not say which. The log does. The
//! front-end gets the memory with `GET_INFLIGHT_FD` and passes it to the next back-end with `SET_INFLIGHT_FD`. It asks
//! for a new one when the guest was reset. The guest cannot reach the log. The front-end can write anything there, so
//! it is checked like a ring.
//!
//! A front-end asks for the log before it sets the queue sizes, and may ask for too few entries. QEMU 10.0.13 asks for
//! its `queue-size`, and gives every queue 1024 entries. So the areas are made for the largest queue that the disk
//! accepts. QEMU later passes the queue size that it asked for, and the length that it got as an answer. The size of
//! the areas follows from these.
//!
//! This deviates from the vhost-user document, where the size of the areas is the queue size passed. A back-end that
//! relies on it finds only the first area. An earlier daemon refuses that area: a packed ring's log has more entries
//! than expected, and a split ring's log has a feature bit ([`split`]). The library libvhost-user checks neither, so it must
//! not take over while requests are in flight.
//!
//! * [`InflightMemory`] – the memory, with one [`InflightArea`] per queue.
//! * [`SplitLog`] – the log of a split ring: the order of its stores, and how the next queue continues from it.
//! * [`PackedLog`] – the same for a packed ring.

mod packed;
mod split;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

pub(crate) use self::packed::PackedLog;
pub(crate) use self::split::SplitLog;
use crate::memory::{GuestMemory, MemoryError, MemoryFault, RegionLayout, SharedMemory};

/// Alignment of each area, so that two areas share no cache line.
const AREA_ALIGN: u64 = 64;

/// Why in-flight memory cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum InflightMemoryError {
    /// The front-end asks for more or larger queues than the disk has.
    #[error(
        "in-flight memory for {num_queues} queues of {queue_size} entries does not fit the disk: \
         it has at most {num_queues_max} queues of {queue_size_max} entries"
    )]
    Shape {
        /// Queues in the front-end's message.
        num_queues: u16,
        /// Entries of each queue.
        queue_size: u16,
        /// Queues of the disk.
        num_queues_max: u16,
        /// Most entries of a queue of the disk.
        queue_size_max: u16,
    },
    /// The memory is too short for its areas.
    #[error("in-flight memory has {bytes} bytes, but its queues need {needed}")]
    TooSmall {
        /// Length in the front-end's message.
        bytes: u64,
        /// Length that the queues need.
        needed: u64,
    },
    /// The host has no memory for it.
    #[error("cannot create in-flight memory: {0}")]
    Create(#[source] io::Error),
    /// The file cannot be mapped, or is shorter than the front-end says.
    #[error("cannot map in-flight memory: {0}")]
    Map(#[source] MemoryError),
}

/// The fault in the in-flight log of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InflightError {
    /// The in-flight memory has no area for this queue.
    #[error("the in-flight memory has areas for {num_queues} queues only")]
    NoArea {
        /// Queues that it has areas for.
        num_queues: u16,
    },
    /// The log is for rings of the other format.
    #[error("the in-flight memory is for {} rings", if *packed { "packed" } else { "split" })]
    Format {
        /// The format of its rings.
        packed: bool,
    },
    /// The area does not start at a multiple of 8 bytes.
    #[error("the in-flight area does not start at a multiple of 8 bytes")]
    Misaligned,
    /// The queue does not fit the area.
    #[error("the in-flight area has {entries} entries, which does not fit a queue of {size}")]
    Size {
        /// Entries of the area.
        entries: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// The log has an unknown version or features.
    #[error("the in-flight log has unknown version {version} or features {features:#x}")]
    Version {
        /// Its version.
        version: u16,
        /// Its feature bits.
        features: u64,
    },
    /// The ring's used index is too far ahead of the log: they do not belong together.
    #[error("the in-flight log is at used index {logged}, but the ring of {size} entries is at {used}")]
    UsedIndex {
        /// Used index in the log.
        logged: u16,
        /// Used index in the ring.
        used: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A chain starts outside the descriptor table.
    #[error("the in-flight log names chain head {head}, but the queue has {size} entries")]
    Head {
        /// Index of the head.
        head: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// A used index lies outside the packed ring.
    #[error("the in-flight log of a packed queue of {size} entries has used index {index}")]
    Place {
        /// Used index in the log.
        index: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// An entry of a packed ring's log is in no list, or in two.
    #[error("entry {entry} of {entries} in the in-flight log of a packed queue is in no list, or in two")]
    Entry {
        /// Index of the entry.
        entry: u16,
        /// Entries of the log.
        entries: u16,
    },
    /// The log has more descriptors in flight than the packed ring has.
    #[error("the in-flight log has more descriptors in flight than its queue of {size} entries")]
    TooMany {
        /// Entries of the queue.
        size: u16,
    },
}

/// The layout of in-flight memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightShape {
    /// Whether the rings are packed.
    pub(crate) packed: bool,
    pub(crate) num_queues: u16,
    /// Entries of each area.
    pub(crate) queue_size: u16,
}

impl InflightShape {
    fn area_bytes(self) -> u64 {
        let bytes = if self.packed { packed::bytes(self.queue_size) } else { split::bytes(self.queue_size) };
        bytes.next_multiple_of(AREA_ALIGN)
    }

    pub(crate) fn bytes(self) -> u64 {
        u64::from(self.num_queues) * self.area_bytes()
    }

    /// The actual shape of memory of length `bytes`, for which a front-end passes this shape. It is this shape if the
    /// length matches exactly: a daemon created it as asked. Otherwise it is a shape that
    /// [`enlarged_for`](Self::enlarged_for) made for a disk with queues of at most `queue_size_max`. The length is
    /// unambiguous: a power of two above 2 needs more bytes than any smaller size.
    fn matching_bytes(self, bytes: u64, queue_size_max: u16) -> Self {
        if self.bytes() == bytes {
            return self;
        }
        let larger =
            (0..u16::BITS).map(|exp| 1 << exp).filter(|&size| size > self.queue_size && size <= queue_size_max);
        let mut larger = larger.map(|queue_size| Self { queue_size, ..self });
        // A front-end may map more than it needs.
        larger.find(|shape| shape.bytes() == bytes).unwrap_or(self)
    }

    /// The shape to create when a front-end asks for this one, on a disk with queues of at most `queue_size_max`
    /// entries.
    pub(crate) fn enlarged_for(self, queue_size_max: u16) -> Self {
        Self { queue_size: queue_size_max, ..self }
    }

    /// Checks that a disk with queues of shape `max` can have these.
    pub(crate) fn check(self, max: Self) -> Result<(), InflightMemoryError> {
        let Self { num_queues, queue_size, .. } = self;
        if num_queues <= max.num_queues && queue_size <= max.queue_size {
            return Ok(());
        }
        let Self { num_queues: num_queues_max, queue_size: queue_size_max, .. } = max;
        Err(InflightMemoryError::Shape { num_queues, queue_size, num_queues_max, queue_size_max })
    }

    /// Creates memory of zeroes for the front-end to keep.
    pub(crate) fn create(self) -> Result<File, InflightMemoryError> {
        self.make().map_err(InflightMemoryError::Create)
    }

    fn make(self) -> io::Result<File> {
        let file = memfd_create("vhost-inflight", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, self.bytes())?;
        // An access beyond a shortened file would raise SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file.into())
    }
}

/// The in-flight memory of all queues of a disk, which the front-end keeps.
#[derive(Clone, Debug)]
pub(crate) struct InflightMemory {
    memory: Arc<GuestMemory>,
    shape: InflightShape,
    /// Whether the areas are larger than the front-end's queue size makes them.
    is_enlarged: bool,
}

impl InflightMemory {
    /// Maps `bytes` at `offset` of the front-end's file. `told` is the shape in the front-end's message. The disk
    /// accepts queues of up to `queue_size_max` entries.
    pub(crate) fn map(
        told: InflightShape,
        queue_size_max: u16,
        file: File,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, InflightMemoryError> {
        let shape = told.matching_bytes(bytes, queue_size_max);
        let is_enlarged = shape != told;
        let needed = shape.bytes();
        if bytes < needed {
            return Err(InflightMemoryError::TooSmall { bytes, needed });
        }
        // Not guest memory, but shared, bounded and kept mapped in the same way. Its addresses are offsets.
        let layout = RegionLayout { guest_start: 0, user_start: 0, bytes: needed, file_offset: offset };
        let memory = GuestMemory::default().with_region(layout, file).map_err(InflightMemoryError::Map)?;
        Ok(Self { memory: Arc::new(memory), shape, is_enlarged })
    }

    /// The first fault of the memory, if there was one.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        self.memory.fault(SharedMemory::Inflight)
    }

    /// The area of queue `index`.
    pub(crate) fn area(&self, index: u16) -> Result<InflightArea, InflightError> {
        let num_queues = self.shape.num_queues;
        if index >= num_queues {
            return Err(InflightError::NoArea { num_queues });
        }
        let address = u64::from(index) * self.shape.area_bytes();
        Ok(InflightArea { whole: self.clone(), address })
    }
}

/// The part of in-flight memory for one queue.
#[derive(Clone, Debug)]
pub(crate) struct InflightArea {
    whole: InflightMemory,
    address: u64,
}

impl InflightArea {
    /// Checks that the area fits a ring of this format and size.
    fn check(&self, packed: bool, size: u16) -> Result<(), InflightError> {
        let shape = self.whole.shape;
        if packed != shape.packed {
            return Err(InflightError::Format { packed: shape.packed });
        }
        let entries = shape.queue_size;
        if size <= entries { Ok(()) } else { Err(InflightError::Size { entries, size }) }
    }

    /// The first fault of the memory, if there was one.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        self.whole.fault()
    }

    /// Whether an access to the memory has failed.
    pub(crate) fn has_faulted(&self) -> bool {
        self.whole.memory.has_faulted()
    }

    /// Whether the log of queue `index` in the same memory has requests in flight. They may include requests that are
    /// already used.
    pub(crate) fn other_area_has_requests(&self, index: u16) -> bool {
        let has_requests = |area: Self| {
            if area.whole.shape.packed { packed::has_requests(&area) } else { split::has_requests(&area) }
        };
        // A misaligned area cannot be resumed, so it counts as empty.
        self.whole.area(index).is_ok_and(|area| has_requests(area).unwrap_or(false))
    }
}
