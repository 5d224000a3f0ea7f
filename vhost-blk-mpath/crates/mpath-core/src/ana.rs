//! Asymmetric namespace access states.

use std::fmt;

use crate::{DiskId, MAX_DISKS, words};

words! {
    /// ANA state of a namespace on one path (NVMe Base 2.0, 8.1.3 "ANA states").
    ///
    /// A subsystem without ANA reporting is `Optimized` on every path.
    AnaState as "AnaState", "ANA state", {
        /// The preferred access.
        Optimized = "optimized",
        /// Usable at a cost. The policy chooses this path only while no optimized path is eligible.
        NonOptimized = "non-optimized",
        /// Commands fail at present.
        Inaccessible = "inaccessible",
        /// The controller has lost the namespace permanently.
        PersistentLoss = "persistent-loss",
        /// A transition between two states. Commands fail at present.
        Change = "change",
    }
}

impl AnaState {
    /// Whether I/O may be sent in this state.
    #[must_use]
    pub const fn is_selectable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
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

    /// Sets the state of one disk's namespace. Returns the previous state.
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

impl fmt::Debug for AnaStates {
    /// Omits the trailing disks that share one state: most groups have few disks.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = self.0.iter().rev().take_while(|state| **state == self.0[MAX_DISKS - 1]).count();
        let shown = (MAX_DISKS - same + 1).min(MAX_DISKS);
        f.debug_list().entries(&self.0[..shown]).finish_non_exhaustive()
    }
}
