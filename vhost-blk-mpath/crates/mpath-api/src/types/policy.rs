//! Policies, their parameters, and what they think of paths.

use mpath_core::{ClassPolicies, PolicyClass, PolicyKind, PolicySpec};
use serde::{Deserialize, Serialize};

use super::{Parameter, PathState};
use crate::address::PathAddress;
use crate::{policy_form, policy_name};

/// `GET /v1/policies`: one policy that this daemon has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    #[serde(with = "policy_name")]
    pub name: PolicyKind,
    /// Names of the same policy elsewhere, which are understood too.
    pub aliases: Vec<String>,
    /// One line on what it does.
    pub description: String,
    /// What can be set.
    pub params: Vec<Parameter>,
    /// The disks that use it; of those over the same paths, the one that has these.
    pub active_on: Vec<String>,
}

/// `GET /v1/policy`, and the answer to `PUT`: which policy a disk uses, and those that share its paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPolicy {
    /// The disk's name.
    pub disk: String,
    /// Its policies, written as in the configuration file.
    #[serde(with = "policy_form")]
    pub policy: ClassPolicies,
}

/// The body of `PUT /v1/policy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy to switch to. If it is in force already it keeps its estimates, and parameters that are not named their
    /// values.
    #[serde(with = "policy_name")]
    pub policy: PolicyKind,
    /// Its parameters by name; the text `default` is the default of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "policy_form::params")]
    pub params: Vec<(String, String)>,
    /// The requests that it is for; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "policy_form::class")]
    pub class: Option<PolicyClass>,
    /// The disk, which has to have paths of its own; every such disk if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
}

impl From<PolicyKind> for SetPolicy {
    /// For every disk and all requests.
    fn from(policy: PolicyKind) -> Self {
        Self { policy, params: Vec::new(), class: None, disk: None }
    }
}

/// `GET /v1/policy/detail`: the policies of one disk with all that is known of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyDetail {
    /// The disk's name.
    pub disk: String,
    /// The policy of all requests; or that of reads and that of the others.
    pub policies: Vec<PolicyInForce>,
    /// What they think of the disk's paths, by class and path.
    pub paths: Vec<PathView>,
}

/// A policy that decides now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyInForce {
    /// The requests it decides about: `all`, `read`, or `write`, which is all but reads.
    pub class: String,
    /// Its name.
    #[serde(with = "policy_name")]
    pub name: PolicyKind,
    /// One line on what it does.
    pub description: String,
    /// Its parameters.
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

/// One path, as the policy of a class of operations sees it, and what comes of that.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathView {
    /// `read`, `write`, or `other` (flush, discard and write zeroes).
    pub class: String,
    /// Position among the disk's paths, from 0.
    pub index: u16,
    /// Where the path leads.
    pub address: PathAddress,
    /// Whether it works.
    pub state: PathState,
    /// Its part of the disk's I/Os of this class in the last second, 0 to 1.
    pub share_1s: f64,
    /// Its part of them in the last minute, 0 to 1.
    pub share_60s: f64,
    /// What the policy thinks of it.
    #[serde(flatten)]
    pub estimate: PathEstimate,
}

/// What the policy of a class of operations thinks of a path. What it has no notion of is left out.
///
/// Each I/O thread has a policy of its own. Weight and latency are means over those that have measured the path, the age is
/// the least, everything else adds up.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PathEstimate {
    /// How many I/Os in a round go there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u64>,
    /// The latency it is taken to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// What it may have in flight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_bytes: Option<u64>,
    /// How many I/Os could have gone there since the last one that did. Below 0: how many are still to go there to measure
    /// it anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<i64>,
    /// How many I/Os could have gone there and did not, since it came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignored: Option<u64>,
    /// How often it began to be measured anew because it was not chosen any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<u64>,
    /// I/Os it has answered since the last checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_ios: Option<u64>,
    /// Their average latency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_avg_us: Option<f64>,
}
