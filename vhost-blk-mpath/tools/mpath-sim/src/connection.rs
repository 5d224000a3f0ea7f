//! The number of a connection, and its two ends.

/// A connection. No number is used twice in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId(pub(crate) u32);

/// An end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    Host,
    Target,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Host => Self::Target,
            Self::Target => Self::Host,
        }
    }
}
