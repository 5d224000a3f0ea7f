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
