//! Disks that share the paths of a group: namespaces of one subsystem.

use std::sync::Arc;

use crate::{AnaState, DirtyPaths, DiskLimits};

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

/// The ANA states of all disks on one path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AnaStates([AnaState; MAX_DISKS]);

impl AnaStates {
    /// The state of one disk's namespace.
    #[must_use]
    pub fn of(&self, disk: DiskId) -> AnaState {
        self.0[disk.index()]
    }

    /// Changes that state; what it was.
    pub fn set(&mut self, disk: DiskId, state: AnaState) -> AnaState {
        std::mem::replace(&mut self.0[disk.index()], state)
    }
}

impl From<AnaState> for AnaStates {
    /// The same state for every disk.
    fn from(state: AnaState) -> Self {
        Self([state; MAX_DISKS])
    }
}

impl std::fmt::Debug for AnaStates {
    /// Mostly there is one disk, or few of 64.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let same = self.0.iter().rev().take_while(|state| **state == self.0[MAX_DISKS - 1]).count();
        let shown = (MAX_DISKS - same + 1).min(MAX_DISKS);
        f.debug_list().entries(&self.0[..shown]).finish_non_exhaustive()
    }
}
