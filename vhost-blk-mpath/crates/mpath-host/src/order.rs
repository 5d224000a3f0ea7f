//! The operator's orders for a path.

/// How the operator wants a path to be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DesiredState {
    /// Connected and used.
    #[default]
    Enabled,
    /// Connected, and given no new requests.
    Drained,
    /// Given no new requests, closed once nothing is outstanding, and not reconnected.
    Disabled,
    /// Given no new requests and closed once nothing is outstanding, or `at_once`. Gone for good once its fences are
    /// lifted.
    Removed {
        /// Close the path though commands or unflushed writes are outstanding.
        at_once: bool,
    },
}

/// One step of removing a path that has no association and will get no other. After the last step its id and slot may
/// go to another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalStep {
    /// Wait until the fences of the path are lifted.
    AwaitFences,
    /// Wait until no I/O thread holds anything for the path (`PathStats::is_forgotten`). Parts of flushes may still
    /// have to learn that writes are lost.
    AwaitIdle,
    /// Have every I/O thread remove the path.
    RemoveFromThreads,
}

impl RemovalStep {
    pub(crate) fn next(self) -> Option<Self> {
        match self {
            Self::AwaitFences => Some(Self::AwaitIdle),
            Self::AwaitIdle => Some(Self::RemoveFromThreads),
            Self::RemoveFromThreads => None,
        }
    }
}

/// The operator's order for a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// How the path is to be used.
    pub wanted: DesiredState,
    /// How many resets the operator has asked for.
    pub resets: u64,
}

impl Order {
    pub(crate) fn is_removal(&self) -> bool {
        matches!(self.wanted, DesiredState::Removed { .. })
    }
}
