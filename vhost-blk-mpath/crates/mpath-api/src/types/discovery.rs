//! Discovery controllers.

use std::fmt;

use mpath_config::PathAddress;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A discovery controller of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DiscoveryController {
    /// The disk's name.
    pub disk: String,
    /// Its address.
    pub address: PathAddress,
    /// Its NQN: the well-known discovery NQN or a unique one.
    pub subnqn: String,
    /// The discovery controller that refers to this one. `null` if this one is configured.
    pub referred_by: Option<PathAddress>,
    /// Its state.
    pub state: DiscoveryState,
    /// When it entered this state: UTC, RFC 3339 with milliseconds.
    pub since: String,
    /// The TLS cipher suite of the connection that gave the last log. `null` in clear text, and before the first log.
    pub tls_suite: Option<String>,
    /// Generation counter (GENCTR) of the discovery log last read. `null` before the first log.
    pub generation: Option<u64>,
    /// Records of that log, of every kind. `null` before the first log.
    pub records: Option<u32>,
    /// When the log was read: UTC, RFC 3339 with milliseconds.
    pub read_at: Option<String>,
    /// The last error, one line. `null` if there was none since the log was read.
    pub last_error: Option<String>,
    /// The time of the last error: UTC, RFC 3339 with milliseconds.
    pub last_error_at: Option<String>,
}

/// State of a discovery controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DiscoveryState {
    /// Has not answered yet. Attempts go on.
    Connecting,
    /// Connected. The controller reports changes, or its log is read every minute.
    Connected,
    /// The controller keeps no connections. Its log is read every minute.
    Polled,
    /// Has answered before and does not answer. Attempts go on. Its last log still applies.
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
