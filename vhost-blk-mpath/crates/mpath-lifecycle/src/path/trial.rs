//! Decides: a path was tried since a kill.
//!
//! Whether a path was tried.

use monotonic::Instant;

/// Whether a path was tried. By default the path is new and waits for its first attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathTrial {
    /// The beginning of the latest attempt to connect that has failed or has made the path live.
    pub tried_at: Option<Instant>,
    /// The path has a live association.
    pub is_live: bool,
    /// The path makes no attempt by itself.
    pub is_idle: bool,
}

impl PathTrial {
    /// Whether the outcome of the first attempt is still to come.
    #[must_use]
    pub fn is_untried(self) -> bool {
        self.tried_at.is_none() && !self.is_live && !self.is_idle
    }

    /// Whether the path is live, or was tried at that time or later, or is not tried any more.
    #[must_use]
    pub fn had_a_chance(self, since: Instant) -> bool {
        self.is_live || self.is_idle || self.tried_at.is_some_and(|at| at >= since)
    }
}
