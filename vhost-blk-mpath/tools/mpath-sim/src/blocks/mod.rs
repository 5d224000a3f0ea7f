//! Blocks of disks, the operations on them, and the request that gave each block its content.

pub(crate) mod pattern;

/// A block of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The disk.
    pub disk: usize,
    /// Its address on the disk.
    pub lba: u64,
}

/// The writer of a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// No request: the block is zero.
    Initial,
    /// The request of this number.
    Request(u64),
}

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write { fua: bool },
    WriteZeroes { fua: bool },
    Discard,
    Flush,
}

impl Operation {
    /// Whether it leaves zeroes.
    pub(crate) fn is_zeroing(self) -> bool {
        matches!(self, Self::WriteZeroes { .. } | Self::Discard)
    }

    pub(crate) fn is_fua(self) -> bool {
        matches!(self, Self::Write { fua: true } | Self::WriteZeroes { fua: true })
    }

    pub(crate) fn changes_data(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// The changes of a block that a crash of a node took.
#[derive(Debug)]
pub(crate) struct Loss {
    pub(crate) lba: u64,
    /// The origins that are gone.
    pub(crate) gone: Vec<Origin>,
    /// The origins that are left, the visible one last.
    pub(crate) left: Vec<Origin>,
    /// The visible content changed.
    pub(crate) visible: bool,
}
