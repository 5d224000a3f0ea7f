//! The messages to an I/O thread, most of which are for one of its path sets.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use monotonic::Duration;
use mpath_core::{Group, HostStats, Stall};

use crate::{IoThreadMessage, PathEvent};

/// The part of a path set in one I/O thread.
pub struct PathSetPart {
    /// Its multipath group. Paths may be in it, or are added by [`IoThreadHandle::add_path`].
    pub group: Group,
    /// The longest time to poll before sleeping. Zero: never poll for it. A thread polls as long as one of its path sets that are in use wants.
    pub poll_limit: Duration,
    /// Called from the I/O thread. It must not block.
    pub report: Box<dyn Fn(PathEvent) + Send>,
}

/// A part that a thread is to serve.
pub(crate) struct PathSetConfig {
    pub(crate) part: PathSetPart,
    /// Set when it has ended.
    pub(crate) has_ended: Arc<AtomicBool>,
    /// Called then, with whether writes that were given up may still be executed.
    pub(crate) ended: Box<dyn FnOnce(bool) + Send>,
}

/// A path set of a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetId {
    /// Its place, which a later one may get.
    pub(crate) place: u16,
    /// Its own number.
    pub(crate) number: u64,
}

/// A message to a thread.
pub(crate) enum ThreadMessage {
    /// Serve a path set.
    Add { set: SetId, config: Box<PathSetConfig> },
    /// A message to a path set.
    ToSet { set: SetId, message: IoThreadMessage },
    /// Call back with what this host has cost.
    Host(Box<dyn FnOnce(HostStats) + Send>),
    /// Call this with each time for which this host did not run the thread.
    ReportStalls(Box<dyn Fn(Stall) + Send>),
    /// End when all path sets have ended.
    End,
}
