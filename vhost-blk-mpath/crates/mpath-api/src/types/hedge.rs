//! Hedged reads.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{Hedge, HedgeBudget};

/// The hedging of a disk, and its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HedgeStatus {
    /// The reads that are hedged.
    pub hedge: Hedge,
    /// The most hedges, as a share of all reads.
    pub hedge_budget: HedgeBudget,
    /// Reads submitted since the daemon started while `hedge` was not off.
    pub hedgeable_reads: u64,
    /// Hedges sent.
    pub hedges: u64,
    /// Hedges that answered first.
    pub hedges_won: u64,
}

/// `GET /v1/hedge`, and the answer to `PUT`: the hedging of a disk and of those that share its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DiskHedge {
    /// The disk's name.
    pub disk: String,
    /// The hedging and its results.
    #[serde(flatten)]
    pub status: HedgeStatus,
}

/// The body of `PUT /v1/hedge`. A setting that is left out keeps its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetHedge {
    /// The reads to hedge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// The most hedges, as a share of all reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hedge_budget: Option<HedgeBudget>,
    /// The disk, which must have paths of its own. If left out: every such disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}
