//! Weights: shares of the service among the disks over the same paths.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Disk;
use crate::config::Weight;

/// `GET /v1/weights`, and the answer to `PUT`: the weight of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DiskWeight {
    /// The disk's name.
    pub disk: String,
    /// Share among the disks over the same paths, 1 to 1000.
    pub weight: u32,
    /// The disk that has the paths. `null` if it is this disk.
    pub shares_paths_of: Option<String>,
}

impl From<Disk> for DiskWeight {
    fn from(disk: Disk) -> Self {
        Self { disk: disk.name, weight: disk.weight, shares_paths_of: disk.shares_paths_of }
    }
}

/// The body of `PUT /v1/weights`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetWeight {
    /// The weight.
    pub weight: Weight,
    /// The disk. May be left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}
