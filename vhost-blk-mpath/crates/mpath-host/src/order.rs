//! What the operator wants of a path.

/// How a path is to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// As well as it can be.
    #[default]
    Enabled,
    /// Given nothing new, and kept.
    Drained,
    /// Given nothing new, closed when it owes nothing, and not connected again.
    Disabled,
    /// Given nothing new, closed when it owes nothing or `at_once`, and gone when its fences are lifted. For good.
    Removed {
        /// Whatever it owes.
        at_once: bool,
    },
}

/// A step by which a path leaves that has no association and gets none any more. After the last one its id, and its place in all that
/// is kept by path, may be another path's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStep {
    /// Wait until the fences of the path are lifted.
    LiftFences,
    /// Wait until no I/O thread has anything that waits for the path (`PathStats::is_forgotten`): parts of flushes may still have to
    /// learn that they are lost.
    Forget,
    /// Have every I/O thread carry out that there is no such path.
    TellThreads,
}

impl RemovalStep {
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::LiftFences => Some(Self::Forget),
            Self::Forget => Some(Self::TellThreads),
            Self::TellThreads => None,
        }
    }
}

/// What a path has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// How it is to be used.
    pub wanted: Wanted,
    /// How often it was to be dropped and connected again.
    pub resets: u64,
}

impl Order {
    pub(crate) fn is_removal(&self) -> bool {
        matches!(self.wanted, Wanted::Removed { .. })
    }
}
