//! Deliberate impairments of a path.

use std::time::Duration;

/// A deliberate impairment of one path, put between the policy and the queue pair.
///
/// A request held by it counts as in flight on its path and its measured latency includes the delay, so that policies
/// and operators see just what a slower path would show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Injection {
    /// Added to every request before it is issued; at most [`Injection::MAX_LATENCY`].
    pub latency: Duration,
}

impl Injection {
    /// The longest delay; more is cut to it.
    pub const MAX_LATENCY: Duration = Duration::from_secs(60);

    /// A fixed delay.
    #[must_use]
    pub fn latency(latency: Duration) -> Self {
        Self { latency: latency.min(Self::MAX_LATENCY) }
    }

    /// How long to hold a request before it is issued.
    pub(crate) fn delay(&self) -> Duration {
        self.latency.min(Self::MAX_LATENCY)
    }
}
