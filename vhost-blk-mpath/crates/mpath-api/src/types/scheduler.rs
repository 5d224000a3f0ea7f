//! Schedulers, the virtqueues that they give turns, and limits.

use std::fmt;

use mpath_core::{DiskId, DiskSchedulerStats, FlowId, FlowStats, SchedulerKind, SchedulerSpec, SchedulerStats};
use serde::{Deserialize, Serialize};

use super::{Latency, Parameter};
use crate::config::{LimitBandwidth, LimitBurst, LimitIops, LimitsConfig, Weight};
use crate::{policy_form, scheduler_form};

/// `GET /v1/schedulers`: one scheduler that this daemon has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// Its name.
    #[serde(with = "scheduler_form::kind")]
    pub name: SchedulerKind,
    /// One line on what it does.
    pub description: String,
    /// What can be set.
    pub params: Vec<Parameter>,
    /// The disks that use it; of those over the same paths, the one that has these.
    pub active_on: Vec<String>,
}

/// `GET /v1/scheduler`, and the answer to `PUT`: which scheduler a disk uses, and those that share its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskScheduler {
    /// The disk's name.
    pub disk: String,
    /// Its scheduler, written as in the configuration file.
    #[serde(with = "scheduler_form")]
    pub scheduler: SchedulerSpec,
}

/// The body of `PUT /v1/scheduler`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetScheduler {
    /// The scheduler to switch to. If it is in force already, it keeps what it knows of the virtqueues, and parameters that are
    /// not named their values.
    #[serde(with = "scheduler_form::kind")]
    pub scheduler: SchedulerKind,
    /// Its parameters by name; the text `default` is the default of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "policy_form::params")]
    pub params: Vec<(String, String)>,
    /// The disk, which has to have paths of its own; every such disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

/// `GET /v1/scheduler/detail`: the scheduler of one disk with all that is known of it, also of a disk that shares paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerDetail {
    /// The disk's name.
    pub disk: String,
    /// Its scheduler, written as in the configuration file.
    #[serde(with = "scheduler_form")]
    pub scheduler: SchedulerSpec,
    /// One line on what it does.
    pub description: String,
    /// Its parameters.
    pub params: Vec<Parameter>,
    /// The disk whose paths this one uses, and its scheduler with them; `null` if it has paths of its own.
    pub shares_paths_of: Option<String>,
    /// The disk's part of the service beside the other disks over its paths, 1 to 1000.
    pub weight: u32,
    /// Where the disk's next request belongs among the disks over the same paths; `null` if no I/O thread tells.
    pub tier: Option<Tier>,
    /// The disk's limits.
    pub limits: LimitStatus,
    /// The virtqueues that have had requests, by index.
    pub queues: Vec<QueueTurns>,
}

impl SchedulerDetail {
    /// Of a disk, with what the I/O threads tell, `None` while there are none: of them this disk's, whose first virtqueue is the
    /// flow `first`.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueTurns {
    /// The virtqueue's index.
    pub queue: u16,
    /// Where its next request belongs.
    pub tier: Tier,
    /// How many requests of 4 KiB more it may send before it is bulk; `null` if the scheduler has no such notion.
    pub credit: Option<u64>,
    /// Requests that wait for their turn, and for a path with room.
    pub queued: u64,
    /// Requests that have been sent and are not finished.
    pub in_flight: u64,
    /// Requests sent since the daemon started, each attempt for itself.
    pub served: u64,
    /// Their bytes.
    pub served_bytes: u64,
    /// How long they had waited here; `null` if there were none.
    pub waited: Option<Latency>,
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
            waited: Latency::of(&flow.waited_ns),
        }
    }
}

/// Whose turn comes before whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// It was idle, and has not yet sent a burst.
    Sparse,
    /// All the others.
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

/// A disk's limits, and what is left of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitStatus {
    /// The limits.
    #[serde(flatten)]
    pub limits: LimitsConfig,
    /// Requests that may go at once, below 0 if too many went; `null` without a limit of them.
    pub balance_ios: Option<i64>,
    /// Bytes that may go at once, below 0 if too many went; `null` without a limit of them.
    pub balance_bytes: Option<i64>,
    /// How long requests have waited because of limits since the daemon started, in the I/O thread where that was longest.
    pub throttled_ms: u64,
}

impl LimitStatus {
    fn new(limits: LimitsConfig, stats: Option<&DiskSchedulerStats>) -> Self {
        Self {
            limits,
            balance_ios: stats.and_then(|stats| stats.balance.ios),
            balance_bytes: stats.and_then(|stats| stats.balance.bytes),
            throttled_ms: stats.map_or(0, |stats| stats.throttled.as_millis() as u64),
        }
    }
}

/// `GET /v1/limits`, and the answer to `PUT`: the limits of one disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskLimits {
    /// The disk's name.
    pub disk: String,
    /// Its limits.
    #[serde(flatten)]
    pub status: LimitStatus,
}

/// The body of `PUT /v1/limits`. What is left out stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLimits {
    /// Requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<LimitIops>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<LimitBandwidth>,
    /// What may be saved up: what the limits allow in this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<LimitBurst>,
    /// The disk; every disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

impl SetLimits {
    /// These limits, changed so.
    #[must_use]
    pub fn applied_to(&self, limits: LimitsConfig) -> LimitsConfig {
        LimitsConfig {
            iops: self.iops.unwrap_or(limits.iops),
            bandwidth: self.bandwidth.unwrap_or(limits.bandwidth),
            burst: self.burst.unwrap_or(limits.burst),
        }
    }
}
