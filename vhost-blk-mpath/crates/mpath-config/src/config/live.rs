//! Decides: a setting of a disk can be changed while I/O runs (`LiveSetting`).
//!
//! The settings that can be changed while I/O runs: which they are, their values, and a change of them.

use std::iter;

use mpath_core::api::ParamsSchema;
use mpath_core::{
    ClassPolicies, ParamError, PolicyChange, PolicyClass, PolicyKind, SchedulerChange, SchedulerKind, SchedulerSpec,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Config, DiskConfig, Hedge, HedgeBudget, HedgeSetting, LimitBandwidth, LimitBurst, LimitIops, LimitsConfig,
    MinPaths, SharerConfig, Weight,
};
use crate::params;

/// A setting of a disk that can be changed while I/O runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LiveSetting {
    /// [`DiskConfig::policy`]
    Policy,
    /// [`DiskConfig::scheduler`]
    Scheduler,
    /// [`DiskConfig::limits`]
    Limits,
    /// [`DiskConfig::weight`]
    Weight,
    /// [`DiskConfig::hedge`]
    Hedge,
    /// [`DiskConfig::hedge_budget`]
    HedgeBudget,
    /// [`DiskConfig::min_paths`]
    MinPaths,
}

impl LiveSetting {
    /// Every such setting.
    pub const ALL: [Self; 7] =
        [Self::Policy, Self::Scheduler, Self::Limits, Self::Weight, Self::Hedge, Self::HedgeBudget, Self::MinPaths];

    /// The name in the configuration file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Scheduler => "scheduler",
            Self::Limits => "limits",
            Self::Weight => "weight",
            Self::Hedge => "hedge",
            Self::HedgeBudget => "hedge-budget",
            Self::MinPaths => "min-paths",
        }
    }

    /// Whether disks over the same paths have it together. Otherwise each disk has its own.
    #[must_use]
    pub fn is_of_paths(self) -> bool {
        !matches!(self, Self::Limits | Self::Weight)
    }
}

/// Whether a setting of this name can be changed while I/O runs. Paths are added and removed.
#[must_use]
pub fn is_live(setting: &str) -> bool {
    setting == "paths" || LiveSetting::ALL.iter().any(|live| live.name() == setting)
}

/// The values of these settings for one disk. A disk that shares paths has some together with the disk that has the paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveSettings {
    /// [`DiskConfig::policy`]
    pub policy: ClassPolicies,
    /// [`DiskConfig::scheduler`]
    pub scheduler: SchedulerSpec,
    /// [`DiskConfig::limits`]
    pub limits: LimitsConfig,
    /// [`DiskConfig::weight`]
    pub weight: Weight,
    /// [`DiskConfig::hedge`] and [`DiskConfig::hedge_budget`]
    pub hedge: HedgeSetting,
    /// [`DiskConfig::min_paths`]
    pub min_paths: MinPaths,
}

impl LiveSettings {
    /// The settings whose values differ from those of `other`.
    pub fn differing(&self, other: &Self) -> impl Iterator<Item = LiveSetting> {
        LiveSetting::ALL.into_iter().filter(|setting| {
            let mut with = *self;
            with.copy(setting.name(), other);
            with != *self
        })
    }

    /// Takes the value of the setting of this name from `other`.
    pub fn copy(&mut self, setting: &str, other: &Self) {
        match LiveSetting::ALL.into_iter().find(|live| live.name() == setting) {
            Some(LiveSetting::Policy) => self.policy = other.policy,
            Some(LiveSetting::Scheduler) => self.scheduler = other.scheduler,
            Some(LiveSetting::Limits) => self.limits = other.limits,
            Some(LiveSetting::Weight) => self.weight = other.weight,
            Some(LiveSetting::Hedge) => self.hedge.hedge = other.hedge.hedge,
            Some(LiveSetting::HedgeBudget) => self.hedge.budget = other.hedge.budget,
            Some(LiveSetting::MinPaths) => self.min_paths = other.min_paths,
            None => {}
        }
    }
}

impl DiskConfig {
    /// The settings that can be changed while I/O runs: of the disk, and then of the disks that share its paths.
    pub fn live(&self) -> impl Iterator<Item = LiveSettings> {
        let own = LiveSettings {
            policy: self.policy,
            scheduler: self.scheduler,
            limits: self.limits,
            weight: self.weight,
            hedge: HedgeSetting { hedge: self.hedge, budget: self.hedge_budget },
            min_paths: self.min_paths,
        };
        let of = move |sharer: &SharerConfig| LiveSettings { limits: sharer.limits, weight: sharer.weight, ..own };
        iter::once(own).chain(self.share_paths_with.iter().map(of))
    }

    /// Sets what [`DiskConfig::live`] returns.
    pub fn set_live(&mut self, live: impl IntoIterator<Item = LiveSettings>) {
        let mut live = live.into_iter();
        if let Some(LiveSettings { policy, scheduler, limits, weight, hedge, min_paths }) = live.next() {
            (self.policy, self.scheduler, self.limits, self.weight) = (policy, scheduler, limits, weight);
            (self.hedge, self.hedge_budget, self.min_paths) = (hedge.hedge, hedge.budget, min_paths);
        }
        for (sharer, live) in self.share_paths_with.iter_mut().zip(live) {
            (sharer.limits, sharer.weight) = (live.limits, live.weight);
        }
    }
}

impl Config {
    /// The settings of the disk of this name that can be changed while I/O runs.
    #[must_use]
    pub fn live_of(&self, name: &str) -> Option<LiveSettings> {
        let names = |disk: &DiskConfig| -> Vec<_> {
            let sharers = disk.share_paths_with.iter().map(|sharer| sharer.name.clone());
            iter::once(disk.name.clone()).chain(sharers).collect()
        };
        let mut all = self.disks.iter().flat_map(|disk| names(disk).into_iter().zip(disk.live()));
        all.find(|(of, _)| of.as_str() == name).map(|(_, live)| live)
    }
}

/// The body of `PUT /v1/settings`. A setting that is left out keeps its value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SetSettings {
    /// The disk. If left out: every disk that has the settings. A disk that shares paths has only `limits` and `weight`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// Limits and weights of every disk are meant. Without this, they need `disk` if there are several disks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<SetPolicy>,
    /// The scheduler.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<SetScheduler>,
    /// The limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SetLimits>,
    /// The share among the disks over the same paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<Weight>,
    /// The reads to hedge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge: Option<Hedge>,
    /// The most hedges, as a share of all reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hedge_budget: Option<HedgeBudget>,
    /// The paths that the disk is to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_paths: Option<MinPaths>,
}

/// A policy to switch to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetPolicy {
    /// The policy. If it is already in force, it keeps its estimates, and the parameters that are not given keep their values.
    pub name: PolicyKind,
    /// Parameters by name. The value `default` sets the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "params")]
    #[schema(value_type = ParamsSchema)]
    pub params: Vec<(String, String)>,
    /// The class of requests. If left out: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<PolicyClass>,
}

/// A scheduler to switch to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SetScheduler {
    /// The scheduler. If it is already in force, it keeps the state of the virtqueues, and the parameters that are not given keep
    /// their values.
    pub name: SchedulerKind,
    /// Parameters by name. The value `default` sets the default.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "params")]
    #[schema(value_type = ParamsSchema)]
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
            self.min_paths.is_some(),
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
        let Self { weight, hedge, hedge_budget, min_paths, .. } = *self;
        let limits = self.limits.unwrap_or_default();
        Ok(move |live: &mut LiveSettings| {
            if let Some(change) = &policy {
                live.policy.change(change);
            }
            if let Some(change) = &scheduler {
                live.scheduler.change(change);
            }
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
            live.min_paths = min_paths.unwrap_or(live.min_paths);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_one_setting_and_leaves_the_others() {
        let before = LiveSettings {
            policy: PolicyKind::Bdp.into(),
            scheduler: SchedulerKind::BurstCredit.into(),
            limits: LimitsConfig::default(),
            weight: Weight::new(100).unwrap(),
            hedge: HedgeSetting::default(),
            min_paths: MinPaths::Auto,
        };
        let wanted = LiveSettings {
            policy: PolicyKind::Numa.into(),
            scheduler: SchedulerKind::Fifo.into(),
            limits: LimitsConfig { iops: "5".parse().unwrap(), ..LimitsConfig::default() },
            weight: Weight::new(7).unwrap(),
            hedge: HedgeSetting { hedge: Hedge::Quantile(950), budget: "1%".parse().unwrap() },
            min_paths: MinPaths::Count(2),
        };
        let values = |of: &LiveSettings| {
            let HedgeSetting { hedge, budget } = of.hedge;
            let limits = of.limits.to_string();
            [
                of.policy.to_string(),
                of.scheduler.to_string(),
                limits,
                of.weight.to_string(),
                hedge.to_string(),
                budget.to_string(),
                of.min_paths.to_string(),
            ]
        };
        for (at, setting) in LiveSetting::ALL.into_iter().enumerate() {
            let mut after = before;
            after.copy(setting.name(), &wanted);
            let mut expected = values(&before);
            expected[at].clone_from(&values(&wanted)[at]);
            assert_eq!(values(&after), expected, "{setting:?}");
            assert_eq!(before.differing(&after).collect::<Vec<_>>(), [setting]);
        }
    }
}
