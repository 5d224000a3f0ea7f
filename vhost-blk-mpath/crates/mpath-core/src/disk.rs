//! Disks that share the paths of a group: namespaces of one subsystem.

use std::sync::Arc;

use crate::{DirtyPaths, DiskLimits};

/// What the groups share of one disk.
#[derive(Clone, Debug, Default)]
pub struct SharedDisk {
    /// What the controllers hold of its writes.
    pub dirty: Arc<DirtyPaths>,
    /// What it may do in a second.
    pub limits: Arc<DiskLimits>,
}

impl SharedDisk {
    /// Of a disk whose last process was killed: what it had not flushed is in some cache.
    #[must_use]
    pub fn after_crash() -> Self {
        Self { dirty: Arc::new(DirtyPaths::after_crash()), ..Self::default() }
    }
}
