//! Fences of a disk, and everything else that its fence record keeps.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::EventPath;

/// `GET /v1/fences`: what a disk waits for, refuses or reports because of writes that an earlier association or daemon left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DiskFences {
    /// The disk's name.
    pub disk: String,
    /// The fence record: a file next to the socket.
    pub record: String,
    /// Fences of lost associations that are not lifted. Empty for a disk that shares the paths of another: see that disk.
    pub fences: Vec<PathFence>,
    /// The fence of an earlier daemon or of a removed disk. `null` if there is none, or if it has passed.
    pub inherited: Option<InheritedFence>,
    /// The namespace of a guest that may come back with unanswered requests. `null` if there is none.
    pub guest_of: Option<String>,
    /// Whether writes were acknowledged and lost, and no flush has told the guest.
    pub lost_writes: bool,
}

/// A fence of a lost association.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathFence {
    /// The path. `null` if it is gone.
    pub path: Option<EventPath>,
    /// When the fence began: UTC, RFC 3339 with milliseconds.
    pub since: String,
    /// The time until it lifts at the latest. `null` while its connections drain, which takes 5 s at most.
    pub ends_in_ms: Option<u64>,
    /// What can lift it. The first that happens does.
    pub lifts_by: Vec<FenceLift>,
}

/// Something that lifts a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FenceLift {
    /// The controller executes nothing of the association any more after that time.
    Time,
    /// The controller has executed everything that it received, and closed its connections.
    Drain,
    /// A Cross-Controller Reset over another path.
    CrossReset,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

/// A fence of writes that this disk did not send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct InheritedFence {
    /// The time until it passes.
    pub ends_in_ms: u64,
    /// The removed disk whose writes they are. `null` for an earlier daemon.
    pub removed_disk: Option<String>,
}

/// The answer to `DELETE /v1/fences/{disk}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct ClearedFences {
    /// The disk's name.
    pub disk: String,
    /// What was cleared. Empty if there was nothing.
    pub cleared: Vec<ClearedFence>,
}

/// Something that an operator has declared void.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ClearedFence {
    /// The unanswered requests of a guest, and with them the namespace of the socket.
    UnansweredRequests,
    /// The fence of an earlier daemon or of a removed disk.
    InheritedFence,
    /// The report of lost writes.
    LostWrites,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl fmt::Display for FenceLift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Drain => "drain",
            Self::CrossReset => "cross-controller reset",
            Self::Other => "other",
        })
    }
}

impl fmt::Display for ClearedFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnansweredRequests => "unanswered requests",
            Self::InheritedFence => "inherited fence",
            Self::LostWrites => "lost writes",
            Self::Other => "other",
        })
    }
}
