//! The upgrade of the daemon.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `POST /v1/upgrade`: a new process is ready to take over, and this one ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Upgrade {
    /// The version of the daemon that ends.
    pub from_version: String,
    /// The version of the daemon that takes over.
    pub version: String,
    /// The process that takes over.
    pub pid: u32,
}
