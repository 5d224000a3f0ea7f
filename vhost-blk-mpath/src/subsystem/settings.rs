//! The settings that can be changed while I/O runs.

use std::time::Instant;

use mpath_api::config::{HedgeSetting, LiveSettings};
use mpath_api::types::EventKind;
use mpath_core::DiskId;
use tokio::sync::oneshot;

use crate::io_threads::{tell_settings, tell_threads};
use crate::subsystem::{PolicySetBy, Subsystem};

impl Subsystem {
    /// Changes settings of a disk, and those of its paths for every disk over them. The returned receivers resolve once the I/O threads
    /// have the settings.
    pub(crate) fn change(
        &self,
        disk: DiskId,
        change: impl FnOnce(&mut LiveSettings),
        by: PolicySetBy,
    ) -> Vec<oneshot::Receiver<()>> {
        let disk = self.disk(disk);
        // Held until the threads are told, so that they learn of changes in order.
        let mut state = self.state();
        let before = *state.live(disk.id);
        let mut live = before;
        change(&mut live);
        state.set_live(disk.id, live);
        let LiveSettings { policy, scheduler, limits, weight, hedge } = live;
        if policy != before.policy {
            self.event(None, EventKind::PolicySet, format!("policy set to {policy}{by}"));
            self.update_vendor_windows(&state);
        }
        if scheduler != before.scheduler {
            self.event(None, EventKind::SchedulerSet, format!("scheduler set to {scheduler}"));
        }
        if hedge != before.hedge {
            let HedgeSetting { hedge, budget } = hedge;
            self.event(None, EventKind::HedgeSet, format!("hedge set to {hedge}; budget {budget}"));
        }
        if limits != before.limits {
            disk.event(EventKind::LimitsSet, format!("limits set to {limits}"));
            disk.shared.limits.set(Instant::now(), limits.limits());
        }
        if weight != before.weight {
            disk.event(EventKind::WeightSet, format!("weight set to {weight}"));
        }
        tell_threads(self.threads(), |thread| tell_settings(thread, disk.id, Some(&before), &live))
    }
}
