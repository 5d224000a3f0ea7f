//! What the [`Group`](crate::Group)s of a disk share.

use std::sync::Arc;

use crate::{DiskLimits, GuestErrors, OldestRequest, UnflushedPaths, UsablePaths};

/// The state of one disk. The [`Group`](crate::Group)s that serve the disk, one in each I/O thread, share it.
#[derive(Clone, Debug, Default)]
pub struct SharedDisk {
    /// The writes of the disk that no flush has covered.
    pub unflushed: Arc<UnflushedPaths>,
    /// The disk's limits of requests and bytes per second.
    pub limits: Arc<DiskLimits>,
    /// The errors that guests of the disk got.
    pub errors: Arc<GuestErrors>,
    /// The paths to which requests of the disk can go now.
    pub usable: Arc<UsablePaths>,
    /// The oldest request of the disk without an answer.
    pub oldest: Arc<OldestRequest>,
}

impl SharedDisk {
    /// The state for a disk whose last daemon was killed: unflushed writes of that daemon may be in a cache.
    #[must_use]
    pub fn after_crash() -> Self {
        Self { unflushed: Arc::new(UnflushedPaths::after_crash()), ..Self::default() }
    }
}
