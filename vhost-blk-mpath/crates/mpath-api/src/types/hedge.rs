//! Hedged reads.

use serde::{Deserialize, Serialize};

use crate::config::{Hedge, HedgeBudget};

/// How a disk's slow reads are hedged, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HedgeStatus {
    /// Which reads are sent a second time.
    pub hedge: Hedge,
    /// How many of them at most.
    pub budget: HedgeBudget,
    /// Reads submitted while this was not off, since the daemon started.
    pub reads: u64,
    /// Hedges sent.
    pub sent: u64,
    /// Those of them that answered first.
    pub won: u64,
}

/// `GET /v1/hedge`, and the answer to `PUT`: the same of one disk, and those that share its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskHedge {
    /// The disk's name.
    pub disk: String,
    /// How, and what came of it.
    #[serde(flatten)]
    pub status: HedgeStatus,
}

/// The body of `PUT /v1/hedge`. What is left out stays as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetHedge {
    /// Which reads are to be sent a second time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// How many of them at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<HedgeBudget>,
    /// The disk, which has to have paths of its own; every such disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}
