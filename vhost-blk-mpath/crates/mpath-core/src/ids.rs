//! How paths, their associations and disks are named, and how many there may be.

use std::fmt;

/// Most paths a disk may have: sets of paths are kept as bits of a `u64`.
pub const MAX_PATHS: usize = 64;

/// A path of a group's disks, below [`MAX_PATHS`], the same in every [`crate::Group`] of them. The id of a path that was removed may
/// be given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathId(pub u16);

impl PathId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The set that holds just this path.
    pub(crate) fn bit(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an association on its path, growing with each reconnect, also over paths that have the same id one after the
/// other, the same in every [`crate::Group`] of the disk. A fence names the association it is about by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// Most disks that may share paths.
pub const MAX_DISKS: usize = 64;

/// A disk: its position among those that share paths, the same in every [`crate::Group`] of them. Below [`MAX_DISKS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId(pub u16);

impl DiskId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
