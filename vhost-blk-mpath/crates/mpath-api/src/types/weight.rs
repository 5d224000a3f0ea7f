//! Weights: the parts that disks have of the service of paths they share.

use serde::{Deserialize, Serialize};

use super::Disk;
use crate::config::Weight;

/// `GET /v1/weights`, and the answer to `PUT`: the weight of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskWeight {
    /// The disk's name.
    pub disk: String,
    /// Its part beside the other disks over its paths, 1 to 1000.
    pub weight: u32,
    /// The disk that has the paths; `null` if it is this one.
    pub shares_paths_of: Option<String>,
}

impl From<Disk> for DiskWeight {
    fn from(disk: Disk) -> Self {
        Self { disk: disk.name, weight: disk.weight, shares_paths_of: disk.shares_paths_of }
    }
}

/// The body of `PUT /v1/weights`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetWeight {
    /// The weight.
    pub weight: Weight,
    /// The disk; may be left out if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}
