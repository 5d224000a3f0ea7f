//! The disks of a subsystem: which namespace each of them is, and how much of it guests see.

use mpath_core::{AnaState, DiskId, PathId};
use nvme_tcp::host::{ControllerInfo, IdentityMismatch, NamespaceError, NamespaceIdentity, NamespaceLimits};

/// Why a namespace cannot be used for a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is another one.
    #[error("does not lead to the namespace of the disk's other paths: {0}")]
    Mismatch(#[from] IdentityMismatch),
    /// It is smaller than what guests see, which is more than it was at first.
    #[error(
        "has {found} blocks, where the disk has grown to {shown}, and is used when its controller tells of these; if it was made smaller again, \
         guests do not see that: grow it back, or take the disk from its guest and remove and add it"
    )]
    NotGrown {
        /// Blocks that the controller tells of.
        found: u64,
        /// Blocks that guests see.
        shown: u64,
    },
    /// It is smaller than it ever was.
    #[error(
        "its namespace has shrunk to {found} blocks, and guests go on seeing {shown}: what they ask for goes over paths that have all of these, \
         or waits; grow it back to {shown} blocks, or take the disk from its guest and remove and add it"
    )]
    Shrunk {
        /// Blocks that the controller tells of.
        found: u64,
        /// Blocks that guests see.
        shown: u64,
    },
    /// It is smaller than its queue pairs know it, not than guests do.
    #[error("has {found} blocks, and had {before}, which guests have not seen; it is connected anew")]
    GrowthTakenBack {
        /// Blocks that the controller tells of.
        found: u64,
        /// Blocks that it told of before.
        before: u64,
    },
    /// It is not there, or cannot be used by anybody.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// Why a path is not let in for a disk.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError<E: std::error::Error> {
    /// The namespace is not the disk's, or not all of it.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// No path has led to the disk's namespace before, and this one cannot be a disk.
    #[error(transparent)]
    NoDisk(E),
}

impl<E: std::error::Error> AdmitError<E> {
    /// The path leads elsewhere, and another attempt would find the same.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unusable(Unusable::Mismatch(_)) | Self::NoDisk(_) => true,
            // A controller that has not heard yet how the namespace has grown will; and one that has shrunk may grow back.
            Self::Unusable(
                Unusable::NotGrown { .. }
                | Unusable::Shrunk { .. }
                | Unusable::GrowthTakenBack { .. }
                | Unusable::Namespace(_),
            ) => false,
        }
    }

    /// What is there is not what was there before, or is less of it.
    pub(crate) fn is_another(&self) -> bool {
        matches!(self, Self::Unusable(Unusable::Mismatch(_) | Unusable::NotGrown { .. } | Unusable::Shrunk { .. }))
    }
}

/// The namespace that a disk is, once a path has led to it.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// As it was then; it may have grown.
    pub namespace: NamespaceIdentity,
    /// The blocks that guests see.
    pub shown_blocks: u64,
}

impl Served {
    /// Whether `found` is this namespace, with all the blocks that guests see.
    ///
    /// # Errors
    /// How it differs.
    pub fn check(&self, found: &NamespaceIdentity) -> Result<(), Unusable> {
        match self.namespace.check_same(found) {
            // That is no other one.
            Ok(()) | Err(IdentityMismatch::Blocks(..)) => self.check_size(found.blocks),
            Err(mismatch) => Err(mismatch.into()),
        }
    }

    /// Whether a path on which the namespace has `found` blocks has all that guests see. A disk never shrinks.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_size(&self, found: u64) -> Result<(), Unusable> {
        let shown = self.shown_blocks;
        if found >= shown {
            Ok(())
        } else if found < self.namespace.blocks {
            Err(Unusable::Shrunk { found, shown })
        } else {
            Err(Unusable::NotGrown { found, shown })
        }
    }
}

impl Served {
    /// The blocks that guests may be shown, if these are more than they see. `sizes`: the blocks of the namespace by each path that leads
    /// to it. The controllers of a subsystem tell of a namespace that has grown each in its own time, and one that does not know of it
    /// yet fails requests for what is new. So all of them have to agree.
    ///
    /// The queue pairs have to know the size before guests do: the driver sees to that, asks again, and takes the smaller answer.
    #[must_use]
    pub fn growth(&self, sizes: impl Iterator<Item = u64>) -> Option<u64> {
        sizes.min().filter(|blocks| *blocks > self.shown_blocks)
    }
}

/// Whether a path that is about to be live has all that guests see of each disk it can be used for.
///
/// # Errors
/// The disk that has grown meanwhile, and what is missing.
pub fn check_sizes(namespaces: &[News], served: impl Fn(DiskId) -> Option<Served>) -> Result<(), (DiskId, Unusable)> {
    namespaces.iter().filter(|news| news.unusable.is_none()).try_for_each(|news| {
        let checked = served(news.disk).map_or(Ok(()), |served| served.check_size(news.blocks));
        checked.map_err(|error| (news.disk, error))
    })
}

/// What has become of a disk's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Which disk's.
    pub disk: DiskId,
    /// Its ANA state; `persistent-loss` too if it cannot be used.
    pub state: AnaState,
    /// Why it cannot be used.
    pub unusable: Option<String>,
    /// Its size, 0 if it cannot be used.
    pub blocks: u64,
    /// It can be used from now on, or has grown: what a queue pair has to know, if it does not.
    pub added: Option<NamespaceLimits>,
    /// It is not the same as before. If it is, the controller has said so again, and errors before that tell nothing any more.
    pub changed: bool,
}

/// By disk, whether a path may be used for it.
pub type Admitted<E> = Vec<Result<(), AdmitError<E>>>;

/// The disks that have their paths in common, as a path sees them. The daemon keeps them.
pub trait Disks {
    /// Why a namespace cannot be a disk, or a path not be used.
    type Error: std::error::Error;

    /// What messages call a disk.
    fn name(&self, disk: DiskId) -> String;

    /// The namespace of a disk; `None` before a path has led to it.
    fn served(&self, disk: DiskId) -> Option<Served>;

    /// Lets a path in for each disk if it leads to the disk's namespace. The first path of a disk decides which that is.
    ///
    /// # Errors
    /// By disk: why the path cannot be used for it. Of all of them: what the host lacks.
    fn admit(&mut self, info: &ControllerInfo) -> Result<Admitted<Self::Error>, Self::Error>;

    /// A path is about to be live: from now on no disk grows beyond what its controller knows.
    ///
    /// # Errors
    /// The disk that has done so already.
    fn path_up(&mut self, path: PathId, namespaces: Vec<News>) -> Result<(), (DiskId, Unusable)>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::namespace;

    #[test]
    fn a_disk_grows_as_far_as_all_paths_agree() {
        let served = Served { namespace: namespace(), shown_blocks: 100 };
        let growth = |sizes: &[u64]| served.growth(sizes.iter().copied());
        assert_eq!(growth(&[]), None);
        assert_eq!(growth(&[200, 100, 300]), None);
        assert_eq!(growth(&[200, 150]), Some(150));
    }
}
