//! Actions on paths, and the controllers of paths.

use std::fmt;

use mpath_config::PathAddress;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::PathSelector;

/// An action on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PathAction {
    /// Use the path again: ends `drain` and `disable`.
    Enable,
    /// Give the path no new requests, except for flushes of its unflushed writes. Requests in flight finish. The association stays.
    Drain,
    /// Drain the path. Close its association in order once nothing is in flight and no write is unflushed. The path stays closed
    /// until `enable`.
    Disable,
    /// Drop the association as if it was lost, and connect again at once.
    Reset,
}

impl fmt::Display for PathAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Enable => "enable",
            Self::Drain => "drain",
            Self::Disable => "disable",
            Self::Reset => "reset",
        })
    }
}

/// The body of `PUT /v1/paths`. The answer is the selected paths after the action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ActOnPaths {
    /// The paths.
    pub path: PathSelector,
    /// The disk, which must have paths of its own. If left out: every such disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Paths of several disks are meant. Without this, an action on paths of several disks needs `disk`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The action.
    pub action: PathAction,
    /// Whether to drain or disable even if a disk then has no usable path. Its I/O waits.
    #[serde(default)]
    pub force: bool,
}

/// Where a path comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The configuration: a file or flags.
    Configured,
    /// An operator, while the daemon runs.
    Operator,
    /// A discovery controller.
    Discovery,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Configured => "configured",
            Self::Operator => "operator",
            Self::Discovery => "discovery",
        })
    }
}

/// The body of `POST /v1/disks/{disk}/paths`. The answer is the new path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddPath {
    /// The path's address.
    pub address: PathAddress,
}

/// What a draining or removed path waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// I/Os in flight.
    InFlight,
    /// A flush: the controller's volatile write cache may hold unflushed writes.
    Flush,
    /// The fence: the controller may still execute commands of the lost association.
    Fence,
    /// Another usable path: the removal is held, and the path is used.
    AnotherPath,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InFlight => "I/Os in flight",
            Self::Flush => "a flush",
            Self::Fence => "the fence",
            Self::AnotherPath => "another usable path",
        })
    }
}

/// The window of a path in each I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathWindow {
    /// I/Os in flight.
    pub ios: u32,
    /// Payload in flight.
    pub bytes: u64,
}

/// The controller of a live path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Controller {
    /// Model number (MN).
    pub model: String,
    /// Serial number (SN).
    pub serial: String,
    /// Firmware revision (FR).
    pub firmware: String,
    /// Keep-alive timeout (KATO) that the controller was given.
    pub keep_alive_tmo_ms: u64,
    /// The most data of one read or write: the least of `max-transfer`, the controller's MDTS, and the size that it was found to
    /// accept.
    pub max_transfer_bytes: u32,
    /// I/Os that the queue pair of one I/O thread holds.
    pub queue_depth: u16,
    /// Whether the controller has a volatile write cache (VWC).
    pub volatile_write_cache: bool,
    /// The fence: how long writes in doubt would wait if the path was lost.
    pub fence_ms: u64,
}
