//! A process of the daemon: the parts that outlive the disks which are removed.

use monotonic::Instant;
use mpath_lifecycle::{DaemonRun, PendingFences};

/// A process of the daemon.
#[derive(Debug)]
pub(crate) struct Process {
    pub(super) run: DaemonRun,
    pub(super) pending_fences: PendingFences,
}

impl Process {
    /// The process of this number.
    pub(crate) fn new(number: u64, now: Instant) -> Self {
        Self { run: DaemonRun::new(number.to_string(), now), pending_fences: PendingFences::default() }
    }
}
