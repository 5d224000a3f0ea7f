//! Changes of the settings that can be changed while I/O runs.

use mpath_core::{ParamError, PolicyChange, PolicyClass, PolicyKind, SchedulerChange, SchedulerKind};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{
    Hedge, HedgeBudget, HedgeSetting, LimitBandwidth, LimitBurst, LimitIops, LimitsConfig, LiveSetting, LiveSettings,
    Weight,
};
use crate::{policy_serde, scheduler_serde};

/// The body of `PUT /v1/settings`. A setting that is left out keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SetSettings {
    /// The disk. If left out: every disk that has the settings. A disk that shares paths has only `limits` and `weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// The policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SetPolicy>,
    /// The scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SetScheduler>,
    /// The limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SetLimits>,
    /// The share among the disks over the same paths. It needs `disk` if there are several disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The reads to hedge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// The most hedges, as a share of all reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge_budget: Option<HedgeBudget>,
}

/// A policy to switch to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy. If it is already in force, it keeps its estimates, and the parameters that are not given keep their values.
    #[serde(with = "policy_serde::kind")]
    #[schema(value_type = policy_serde::PolicyNameSchema)]
    pub name: PolicyKind,
    /// Parameters by name. The value `default` sets the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "policy_serde::params")]
    #[schema(value_type = policy_serde::ParamsSchema)]
    pub params: Vec<(String, String)>,
    /// The class of requests. If left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "policy_serde::class")]
    #[schema(value_type = Option<policy_serde::ClassSchema>)]
    pub class: Option<PolicyClass>,
}

/// A scheduler to switch to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetScheduler {
    /// The scheduler. If it is already in force, it keeps the state of the virtqueues, and the parameters that are not given keep
    /// their values.
    #[serde(with = "scheduler_serde::kind")]
    #[schema(value_type = scheduler_serde::SchedulerNameSchema)]
    pub name: SchedulerKind,
    /// Parameters by name. The value `default` sets the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "policy_serde::params")]
    #[schema(value_type = policy_serde::ParamsSchema)]
    pub params: Vec<(String, String)>,
}

/// Limits to set. A limit that is left out keeps its value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SetLimits {
    /// Requests per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<LimitIops>,
    /// Bytes per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<LimitBandwidth>,
    /// The burst that may be saved up: what the limits allow in this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<LimitBurst>,
}

impl SetSettings {
    /// The same change, of one disk alone.
    #[must_use]
    pub fn of(self, disk: &str) -> Self {
        Self { disk: Some(disk.into()), ..self }
    }

    /// The settings that it changes.
    pub fn settings(&self) -> impl Iterator<Item = LiveSetting> {
        let is_given = [
            self.policy.is_some(),
            self.scheduler.is_some(),
            self.limits.is_some_and(|limits| limits != SetLimits::default()),
            self.weight.is_some(),
            self.hedge.is_some(),
            self.hedge_budget.is_some(),
        ];
        LiveSetting::ALL.into_iter().zip(is_given).filter_map(|(setting, is_given)| is_given.then_some(setting))
    }

    /// The change of the settings of one disk.
    pub fn change(&self) -> Result<impl Fn(&mut LiveSettings) + use<>, ParamError> {
        fn params(params: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
            params.iter().map(|(name, value)| (&**name, &**value))
        }
        let policy = self.policy.as_ref().map(|of| PolicyChange::new(of.name, of.class, params(&of.params)));
        let scheduler = self.scheduler.as_ref().map(|of| SchedulerChange::new(of.name, params(&of.params)));
        let (policy, scheduler) = (policy.transpose()?, scheduler.transpose()?);
        let Self { weight, hedge, hedge_budget, .. } = *self;
        let limits = self.limits.unwrap_or_default();
        Ok(move |live: &mut LiveSettings| {
            policy.iter().for_each(|change| live.policy.change(change));
            scheduler.iter().for_each(|change| live.scheduler.change(change));
            live.limits = LimitsConfig {
                iops: limits.iops.unwrap_or(live.limits.iops),
                bandwidth: limits.bandwidth.unwrap_or(live.limits.bandwidth),
                burst: limits.burst.unwrap_or(live.limits.burst),
            };
            live.weight = weight.unwrap_or(live.weight);
            live.hedge = HedgeSetting {
                hedge: hedge.unwrap_or(live.hedge.hedge),
                budget: hedge_budget.unwrap_or(live.hedge.budget),
            };
        })
    }
}

impl From<PolicyKind> for SetPolicy {
    /// A switch of all requests.
    fn from(name: PolicyKind) -> Self {
        Self { name, params: Vec::new(), class: None }
    }
}

impl From<SetPolicy> for SetSettings {
    fn from(policy: SetPolicy) -> Self {
        Self { policy: Some(policy), ..Self::default() }
    }
}

impl From<PolicyKind> for SetSettings {
    fn from(policy: PolicyKind) -> Self {
        SetPolicy::from(policy).into()
    }
}

impl From<SetScheduler> for SetSettings {
    fn from(scheduler: SetScheduler) -> Self {
        Self { scheduler: Some(scheduler), ..Self::default() }
    }
}

impl From<SetLimits> for SetSettings {
    fn from(limits: SetLimits) -> Self {
        Self { limits: Some(limits), ..Self::default() }
    }
}
