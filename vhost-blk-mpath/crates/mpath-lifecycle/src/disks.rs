//! Decides: a path leads to another namespace and is refused, for good or to be tried again (`ServedNamespace`, `is_refusal`).
//!
//! The disks of a subsystem: their namespaces, and the sizes that guests see.

use std::fmt;

use monotonic::Instant;
use mpath_core::{AnaState, DiskId, Epoch, PathId, UnflushedPaths};
use nvme_tcp::host::{ControllerInfo, IdentityMismatch, NamespaceError, NamespaceIdentity, NamespaceLimits};

/// Why a namespace cannot be used for a disk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is another namespace, or cannot be told from another.
    #[error("the path {leads} to another namespace than the disk's other paths: {0}", leads = leads(.0))]
    Mismatch(#[from] IdentityMismatch),
    /// It is smaller than what guests see, after the disk has grown.
    #[error(
        "the namespace has {found} on this path, and the disk has grown to {shown}; the path is used once its controller reports this size; if \
         the namespace was made smaller again, grow it back, or detach the disk from its guest, remove it and add it again"
    )]
    NotGrown {
        /// The size that the controller reports.
        found: Size,
        /// The size that guests see.
        shown: Size,
    },
    /// It is smaller than when the daemon first saw it.
    #[error(
        "the namespace has shrunk to {found}, and guests still see {shown}; their requests use paths with all blocks, or wait; grow it back \
         to {shown}, or detach the disk from its guest, remove it and add it again"
    )]
    Shrunk {
        /// The size that the controller reports.
        found: Size,
        /// The size that guests see.
        shown: Size,
    },
    /// It is smaller than its queue pairs know, though not smaller than what guests see.
    #[error("the namespace has {found}, and had {before}, which guests have not seen; the path reconnects")]
    GrowthTakenBack {
        /// The size that the controller reports.
        found: Size,
        /// The size that it reported before.
        before: Size,
    },
    /// It does not exist, or no host can use it.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

/// A size of a namespace, in blocks for the target's tools and in bytes for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// The number of blocks.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
}

impl Size {
    /// The size that a controller reports for a namespace.
    #[must_use]
    pub fn of(namespace: &NamespaceIdentity) -> Self {
        Self { blocks: namespace.blocks, block_bytes: namespace.block_bytes }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = u128::from(self.blocks) * u128::from(self.block_bytes);
        write!(f, "{} blocks ({bytes} bytes)", self.blocks)
    }
}

fn leads(mismatch: &IdentityMismatch) -> &'static str {
    if mismatch.may_pass() { "may lead" } else { "leads" }
}

/// Why a path is not admitted for a disk.
#[derive(Debug, thiserror::Error)]
pub enum AdmitError<E: std::error::Error> {
    /// The namespace is not the disk's, or lacks some of its blocks.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// No path has led to the disk's namespace yet, and this namespace cannot be a disk.
    #[error(transparent)]
    NoDisk(E),
}

impl<E: std::error::Error> AdmitError<E> {
    /// Whether the path leads elsewhere. Another attempt would then fail the same way.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Unusable(Unusable::Mismatch(mismatch)) => !mismatch.may_pass(),
            Self::NoDisk(_) => true,
            // A controller that has not yet noticed growth will notice it. A namespace that has shrunk may grow back.
            Self::Unusable(
                Unusable::NotGrown { .. }
                | Unusable::Shrunk { .. }
                | Unusable::GrowthTakenBack { .. }
                | Unusable::Namespace(_),
            ) => false,
        }
    }

    /// Whether the namespace on the path is not the one of the disk, may be another, or lacks blocks that guests see.
    pub(crate) fn is_another(&self) -> bool {
        matches!(self, Self::Unusable(Unusable::Mismatch(_) | Unusable::NotGrown { .. } | Unusable::Shrunk { .. }))
    }
}

/// The namespace of a disk, as the first path found it.
#[derive(Debug, Clone, Copy)]
pub struct ServedNamespace {
    /// The namespace at that time. It may have grown since.
    pub namespace: NamespaceIdentity,
    /// The size that guests see, in blocks.
    pub shown_blocks: u64,
}

impl ServedNamespace {
    /// Checks that `found` is this namespace and has all the blocks that guests see.
    ///
    /// # Errors
    /// The difference.
    pub fn check(&self, found: &NamespaceIdentity) -> Result<(), Unusable> {
        match self.namespace.check_same(found) {
            // A different size alone does not make it another namespace.
            Ok(()) | Err(IdentityMismatch::Blocks(..)) => self.check_size(found.blocks),
            Err(mismatch) => Err(mismatch.into()),
        }
    }

    /// Checks that a namespace of `found` blocks has all the blocks that guests see. A disk never shrinks.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_size(&self, found: u64) -> Result<(), Unusable> {
        if found >= self.shown_blocks {
            return Ok(());
        }
        let has_shrunk = found < self.namespace.blocks;
        let size = |blocks| Size { blocks, block_bytes: self.namespace.block_bytes };
        let (found, shown) = (size(found), size(self.shown_blocks));
        Err(if has_shrunk { Unusable::Shrunk { found, shown } } else { Unusable::NotGrown { found, shown } })
    }
}

/// A change of a disk's namespace on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceUpdate {
    /// The disk.
    pub disk: DiskId,
    /// Its ANA state; `persistent-loss` if the namespace cannot be used.
    pub state: AnaState,
    /// Why the namespace cannot be used.
    pub unusable: Option<String>,
    /// Its size in blocks; 0 if it cannot be used.
    pub blocks: u64,
    /// The limits of a namespace that has become usable or has grown, for the queue pairs.
    pub added: Option<NamespaceLimits>,
    /// The state differs from before. If false, the controller has reported the same state again, and earlier ANA
    /// errors count no more.
    pub changed: bool,
}

impl NamespaceUpdate {
    /// Marks what the cache has lost, if the namespace is lost. Call it before an I/O thread is told of the update.
    pub fn mark_loss(&self, now: Instant, path: PathId, epoch: Epoch, unflushed: &UnflushedPaths) {
        if self.state == AnaState::PersistentLoss {
            unflushed.loss_read(now, path, epoch);
        }
    }
}

/// Whether a path may be used, by disk, or why not.
pub type Admissions<E> = Vec<Result<(), AdmitError<E>>>;

/// The disks that share their paths, as a path sees them. The caller of [`Path`](crate::Path) implements it.
pub trait Disks {
    /// Why a namespace cannot be a disk, or a path cannot be used.
    type Error: std::error::Error;

    /// The name of the disk in messages.
    fn name(&self, disk: DiskId) -> String;

    /// The namespace of a disk; `None` before a path has led to it.
    fn served(&self, disk: DiskId) -> Option<ServedNamespace>;

    /// Admits a path for each disk whose namespace it leads to. The first path of a disk decides which namespace that
    /// is.
    fn admit(&mut self, info: &ControllerInfo) -> Admissions<Self::Error>;

    /// Records the number of I/O queues that the controller of a path has granted.
    ///
    /// # Errors
    /// The number of I/O threads that running virtqueues need, if it is larger.
    fn io_queues_granted(&mut self, path: PathId, granted: u16) -> Result<(), u16>;

    /// Records that a path is about to become live. From then on no disk grows beyond what its controller reports.
    ///
    /// # Errors
    /// The disk that has already grown beyond it.
    fn path_up(&mut self, path: PathId, namespaces: Vec<NamespaceUpdate>) -> Result<(), (DiskId, Unusable)>;

    /// Records that the association is over and that every I/O thread has closed its queue pair.
    fn path_down(&mut self, path: PathId);

    /// Whether writes of a disk that the path has completed are marked as unflushed.
    fn is_unflushed(&self, path: PathId) -> bool;
}
