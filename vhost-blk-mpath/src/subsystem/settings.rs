//! The settings that can be changed while I/O runs. The returned receivers resolve once the I/O threads have them.

use std::time::Instant;

use mpath_api::config::{HedgeSetting, LimitsConfig, Weight};
use mpath_api::types::EventKind;
use mpath_core::{ClassPolicies, DiskId, SchedulerSpec};
use reactor::IoThreadHandle;
use tokio::sync::oneshot;

use crate::io_threads::{barrier, tell_threads};
use crate::subsystem::{PolicySetBy, Subsystem};

impl Subsystem {
    pub(crate) fn change_policy(
        &self,
        change: impl FnOnce(&mut ClassPolicies),
        by: PolicySetBy,
    ) -> Vec<oneshot::Receiver<()>> {
        let mut state = self.state();
        let before = state.policy;
        change(&mut state.policy);
        if state.policy != before {
            self.event(None, EventKind::PolicySet, format!("policy set to {}{by}", state.policy));
        }
        self.update_vendor_windows(&state);
        let notify = |thread: &IoThreadHandle| {
            thread.set_policy(state.policy);
            barrier(thread)
        };
        self.threads().iter().map(notify).collect()
    }

    pub(crate) fn change_hedge(&self, change: impl FnOnce(&mut HedgeSetting)) -> Vec<oneshot::Receiver<()>> {
        let mut state = self.state();
        let before = state.hedge;
        change(&mut state.hedge);
        if state.hedge != before {
            let HedgeSetting { hedge, budget } = state.hedge;
            self.event(None, EventKind::HedgeSet, format!("hedge set to {hedge}; budget {budget}"));
        }
        tell_threads(self.threads(), |thread| thread.set_hedging(state.hedge.hedging()))
    }

    pub(crate) fn change_scheduler(&self, change: impl FnOnce(&mut SchedulerSpec)) -> Vec<oneshot::Receiver<()>> {
        let mut state = self.state();
        let before = state.scheduler;
        change(&mut state.scheduler);
        if state.scheduler != before {
            self.event(None, EventKind::SchedulerSet, format!("scheduler set to {}", state.scheduler));
        }
        tell_threads(self.threads(), |thread| thread.set_scheduler(state.scheduler))
    }

    pub(crate) fn change_limits(
        &self,
        disk: DiskId,
        change: impl FnOnce(&mut LimitsConfig),
    ) -> Vec<oneshot::Receiver<()>> {
        {
            let disk = self.disk(disk);
            let mut tuning = disk.tuning();
            let before = tuning.limits;
            change(&mut tuning.limits);
            if tuning.limits != before {
                disk.event(EventKind::LimitsSet, format!("limits set to {}", tuning.limits));
            }
            disk.shared.limits.set(Instant::now(), tuning.limits.limits());
        }
        // The threads read the limits themselves. This wakes a thread that waits because of the earlier limits.
        tell_threads(self.threads(), |_| ())
    }

    pub(crate) fn set_weight(&self, disk: DiskId, weight: Weight) -> Vec<oneshot::Receiver<()>> {
        let disk = self.disk(disk);
        let mut tuning = disk.tuning();
        if std::mem::replace(&mut tuning.weight, weight) != weight {
            disk.event(EventKind::WeightSet, format!("weight set to {weight}"));
        }
        tell_threads(self.threads(), |thread| thread.set_weight(disk.id, weight.get() as u16))
    }
}
