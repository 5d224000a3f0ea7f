//! The settings that can be changed while I/O runs.

use std::time::SystemTime;

use monotonic::Instant;
use mpath_api::types::{EventKind, LastChange};
use mpath_api_server::caller;
use mpath_config::{HedgeSetting, LiveSettings};
use mpath_core::DiskId;
use reactor::IoThreadHandle;
use tokio::sync::oneshot;

use crate::events::utc;
use crate::io_threads::tell_threads;
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
        state.set_live(disk.id, live, &LastChange { at: utc(SystemTime::now()), source: by.into(), by: caller() });
        let LiveSettings { policy, scheduler, limits, weight, hedge, min_paths } = live;
        if policy != before.policy {
            self.event(None, EventKind::PolicySet, format!("policy set to {policy}{by}, was {}", before.policy));
            self.update_vendor_windows(&state);
        }
        if scheduler != before.scheduler {
            self.event(
                None,
                EventKind::SchedulerSet,
                format!("scheduler set to {scheduler}, was {}", before.scheduler),
            );
        }
        if hedge != before.hedge {
            let text = |HedgeSetting { hedge, budget }| format!("{hedge}; budget {budget}");
            let message = format!("hedge set to {}, was {}", text(hedge), text(before.hedge));
            self.event(None, EventKind::HedgeSet, message);
        }
        if min_paths != before.min_paths {
            self.event(None, EventKind::MinPathsSet, format!("min-paths set to {min_paths}, was {}", before.min_paths));
        }
        if limits != before.limits {
            disk.event(EventKind::LimitsSet, format!("limits set to {limits}, was {}", before.limits));
            disk.shared.limits.set(Instant::now(), limits.limits());
        }
        if weight != before.weight {
            disk.event(EventKind::WeightSet, format!("weight set to {weight}, was {}", before.weight));
        }
        tell_threads(self.threads(), |thread| Self::tell_settings(thread, disk.id, Some(&before), &live))
    }
    /// Tells an I/O thread the settings of a disk that differ from those `before`. The thread reads limits itself: any message wakes a
    /// thread that waits because of earlier ones.
    pub(super) fn tell_settings(
        thread: &IoThreadHandle,
        disk: DiskId,
        before: Option<&LiveSettings>,
        live: &LiveSettings,
    ) {
        if before.is_none_or(|before| before.policy != live.policy) {
            thread.set_policy(live.policy);
        }
        if before.is_none_or(|before| before.scheduler != live.scheduler) {
            thread.set_scheduler(live.scheduler);
        }
        if before.is_none_or(|before| before.hedge != live.hedge) {
            thread.set_hedging(live.hedge.hedging());
        }
        if before.is_none_or(|before| before.weight != live.weight) {
            thread.set_weight(disk, live.weight.get() as u16);
        }
    }
}
