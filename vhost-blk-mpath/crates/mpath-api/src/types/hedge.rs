//! Hedged reads.

use mpath_config::{Hedge, HedgeBudget};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
