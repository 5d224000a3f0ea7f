//! The end of a daemon, or the removal of its disks: the phases and the outcome.

use monotonic::{Duration, Instant};
use reactor::ThreadsShutdown;

use super::files::Files;
use super::process::Process;

/// The phase of an orderly end, or of the removal of all disks.
pub(super) enum ShutdownPhase {
    /// Disks are removed: the front-ends are hung up on, and requests in flight may take until then.
    HangUp { until: Instant },
    /// The I/O threads return the virtqueues and flush.
    DaemonFlush(ThreadsShutdown),
    /// The I/O threads close their connections and end.
    Threads,
    /// Controllers are shut down. `in_doubt`: I/O threads have given up writes in doubt.
    Paths { in_doubt: bool },
}

/// A daemon that has ended in order, or whose disks are removed.
pub(crate) struct EndedDaemon {
    pub(crate) process: Process,
    /// Its process goes on.
    pub(crate) is_removal: bool,
    /// The files that it leaves on the sockets.
    pub(crate) files: Files,
    /// The fence records were written.
    pub(crate) is_written: bool,
    /// The longest fence that removed disks leave.
    pub(crate) fence_left: Duration,
    /// The disks leave nothing: no fence, no lost writes, and no guest that may come back.
    pub(crate) is_clean: bool,
}
