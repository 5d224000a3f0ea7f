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
    /// Connected and used, although it is to be removed: a disk has no other usable path. See
    /// [`held_removals`](crate::held_removals).
    RemovalHeld,
    /// Given no new requests and closed once nothing is outstanding, or `at_once`. Gone for good once its fences are
    /// lifted.
    Removed {
        /// Close the path though commands or unflushed writes are outstanding.
        at_once: bool,
    },
}

impl DesiredState {
    /// Whether the I/O threads give the path no new requests. Tell them before the [`Path`](crate::Path): the answers to
    /// its questions must come after that.
    #[must_use]
    pub fn is_draining(self) -> bool {
        !matches!(self, Self::Enabled | Self::RemovalHeld)
    }

    /// Whether the path is to be removed, also if that is held.
    #[must_use]
    pub fn is_removal(self) -> bool {
        matches!(self, Self::Removed { .. } | Self::RemovalHeld)
    }

    /// Whether the path is to be closed.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Disabled | Self::Removed { .. })
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
