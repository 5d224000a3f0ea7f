//! Requests as the core sees them: no addresses, no data, only what path selection and failover need.

use std::fmt;
use std::time::Duration;

use crate::{DiskId, MAX_DISKS, PathId};

/// Most bytes of an [`Action::Probe`].
pub const MAX_PROBE_BYTES: u32 = 256 << 10;

/// Most bytes of a read that is hedged.
pub const MAX_HEDGE_BYTES: u32 = 256 << 10;

/// The caller's name of a request: a small dense index, unique from `submit` to `Finish`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u32);

impl Tag {
    /// Requests that can have a tag at a time. 64 disks with 256 virtqueues of 32768 entries have fewer.
    pub const COUNT: u32 = Self::HEDGE_BIT - 1 - MAX_DISKS as u32;

    /// No request has this one: a driver may use it for [`Action::Probe`].
    pub const PROBE: Self = Self(u32::MAX);

    /// No request has this bit.
    const HEDGE_BIT: u32 = 1 << 31;

    /// No request and no hedge has this one: a driver may use it for the flush of [`crate::Group::begin_write_back`].
    #[must_use]
    pub const fn of_write_back(disk: DiskId) -> Self {
        Self(Self::PROBE.0 - 1 - disk.0 as u32)
    }

    /// The disk, if this is the tag of its write-back.
    #[must_use]
    pub const fn written_back(self) -> Option<DiskId> {
        let before = Self::PROBE.0 - self.0;
        if before == 0 || before > MAX_DISKS as u32 { None } else { Some(DiskId(before as u16 - 1)) }
    }

    /// What a driver may call the hedge of this read.
    #[must_use]
    pub const fn of_hedge(self) -> Self {
        Self(self.0 | Self::HEDGE_BIT)
    }

    /// The read, if this is the tag of its hedge.
    #[must_use]
    pub const fn hedged(self) -> Option<Self> {
        if self.0 & Self::HEDGE_BIT == 0 || self.0 == Self::PROBE.0 || self.written_back().is_some() {
            None
        } else {
            Some(Self(self.0 ^ Self::HEDGE_BIT))
        }
    }
}

/// A flow: one virtqueue of one disk, by a number that is small and its own among all disks of the group. Requests of a flow
/// bind to paths in the order of their submission.
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
    /// The class under which latencies are estimated and statistics are kept.
    #[must_use]
    pub const fn class(self) -> OpClass {
        match self {
            Self::Read => OpClass::Read,
            Self::Write => OpClass::Write,
            Self::Flush | Self::WriteZeroes | Self::Discard => OpClass::Other,
        }
    }

    /// Whether a late execution of this command could change data: the commands that the fencing rule is about.
    #[must_use]
    pub const fn is_mutating(self) -> bool {
        matches!(self, Self::Write | Self::WriteZeroes | Self::Discard)
    }
}

/// Operation class: reads and writes differ too much in latency to share an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Reads.
    Read,
    /// Writes with a payload.
    Write,
    /// Everything else.
    Other,
}

impl OpClass {
    /// Every class, in the order of [`OpClass::index`].
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    /// Position in arrays kept per class.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for OpClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        })
    }
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// The caller's name of it.
    pub tag: Tag,
    /// What it does.
    pub op: Op,
    /// Bytes it moves over the path (0 for flush, write zeroes and discard).
    pub bytes: u32,
    /// The disk it is for.
    pub disk: DiskId,
    /// The virtqueue it came from: one of that disk, always.
    pub flow: FlowId,
    /// Force unit access: durable once completed, so that it leaves no dirty state behind.
    pub fua: bool,
}

/// What the driver is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the request on this path; answer with one [`crate::Group::complete`]. A flush may be issued on several
    /// paths under the same tag, each of them to be answered.
    Issue {
        /// Where to send it.
        path: PathId,
        /// Which request.
        tag: Tag,
    },
    /// The path has gone silent, or a hedge was faster: answer the [`Action::Issue`] of this read or flush as soon as its memory can
    /// be given up, without waiting for the path, by [`Outcome::Recalled`], or by the outcome it has had meanwhile.
    Recall {
        /// Where it was sent.
        path: PathId,
        /// Which request.
        tag: Tag,
    },
    /// Send this read on this path too, into memory of the driver's own; answer with one [`crate::Group::hedged`], unless the path
    /// is lost before. The memory is needed until an [`Action::Adopt`] or [`Action::DropHedge`], one of which follows.
    Hedge {
        /// Where to send it.
        path: PathId,
        /// Which read: at most [`MAX_HEDGE_BYTES`].
        tag: Tag,
    },
    /// Nobody wants this hedge any more. If it has not been answered, and its path not been lost, take it back at once and answer
    /// with [`crate::Group::hedged`] and [`Outcome::Recalled`].
    DropHedge {
        /// Where it was sent.
        path: PathId,
        /// Which read.
        tag: Tag,
    },
    /// The hedge has the data, and no path has the read any more: move them to the read's memory.
    Adopt {
        /// Where the hedge was sent.
        path: PathId,
        /// Which read.
        tag: Tag,
    },
    /// Read about this many bytes of existing data by this path, whatever they are, and throw them away; answer with one
    /// [`crate::Group::probed`], unless the path is lost before. At most one a path is outstanding.
    Probe {
        /// The path to be measured.
        path: PathId,
        /// A disk that can be read there.
        disk: DiskId,
        /// How much: 512 to [`MAX_PROBE_BYTES`], a multiple of 512.
        bytes: u32,
    },
    /// The request is over; its tag is free again.
    Finish {
        /// Which request.
        tag: Tag,
        /// What the guest is told.
        result: Result<(), IoError>,
    },
}

/// How an issued request ended on its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Completed successfully.
    Success,
    /// A completion with a path-related status (status code type 3): the command was not executed, try another path.
    PathError,
    /// A completion that asks for a retry.
    Retry {
        /// Least delay before it (`CRDT[CRD] × 100 ms`); zero means at once.
        after: Duration,
    },
    /// A completion with a final error.
    Failed(IoError),
    /// Not sent, for nobody waits for it any more.
    GivenUp,
    /// Taken back after [`Action::Recall`]: whatever the path still does with it reaches neither its memory nor its tag.
    Recalled {
        /// It was sent. When the path has answered it, [`crate::Group::progress`] says so; until then it takes up room in the
        /// queue pair.
        abandoned: bool,
    },
    /// The association ended without a completion.
    Lost {
        /// The command may execute yet: it is mutating and a byte of it was handed to the socket.
        indeterminate: bool,
    },
}

/// The final error of a request, as far as a virtio-blk status can tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum IoError {
    /// Failed (`VIRTIO_BLK_S_IOERR`).
    #[error("I/O error")]
    Io,
    /// The namespace does not support it (`VIRTIO_BLK_S_UNSUPP`).
    #[error("operation not supported")]
    Unsupported,
}
