//! Requests as the core sees them, without addresses and data, and the actions and outcomes of the driver.

use monotonic::Duration;

use crate::{DiskId, MAX_DISKS, PathId, words};

/// The largest [`Action::Probe`], in bytes.
pub const MAX_PROBE_BYTES: u32 = 256 << 10;

/// The largest read that is hedged, in bytes.
pub const MAX_HEDGE_BYTES: u32 = 256 << 10;

/// The caller's number of a request: a small dense index, unique from `submit` to `Finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

impl Tag {
    /// The largest number of requests with tags. 64 disks with 256 virtqueues of 32768 entries have fewer.
    pub const COUNT: u32 = Self::HEDGE_BIT - 1 - MAX_DISKS as u32;

    /// A tag for [`Action::Probe`] in the driver. No request has it.
    pub const PROBE: Self = Self(u32::MAX);

    /// The bit that marks the tag of a hedge. No request has it.
    const HEDGE_BIT: u32 = 1 << 31;

    /// A tag for the flush of [`crate::Group::begin_daemon_flush`] in the driver. No request and no hedge has it.
    #[must_use]
    pub const fn of_daemon_flush(disk: DiskId) -> Self {
        Self(Self::PROBE.0 - 1 - disk.0 as u32)
    }

    /// The disk, if this is the tag of its daemon flush.
    #[must_use]
    pub const fn daemon_flushed(self) -> Option<DiskId> {
        let before = Self::PROBE.0 - self.0;
        if before == 0 || before > MAX_DISKS as u32 { None } else { Some(DiskId(before as u16 - 1)) }
    }

    /// A tag for the hedge of this read in the driver.
    #[must_use]
    pub const fn of_hedge(self) -> Self {
        Self(self.0 | Self::HEDGE_BIT)
    }

    /// The read, if this is the tag of its hedge.
    #[must_use]
    pub const fn hedged(self) -> Option<Self> {
        if self.0 & Self::HEDGE_BIT == 0 || self.0 == Self::PROBE.0 || self.daemon_flushed().is_some() {
            None
        } else {
            Some(Self(self.0 ^ Self::HEDGE_BIT))
        }
    }
}

/// A flow: one virtqueue of one disk, by a small number that is unique among all disks of the group. Requests of a
/// flow are bound to paths in the order of their submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u16);

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Make completed writes durable.
    Flush,
    /// Write zeroes without a payload.
    WriteZeroes,
    /// Deallocate (NVMe Dataset Management).
    Discard,
}

impl Op {
    /// Every operation, in the order of [`Op::index`].
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::WriteZeroes, Self::Discard];

    /// Position in arrays kept per operation.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The class under which latencies are estimated and statistics are kept.
    #[must_use]
    #[inline]
    pub const fn class(self) -> OpClass {
        const CLASSES: [OpClass; Op::ALL.len()] =
            [OpClass::Read, OpClass::Write, OpClass::Other, OpClass::Other, OpClass::Other];
        CLASSES[self.index()]
    }

    /// Whether a late execution of this command could change data. The fence is about these commands.
    #[must_use]
    pub const fn is_mutating(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Discard)
    }
}

words! {
    /// Operation class. Reads and writes differ too much in latency to share an estimate.
    OpClass as "InjectedClass", "class", {
        /// Reads.
        Read = "read",
        /// Writes with a payload.
        Write = "write",
        /// Everything else.
        Other = "other",
    }
}

impl OpClass {
    /// Position in arrays kept per class, and in [`OpClass::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The caller's tag of the request.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// Bytes that move over the path: 0 for flush, write zeroes and discard.
    pub bytes: u32,
    /// The disk that the request is for.
    pub disk: DiskId,
    /// The virtqueue that the request came from, always one of that disk.
    pub flow: FlowId,
    /// Force unit access: the write is durable once completed, so it needs no flush.
    pub fua: bool,
}

/// The next thing that the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the request on this path. Answer with one [`crate::Group::complete`]. A flush may be issued on several
    /// paths under one tag; answer each of them.
    Issue {
        /// Where to send it.
        path: PathId,
        /// Which request.
        tag: Tag,
    },
    /// Give up this read or flush early: the path is suspect, or a hedge was faster. Answer the [`Action::Issue`] as
    /// soon as nothing uses its memory, without waiting for the path. Answer with [`Outcome::Recalled`], or with the
    /// outcome that has arrived meanwhile.
    Recall {
        /// Where it was sent.
        path: PathId,
        /// Which request.
        tag: Tag,
    },
    /// Send this read on this path too, into memory of the driver. Answer with one [`crate::Group::hedged`], unless
    /// the path is lost before. Keep the memory until [`Action::Adopt`] or [`Action::DropHedge`]; one of them
    /// follows.
    Hedge {
        /// Where to send it.
        path: PathId,
        /// The read: at most [`MAX_HEDGE_BYTES`].
        tag: Tag,
    },
    /// Drop this hedge. If it has not been answered and its path has not been lost, take it back at once. Then answer
    /// with [`crate::Group::hedged`] and [`Outcome::Recalled`].
    DropHedge {
        /// Where it was sent.
        path: PathId,
        /// Which read.
        tag: Tag,
    },
    /// Move the data of the hedge to the memory of the read. No path uses that memory at this time.
    Adopt {
        /// Where the hedge was sent.
        path: PathId,
        /// Which read.
        tag: Tag,
    },
    /// Read about this many bytes of existing data over this path, and discard them. Answer with one
    /// [`crate::Group::probed`], unless the path is lost before. A path has at most one probe at a time.
    Probe {
        /// The path to measure.
        path: PathId,
        /// A disk that can be read over this path.
        disk: DiskId,
        /// The size: 512 to [`MAX_PROBE_BYTES`], a multiple of 512.
        bytes: u32,
    },
    /// The request is over. Its tag is free again.
    Finish {
        /// Which request.
        tag: Tag,
        /// The result for the guest.
        result: Result<(), IoError>,
    },
}

/// How an issued request ended on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completed successfully.
    Success,
    /// A completion with a status that speaks of the path. The controller did not execute the command; another path may.
    PathError,
    /// A completion after which the command is repeated.
    Retry {
        /// The least delay before the retry (`CRDT[CRD] × 100 ms`); zero means at once.
        after: Duration,
        /// Why the command failed.
        cause: RetryCause,
    },
    /// A completion with a final error.
    Failed(IoError),
    /// Not sent, because the request was given up.
    GivenUp,
    /// Taken back after [`Action::Recall`]. A late answer of the path reaches neither the memory nor the tag of the
    /// request.
    Recalled {
        /// The command was sent. Until the path answers, it takes up room in the queue pair.
        /// [`crate::Group::progress`] reports the answer.
        abandoned: bool,
    },
    /// The association ended without a completion.
    Lost {
        /// The command is in doubt: it changes data, and at least one byte of it was passed to the socket.
        indeterminate: bool,
    },
}

/// Why a command failed that is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryCause {
    /// The controller did not execute the command.
    NotExecuted,
    /// The controller failed. If the command was a flush, data of its cache may be lost.
    Internal,
    /// The medium failed. If the command was a flush, data of the cache may be lost.
    Medium,
}

impl Outcome {
    /// Whether a flush that ends so may have lost data of the cache. The data may be gone although a later flush succeeds.
    pub(crate) fn may_lose_cache(self) -> bool {
        match self {
            Self::Retry { cause, .. } => cause != RetryCause::NotExecuted,
            Self::Failed(error) => error != IoError::Unsupported,
            Self::Success | Self::PathError | Self::GivenUp | Self::Recalled { .. } | Self::Lost { .. } => false,
        }
    }
}

impl RetryCause {
    /// The error of a request that is out of retries.
    pub(crate) fn error(self) -> IoError {
        if self == Self::Medium { IoError::Medium } else { IoError::Attempts }
    }
}

/// Why a request failed for good. Guests see `VIRTIO_BLK_S_UNSUPP` for [`IoError::Unsupported`], and
/// `VIRTIO_BLK_S_IOERR` for all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IoError {
    /// The controller reported an error of the medium.
    #[error("the medium reported an error")]
    Medium,
    /// The controller failed the command for another reason.
    #[error("the controller failed the command")]
    Controller,
    /// The namespace or the disk does not support the operation.
    #[error("the operation is not supported")]
    Unsupported,
    /// The request has used up its retries or failovers.
    #[error("every attempt failed")]
    Attempts,
    /// No path was usable for the time that requests wait, or none can come back.
    #[error("no path was live for fast-io-fail-tmo, none can come back, or a flush has waited 30 s for a path")]
    NoPath,
    /// A flush reports that unflushed writes were lost.
    #[error("unflushed writes were lost")]
    LostWrites,
    /// The virtqueue had to stop before the request was done. No guest gets an answer.
    #[error("the virtqueue had to stop")]
    GivenUp,
    /// The guest's request is malformed: beyond the disk's end, on a read-only disk, or no request at all. An invalid
    /// ring counts as a malformed request.
    #[error("the request or its virtqueue is malformed")]
    Malformed,
}

impl IoError {
    /// Every error, in the order of [`IoError::index`].
    pub const ALL: [Self; 8] = [
        Self::Medium,
        Self::Controller,
        Self::Unsupported,
        Self::Attempts,
        Self::NoPath,
        Self::LostWrites,
        Self::GivenUp,
        Self::Malformed,
    ];

    /// Position in arrays kept per error.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
