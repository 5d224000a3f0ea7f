//! Statistics of a group.

use std::time::Instant;

use super::Group;
use crate::{DiskId, GroupStats, GuestStats, OpClass, PathId, PathStats};

impl Group {
    /// A snapshot of the statistics, histograms included.
    #[must_use]
    pub fn stats(&self, now: Instant) -> GroupStats {
        let all = self.paths.iter().zip(0..).filter(|(path, _)| path.added);
        GroupStats {
            policy: *self.policies.specs(),
            queued: self.scheduler.len() as u64,
            backoff: self.backoff,
            failover_times: self.failover_times.clone(),
            guests: self.disks().map(|disk| self.guest_stats(now, disk)).collect(),
            fence_waits: self.disks.iter().map(|disk| disk.fence_waits).collect(),
            host: vec![self.host_time.stats().clone()],
            scheduler: self.scheduler.stats(now),
            hedging: self.hedges.counts(),
            paths: all
                .map(|(path, id)| PathStats {
                    path: PathId(id),
                    ana: path.association.map(|association| association.ana),
                    resting: path.per_disk.iter().any(|disk| disk.rest.is_on(now)),
                    suspect: path.watch.is_suspect(),
                    suspicions: path.suspicions,
                    recalled: path.recalled,
                    probes: path.probes,
                    hedges: path.hedges,
                    hedges_won: path.hedges_won,
                    injections: path.injections.as_ref().map_or(0, |injections| injections.in_force().count()),
                    fenced: path.fenced.len() as u64,
                    draining: path.draining,
                    flushes_open: self.flushes.open_on(PathId(id)) + u64::from(path.daemon_flushes),
                    classes: path.class_stats(now - self.started),
                    estimates: OpClass::ALL.map(|class| self.policies.estimate(PathId(id), class)),
                })
                .collect(),
        }
    }

    fn guest_stats(&self, now: Instant, disk: DiskId) -> GuestStats {
        let oldest = self.oldest(now, disk).map(|at| now - at);
        self.disks[disk.index()].guest.stats(now - self.started, oldest)
    }
}
