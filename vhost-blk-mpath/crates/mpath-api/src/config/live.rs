//! Decides: a setting of a disk can be changed while I/O runs (`LiveSetting`).
//!
//! The settings that can be changed while I/O runs.

use std::iter;

use mpath_core::{ClassPolicies, SchedulerSpec};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Config, DiskConfig, HedgeSetting, LimitsConfig, SharerConfig, Weight};

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
}

impl LiveSetting {
    /// Every such setting.
    pub const ALL: [Self; 6] =
        [Self::Policy, Self::Scheduler, Self::Limits, Self::Weight, Self::Hedge, Self::HedgeBudget];

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
        };
        let of = move |sharer: &SharerConfig| LiveSettings { limits: sharer.limits, weight: sharer.weight, ..own };
        iter::once(own).chain(self.share_paths_with.iter().map(of))
    }

    /// Sets what [`DiskConfig::live`] returns.
    pub fn set_live(&mut self, live: impl IntoIterator<Item = LiveSettings>) {
        let mut live = live.into_iter();
        if let Some(LiveSettings { policy, scheduler, limits, weight, hedge }) = live.next() {
            (self.policy, self.scheduler, self.limits, self.weight) = (policy, scheduler, limits, weight);
            (self.hedge, self.hedge_budget) = (hedge.hedge, hedge.budget);
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
