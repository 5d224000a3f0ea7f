//! Explanations: the group's, and holds that only the I/O thread knows.

use monotonic::Duration;
use mpath_core::{Explanation, FlowId};

/// The next requests of a disk in one I/O thread.
#[derive(Clone, Debug)]
pub struct ThreadExplanation {
    /// The virtqueues of the disk that the thread serves.
    pub queues: Vec<FlowId>,
    /// How much longer a fence of an earlier daemon, or of a removed disk, keeps requests in the virtqueues.
    pub held_for: Option<Duration>,
    /// The disk is suspended: requests stay in the virtqueues.
    pub is_suspended: bool,
    /// The explanation of the group.
    pub group: Explanation,
}
