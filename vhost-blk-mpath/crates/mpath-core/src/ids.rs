//! Identifiers of paths, associations and disks, and their largest numbers.

use std::fmt;

/// The largest number of paths of a disk: sets of paths are bits of a `u64`.
pub const MAX_PATHS: usize = 64;

/// A path of a group's disks, below [`MAX_PATHS`]. The id is the same in every [`crate::Group`] of the disks. It is
/// free again after the path was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "api", derive(serde::Serialize, serde::Deserialize))]
pub struct PathId(pub u16);

impl PathId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The set of this path alone.
    pub(crate) fn bit(self) -> u64 {
        1 << self.0
    }
}

impl fmt::Display for PathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an association on its path, the same in every [`crate::Group`] of the disk. It grows with each
/// reconnect, also across paths that use the same id one after the other. A fence names its association by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u64);

/// The largest number of disks that share paths.
pub const MAX_DISKS: usize = 64;

/// A disk: its position among the disks that share paths, below [`MAX_DISKS`]. It is the same in every
/// [`crate::Group`] of the disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId(pub u16);

impl DiskId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
