//! Paths taken out of use and put back, and what is known of their controllers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::PathSelector;
use crate::address::PathAddress;

/// What can be done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAction {
    /// Use it again: ends `drain` and `disable`.
    Enable,
    /// Give it nothing new but the flushes it owes. What is in flight ends there; its association stays.
    Drain,
    /// Drain it, and close its association in order when nothing is in flight and nothing it wrote is unflushed. It is not
    /// connected again before `enable`.
    Disable,
    /// Drop its association as if it had been lost, and connect again at once.
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

/// The body of `PUT /v1/paths`. The answer is the paths meant, as they are then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteerPaths {
    /// Which paths.
    pub path: PathSelector,
    /// Of which disk, which has to have paths of its own; of every such disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// What to do to them.
    pub action: PathAction,
    /// Drain or disable them even if that leaves a disk without a usable path; its I/O then waits.
    #[serde(default)]
    pub force: bool,
}

/// Who wanted a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The configuration: a file or flags.
    Configured,
    /// An operator, while the daemon ran.
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

/// The body of `POST /v1/disks/{disk}/paths`. The answer is the path, as it is then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddPath {
    /// Where it leads.
    pub address: PathAddress,
}

/// What a path that was told to drain, or is removed, still waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitsFor {
    /// I/Os in flight.
    InFlight,
    /// The guest's next flush: the controller may hold completed writes in its volatile cache.
    Flush,
    /// The fence: the controller may still execute what it was sent.
    Fence,
}

impl fmt::Display for WaitsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::InFlight => "I/Os in flight",
            Self::Flush => "the guest's next flush",
            Self::Fence => "the fence",
        })
    }
}

/// What a path may hold at a time, in each I/O thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathWindow {
    /// I/Os in flight.
    pub ios: u32,
    /// Payload of these.
    pub bytes: u64,
}

/// The controller at the other end of a live path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Controller {
    /// Model number (MN).
    pub model: String,
    /// Serial number (SN).
    pub serial: String,
    /// Firmware revision (FR).
    pub firmware: String,
    /// Keep-alive time-out (KATO), in milliseconds.
    pub kato_ms: u64,
    /// The most data of one read or write, in bytes: the least of `max-transfer`, what the controller reports (MDTS), and what it was
    /// found to take.
    pub max_transfer_bytes: u32,
    /// I/Os the queue pair of one I/O thread takes.
    pub queue_depth: u16,
    /// Whether it has a volatile write cache (VWC), so that flushes matter.
    pub volatile_write_cache: bool,
    /// How long writes of unknown fate would wait if the path were lost now, in milliseconds.
    pub fence_ms: u64,
}
