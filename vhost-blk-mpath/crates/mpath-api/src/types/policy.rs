//! Policies, their parameters, and their estimates of paths.

use mpath_config::PathAddress;
use mpath_core::{ClassPolicies, PolicyKind, PolicySpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{LastChange, Parameter, PathState};

/// `GET /v1/policies`: one policy that this daemon has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Policy {
    /// The name.
    pub name: PolicyKind,
    /// Other names of the policy, which are accepted too.
    pub aliases: Vec<String>,
    /// What the policy does, one line.
    pub description: String,
    /// The parameters.
    pub params: Vec<Parameter>,
    /// The disks that use the policy. A disk that shares another disk's paths is not listed.
    pub active_on: Vec<String>,
}

/// `GET /v1/policy/detail`: the policies of one disk with parameters and estimates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyDetail {
    /// The disk's name.
    pub disk: String,
    /// The policy of all requests, or the policy of reads and the policy of the others.
    pub policies: Vec<PolicyInForce>,
    /// The last change of the policy. Left out if it is that of the daemon's start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<LastChange>,
    /// The estimates of the disk's paths, by class and path.
    pub paths: Vec<PathView>,
}

/// A policy in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PolicyInForce {
    /// The class of requests: `all`, `read`, or `write` (everything but reads).
    pub class: String,
    /// The name.
    pub name: PolicyKind,
    /// What the policy does, one line.
    pub description: String,
    /// The parameters.
    pub params: Vec<Parameter>,
}

impl PolicyInForce {
    /// The policies of a disk.
    #[must_use]
    pub fn of(policies: &ClassPolicies) -> Vec<Self> {
        let describe = |(class, spec): (&str, &PolicySpec)| Self {
            class: class.into(),
            name: spec.kind(),
            description: spec.kind().description().into(),
            params: Parameter::all(spec.params()),
        };
        match policies.single() {
            Some(spec) => vec![describe(("all", spec))],
            None => [("read", &policies.read), ("write", &policies.write)].map(describe).into(),
        }
    }
}

/// One path as the policy of a class of operations sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathView {
    /// `read`, `write`, or `other` (flush, discard and write zeroes).
    pub class: String,
    /// The path's number on the disk, from 0.
    pub index: u16,
    /// The path's address.
    pub address: PathAddress,
    /// The path's state.
    pub state: PathState,
    /// Share of the disk's I/Os of this class in the last second, 0 to 1.
    pub share_1s: f64,
    /// Share of the disk's I/Os of this class in the last minute, 0 to 1.
    pub share_60s: f64,
    /// The policy's estimate of the path.
    #[serde(flatten)]
    pub estimate: PathEstimate,
}

/// A policy's estimate of a path. Values that the policy does not use are left out.
///
/// Each I/O thread has a policy of its own. Weight and latency are means over the threads that have measured the path. The age is
/// the least of all threads. The other values are sums.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PathEstimate {
    /// I/Os sent to the path in one round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// Estimated latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// Bytes that may be in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// I/Os that passed the path over since the last one that it got. Below 0: I/Os still to be sent to the path to measure it
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<i64>,
    /// I/Os that passed the path over since it became live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<u64>,
    /// Checkpoints: how often the policy began to measure the path again, because it did not choose the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<u64>,
    /// I/Os completed since the last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_ios: Option<u64>,
    /// Average latency of these I/Os.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_avg_us: Option<f64>,
}
