//! Asymmetric namespace access states.

use std::fmt;

/// ANA state of the namespace on one path (NVMe Base 2.0, 8.1.3 "ANA states").
///
/// A subsystem without ANA reporting is `Optimized` on every path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnaState {
    /// The preferred access.
    Optimized,
    /// Works, at a cost; used only while no optimized path is eligible.
    NonOptimized,
    /// Commands would fail for now.
    Inaccessible,
    /// The namespace is gone from this controller for good.
    PersistentLoss,
    /// Between two states; commands would fail for now.
    Change,
}

impl AnaState {
    /// Whether I/O may be sent in this state at all.
    #[must_use]
    pub const fn is_selectable(self) -> bool {
        matches!(self, Self::Optimized | Self::NonOptimized)
    }
}

impl fmt::Display for AnaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Optimized => "optimized",
            Self::NonOptimized => "non-optimized",
            Self::Inaccessible => "inaccessible",
            Self::PersistentLoss => "persistent-loss",
            Self::Change => "change",
        })
    }
}
