//! The daemon's configuration, and its reload.

use mpath_config::Change;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// `GET /v1/config`: the configuration of the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Configuration {
    /// The configuration file, an absolute path. `null` if the daemon was started with flags.
    pub file: Option<String>,
    /// The settings as they were given, at the start or at the last reload. Defaults are left out. A reload with `dry-run` counts if
    /// it finds nothing to apply.
    pub given: Value,
    /// The settings in effect, with defaults. Includes what clients changed, and no discovered paths.
    pub effective: Value,
}

/// `POST /v1/config/reload`: what was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Reload {
    /// The configuration file.
    pub file: String,
    /// Whether nothing was changed, because the request says `dry-run=true`. `applied` then has what would be applied.
    pub dry_run: bool,
    /// The changes that were applied, in this order.
    pub applied: Vec<Change>,
    /// The changes that could not be applied.
    pub failed: Vec<FailedChange>,
    /// The settings that a reload does not change.
    pub not_live: Vec<Change>,
}

/// A change that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FailedChange {
    /// The change.
    #[serde(flatten)]
    pub change: Change,
    /// The error.
    pub reason: String,
}
