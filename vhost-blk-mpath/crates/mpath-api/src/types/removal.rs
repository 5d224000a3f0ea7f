//! Removal of disks.

use std::fmt;

use monotonic::Duration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The longest that a disk is in [`DiskState::Removing`]: ten seconds for requests in flight, and the rest for I/O threads and
/// paths to end. A file system that blocks the daemon may add to that.
pub const REMOVING_MAX: Duration = Duration::from_secs(15);

/// State of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiskState {
    /// No path has led to a namespace that the disk may use: see the errors of its paths. Front-ends can connect and are not answered.
    Starting,
    /// Front-ends are served.
    Served,
    /// Being removed: front-ends are disconnected and none can connect. The disk's name and socket are free once it is gone.
    Removing,
}

impl fmt::Display for DiskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Starting => "starting",
            Self::Served => "served",
            Self::Removing => "removing",
        })
    }
}

/// `DELETE /v1/disks/{disk}`: a disk that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct RemovedDisk {
    /// The disk's name.
    pub disk: String,
    /// How much longer, from the moment of the answer, the controllers may execute writes in doubt. Do not give the namespace to another
    /// daemon before that. This daemon holds a disk that is added with the same socket or namespace. `null` if no write is in doubt.
    pub in_doubt_ms: Option<u64>,
}
