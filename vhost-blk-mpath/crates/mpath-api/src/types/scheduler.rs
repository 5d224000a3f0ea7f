//! Schedulers, their virtqueues, and limits.

use std::fmt;

use mpath_config::{LimitsConfig, LimitsSchema, Weight};
use mpath_core::{DiskId, DiskSchedulerStats, FlowId, FlowStats, SchedulerKind, SchedulerSpec, SchedulerStats};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Latency, Parameter, TimeHistogram};

/// `GET /v1/schedulers`: one scheduler that this daemon has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Scheduler {
    /// The name.
    pub name: SchedulerKind,
    /// What the scheduler does, one line.
    pub description: String,
    /// The parameters.
    pub params: Vec<Parameter>,
    /// The disks that use the scheduler. A disk that shares another disk's paths is not listed.
    pub active_on: Vec<String>,
}

/// `GET /v1/scheduler/detail`: the scheduler, virtqueues and limits of one disk, which may share paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct SchedulerDetail {
    /// The disk's name.
    pub disk: String,
    /// The scheduler, in the form of the configuration file.
    pub scheduler: SchedulerSpec,
    /// What the scheduler does, one line.
    pub description: String,
    /// The parameters.
    pub params: Vec<Parameter>,
    /// The disk that has the paths and the scheduler. `null` if this disk has paths of its own.
    pub shares_paths_of: Option<String>,
    /// Share of the service among the disks over the same paths, 1 to 1000.
    pub weight: u32,
    /// Tier of the disk's next request among the disks over the same paths. `null` without I/O threads.
    pub tier: Option<Tier>,
    /// The disk's limits.
    pub limits: LimitStatus,
    /// The virtqueues that have had requests, in the order of their index.
    pub queues: Vec<QueueTurns>,
}

impl SchedulerDetail {
    /// The detail of a disk. `stats` are the statistics of the I/O threads, the disk, and the flow of its first virtqueue. They are
    /// `None` without I/O threads.
    #[must_use]
    pub fn new(
        disk: String,
        shares_paths_of: Option<String>,
        scheduler: SchedulerSpec,
        weight: Weight,
        limits: LimitsConfig,
        stats: Option<(&SchedulerStats, DiskId, FlowId)>,
    ) -> Self {
        let turns = stats.and_then(|(stats, disk, _)| stats.disk(disk));
        let queues = stats.into_iter().flat_map(|(stats, disk, first)| {
            stats.flows_of(disk).map(move |flow| QueueTurns::new(flow.flow.0 - first.0, flow))
        });
        Self {
            disk,
            description: scheduler.kind().description().into(),
            params: Parameter::all(scheduler.params()),
            scheduler,
            shares_paths_of,
            weight: weight.get(),
            tier: turns.map(|turns| turns.tier.into()),
            limits: LimitStatus::new(limits, turns),
            queues: queues.collect(),
        }
    }
}

/// One virtqueue, as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct QueueTurns {
    /// The virtqueue's index.
    pub queue: u16,
    /// Tier of the next request.
    pub tier: Tier,
    /// Burst credit in requests of 4 KiB: what the virtqueue may send before it is bulk. `null` if the scheduler has no credit.
    pub credit: Option<u64>,
    /// Requests that wait for their turn and for a path with room.
    pub queued: u64,
    /// Requests sent and not finished.
    pub in_flight: u64,
    /// Attempts sent since the daemon started.
    pub served: u64,
    /// Bytes of these attempts.
    pub served_bytes: u64,
    /// How long these attempts waited. `null` if there were none.
    pub waited: Option<Latency>,
    /// The waits as a histogram for `/metrics`. The JSON does not have it.
    #[serde(skip)]
    pub histogram: TimeHistogram,
}

impl QueueTurns {
    fn new(queue: u16, flow: &FlowStats) -> Self {
        Self {
            queue,
            tier: flow.tier.into(),
            credit: flow.credit,
            queued: flow.queued,
            in_flight: flow.outstanding,
            served: flow.served,
            served_bytes: flow.served_bytes,
            waited: Latency::of(&flow.waited),
            histogram: (&flow.waited).into(),
        }
    }
}

/// Scheduling tier. Sparse goes before bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// Was idle, and has not yet sent a burst.
    Sparse,
    /// Every other flow or disk.
    Bulk,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Self; 2] = [Self::Sparse, Self::Bulk];
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sparse => "sparse",
            Self::Bulk => "bulk",
        })
    }
}

impl From<mpath_core::Tier> for Tier {
    fn from(tier: mpath_core::Tier) -> Self {
        match tier {
            mpath_core::Tier::Sparse => Self::Sparse,
            mpath_core::Tier::Bulk => Self::Bulk,
        }
    }
}

/// A disk's limits and their balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct LimitStatus {
    /// The limits.
    #[serde(flatten)]
    #[schema(value_type = LimitsSchema)]
    pub limits: LimitsConfig,
    /// Requests that may be sent at once. Below 0: requests sent in excess. `null` without a limit on requests.
    pub balance_ios: Option<i64>,
    /// Bytes that may be sent at once. Below 0: bytes sent in excess. `null` without a limit on bytes.
    pub balance_bytes: Option<i64>,
    /// How long limits have kept requests waiting since the daemon started: the longest of all I/O threads.
    pub throttled_ms: u64,
}

impl LimitStatus {
    /// The limits with their balances. `stats` are `None` without I/O threads.
    #[must_use]
    pub fn new(limits: LimitsConfig, stats: Option<&DiskSchedulerStats>) -> Self {
        Self {
            limits,
            balance_ios: stats.and_then(|stats| stats.balance.ios),
            balance_bytes: stats.and_then(|stats| stats.balance.bytes),
            throttled_ms: stats.map_or(0, |stats| stats.throttled.as_millis()),
        }
    }
}
