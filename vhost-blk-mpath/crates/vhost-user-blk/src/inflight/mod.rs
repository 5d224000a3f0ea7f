//! The in-flight log: what is under way, in memory that the front-end keeps for us (QEMU `docs/interop/vhost-user.rst`,
//! "Inflight I/O tracking").
//!
//! A process that is killed leaves a queue with chains taken and not used, and nothing in the ring says which. The log does: the
//! front-end asks for it (`GET_INFLIGHT_FD`), hands it to whoever serves it next (`SET_INFLIGHT_FD`), and asks for a new one when
//! the guest was reset. A guest cannot reach it. A front-end can write anything there: it is as much outside input as a ring is.
//!
//! A front-end asks for it before it says how large the queues are, and may be wrong: QEMU 10.0.13 asks for as many entries as its
//! `queue-size` says, and gives every queue 1024. So the areas are for the largest queue that the disk accepts, whatever is asked for.
//! QEMU tells the size it has asked for again, and the bytes it was answered; what the areas are for follows from these.
//!
//! That deviates from the document, in which the size told is that of the areas: a back-end that goes by it finds the first area
//! only. An earlier daemon refuses that one, as a packed ring's log has more entries than were told, and a split ring's a feature
//! bit ([`split`]). libvhost-user looks at neither, and must not follow while requests are in flight.
//!
//! * [`InflightMemory`] – the whole, with one [`InflightArea`] a queue.
//! * [`SplitLog`] – the log of one split ring: what is stored in which order, and how a queue goes on from it.
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
    /// It was made for rings of the other format.
    #[error("in-flight memory for {} rings", if *packed { "packed" } else { "split" })]
    Format {
        /// What it was made for.
        packed: bool,
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
    /// A place in a packed ring that it has not.
    #[error("used index {index} in the in-flight log of a packed queue of {size}")]
    Place {
        /// What the log says.
        index: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// An entry of a packed ring's log that cannot be where it is.
    #[error("entry {entry} in the in-flight log of a packed queue, of {entries}, is nowhere, or twice")]
    Entry {
        /// The entry.
        entry: u16,
        /// Entries of the log.
        entries: u16,
    },
    /// More in flight than a packed ring holds.
    #[error("more than {size} descriptors in the in-flight log of a queue of {size}")]
    TooMany {
        /// Entries of the queue.
        size: u16,
    },
}

/// How in-flight memory is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflightShape {
    /// For packed rings.
    pub(crate) packed: bool,
    pub(crate) num_queues: u16,
    /// Entries of each queue, at most.
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

    /// The shape of memory of so many bytes of which a front-end tells this one. It is this one if the bytes fit it to the last:
    /// memory of a daemon that made it as asked. Else, what [`for_queues_of`](Self::for_queues_of) made for a disk that accepted no
    /// more than this one, `queue_size_max`: a power of two above 2 takes more bytes than any smaller size.
    fn with_bytes(self, bytes: u64, queue_size_max: u16) -> Self {
        if self.bytes() == bytes {
            return self;
        }
        let larger =
            (0..u16::BITS).map(|exp| 1 << exp).filter(|&size| size > self.queue_size && size <= queue_size_max);
        let mut larger = larger.map(|queue_size| Self { queue_size, ..self });
        // A front-end may map more than it needs.
        larger.find(|shape| shape.bytes() == bytes).unwrap_or(self)
    }

    /// The shape to make when a front-end asks for this one, of a disk that accepts queues of up to `queue_size_max` entries.
    pub(crate) fn for_queues_of(self, queue_size_max: u16) -> Self {
        Self { queue_size: queue_size_max, ..self }
    }

    /// Whether a disk whose queues are like `max` can have these.
    pub(crate) fn check(self, max: Self) -> Result<(), InflightMemoryError> {
        let Self { num_queues, queue_size, .. } = self;
        if num_queues <= max.num_queues && queue_size <= max.queue_size {
            return Ok(());
        }
        let Self { num_queues: num_queues_max, queue_size: queue_size_max, .. } = max;
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
    /// A front-end tells of fewer entries.
    larger_than_told: bool,
}

impl InflightMemory {
    /// Maps the `bytes` from `offset` on of a file that a front-end has handed over, and of which it tells that shape. The disk accepts
    /// queues of up to `queue_size_max` entries.
    pub(crate) fn map(
        told: InflightShape,
        queue_size_max: u16,
        file: File,
        offset: u64,
        bytes: u64,
    ) -> Result<Self, InflightMemoryError> {
        let shape = told.with_bytes(bytes, queue_size_max);
        let larger_than_told = shape != told;
        let needed = shape.bytes();
        if bytes < needed {
            return Err(InflightMemoryError::TooSmall { bytes, needed });
        }
        // Not the guest's, but shared, bounded and kept mapped in the same way; its addresses are offsets here.
        let layout = RegionLayout { guest_start: 0, user_start: 0, bytes: needed, file_offset: offset };
        let memory = GuestMemory::default().with_region(layout, file).map_err(InflightMemoryError::Map)?;
        Ok(Self { memory: Arc::new(memory), shape, larger_than_told })
    }

    /// What is to be said of it if any of it could not be accessed.
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

/// The part of in-flight memory that is for one queue.
#[derive(Clone, Debug)]
pub(crate) struct InflightArea {
    whole: InflightMemory,
    address: u64,
}

impl InflightArea {
    /// Whether it is for a ring of this format and size.
    fn check(&self, packed: bool, size: u16) -> Result<(), InflightError> {
        let shape = self.whole.shape;
        if packed != shape.packed {
            return Err(InflightError::Format { packed: shape.packed });
        }
        let entries = shape.queue_size;
        if size <= entries { Ok(()) } else { Err(InflightError::Size { entries, size }) }
    }

    /// What is to be said of memory that could not be accessed, if any.
    pub(crate) fn fault(&self) -> Option<MemoryFault> {
        self.whole.fault()
    }

    /// Whether there is any.
    pub(crate) fn has_faulted(&self) -> bool {
        self.whole.memory.has_faulted()
    }

    /// Whether the log of queue `index` in the same memory says that something is in flight, which it may do of what is used already.
    pub(crate) fn other_has_requests(&self, index: u16) -> bool {
        let has_requests = |area: Self| {
            if area.whole.shape.packed { packed::has_requests(&area) } else { split::has_requests(&area) }
        };
        // One that is misaligned nobody can go on from.
        self.whole.area(index).is_ok_and(|area| has_requests(area).unwrap_or(false))
    }
}
