//! Disks that go.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a disk is in [`DiskState::Removing`] at most: its front-ends' requests in flight have ten seconds, and the rest is for the ends of
/// I/O threads and paths. (A file system that keeps the daemon waiting is not counted.)
pub const REMOVING_MAX: Duration = Duration::from_secs(15);

/// The life of a disk, from when it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// Front-ends are served.
    Served,
    /// It is being removed: no front-end gets in any more, and those that there are have been hung up on or are about to be. Its name and its
    /// socket are free when it is gone.
    Removing,
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Served => "served",
            Self::Removing => "removing",
        })
    }
}

/// `DELETE /v1/disks/{disk}`: one of the disks that are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedDisk {
    /// The disk's name.
    pub disk: String,
    /// For how much longer writes to its namespace may be executed, from the moment of the answer, because it was removed while their fate
    /// was not known. Until then another daemon must not be given the namespace; this one has whatever it is given with that socket or
    /// namespace wait. `null` if there are no such writes.
    pub in_doubt_ms: Option<u64>,
}
