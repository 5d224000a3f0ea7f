//! Statistics of a group.

use std::time::Instant;

use super::Group;
use crate::path::Path;
use crate::recent_latencies::minute;
use crate::{
    ClassLatencies, DiskId, DiskMinute, GroupStats, GuestStats, MinuteStats, OpClass, PathId, PathMinute, PathStats,
};

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

    /// The minute of this many minutes ago: 0 is the present one, and 1 the one before. Older ones are not kept. Minutes
    /// begin as [`crate::GroupConfig::minutes_since`] says.
    #[must_use]
    pub fn minute(&self, now: Instant, minutes_ago: u64) -> MinuteStats {
        let at = |time: Instant| minute(time.saturating_duration_since(self.started));
        let wanted = at(now).checked_sub(minutes_ago);
        let of_disk = |disk: DiskId| {
            let guest = &self.disks[disk.index()].guest;
            let ended = self.slow.recent(now).filter(|slow| slow.io.disk == disk && Some(at(slow.ended_at)) == wanted);
            DiskMinute {
                latencies: wanted.map_or_else(ClassLatencies::default, |wanted| guest.minute(wanted)),
                long_stages: guest.long_stages(),
                slowest: ended.max_by_key(|slow| slow.total).copied(),
            }
        };
        let added = self.paths.iter().zip(0..).filter(|(path, _)| path.added);
        let of_path = |(path, id): (&Path, u16)| {
            let latencies = path.minute(wanted?);
            latencies.iter().any(Option::is_some).then_some(PathMinute { path: PathId(id), latencies })
        };
        MinuteStats {
            disks: self.disks().map(of_disk).collect(),
            paths: added.filter_map(of_path).collect(),
            stalled: self.host_time.stats().stalled,
        }
    }

    fn guest_stats(&self, now: Instant, disk: DiskId) -> GuestStats {
        let oldest = self.oldest(now, disk).map(|at| now - at);
        self.disks[disk.index()].guest.stats(now - self.started, oldest)
    }
}
