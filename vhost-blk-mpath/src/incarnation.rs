//! Which run of a daemon has left a fence, written down with it.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// One run of a daemon, by which it knows again what it has left itself: of that it waits for the rest only. Of whatever another one has
/// left, be it this one before a reboot, nobody knows how much has passed.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    id: String,
    begun: Instant,
}

impl Incarnation {
    /// This process's.
    pub(crate) fn of_this_process() -> &'static Self {
        static THIS: LazyLock<Incarnation> = LazyLock::new(Incarnation::begin);
        &THIS
    }

    /// One that begins now.
    pub(crate) fn begin() -> Self {
        Self { id: Uuid::new_v4().to_string(), begun: Instant::now() }
    }

    /// What is written down of a fence that it leaves.
    pub(crate) fn leaves(&self, fence: Duration) -> LeftBy {
        // The last one is a whole one.
        LeftBy { daemon: self.id.clone(), until_ms: (self.begun.elapsed() + fence).as_millis() as u64 + 1 }
    }

    /// What is left of that, if it is its own.
    pub(crate) fn remains(&self, left: &LeftBy) -> Option<Duration> {
        let until = Duration::from_millis(left.until_ms);
        (left.daemon == self.id).then(|| until.saturating_sub(self.begun.elapsed()))
    }
}

/// When a fence is over that a daemon has left, as only that daemon knows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LeftBy {
    /// Its incarnation.
    daemon: String,
    /// Since the begin of that.
    until_ms: u64,
}
