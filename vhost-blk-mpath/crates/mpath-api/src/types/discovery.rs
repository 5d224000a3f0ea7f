//! Discovery controllers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::PathAddress;

/// A discovery controller that a disk's paths are learned from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveryController {
    /// The disk's name.
    pub disk: String,
    /// Where it is.
    pub address: PathAddress,
    /// Its NQN: the well-known one of discovery, or one of its own.
    pub subnqn: String,
    /// The discovery controller that refers to it; `null` if it is configured.
    pub referred_by: Option<PathAddress>,
    /// Whether it answers.
    pub state: DiscoveryState,
    /// Since when it is in this state: UTC, RFC 3339 with milliseconds.
    pub since: String,
    /// The generation of the log last read (GENCTR); `null` before the first.
    pub generation: Option<u64>,
    /// Its records, of whatever kind; `null` before the first log.
    pub records: Option<u32>,
    /// When that log was read: UTC, RFC 3339 with milliseconds.
    pub read_at: Option<String>,
    /// What went wrong last, one line; `null` if nothing has since the log was read.
    pub last_error: Option<String>,
    /// When that was the last time: UTC, RFC 3339 with milliseconds.
    pub last_error_at: Option<String>,
}

/// The life of a discovery controller, as this host sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DiscoveryState {
    /// Has not answered yet; attempts go on.
    Connecting,
    /// The connection stays, and the controller tells of changes or is asked every minute.
    Connected,
    /// It keeps no connections, and is asked every minute.
    Polled,
    /// Has answered once and does not now; attempts go on, and what it listed last still counts.
    Lost,
}

impl DiscoveryState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Connecting, Self::Connected, Self::Polled, Self::Lost];
}

impl fmt::Display for DiscoveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "connecting",
            Self::Connected => "connected",
            Self::Polled => "polled",
            Self::Lost => "lost",
        })
    }
}
