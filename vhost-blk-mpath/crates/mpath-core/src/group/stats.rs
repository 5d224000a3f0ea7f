//! Statistics of a group.

use monotonic::Instant;

use super::Group;
use crate::path::Path;
use crate::{DiskId, DiskMinute, GroupStats, GuestStats, MinuteStats, OpClass, PathId, PathMinute, PathStats};

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
            guests: self.guest_stats(now),
            fence_waits: self.disks.iter().map(|disk| disk.fence_waits).collect(),
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
                    classes: path.class_stats(self.since_start.until(now)),
                    estimates: OpClass::ALL.map(|class| self.policies.estimate(PathId(id), class)),
                })
                .collect(),
        }
    }

    /// The minute that has begun with the last [`Group::take_minute`], or with the start.
    #[must_use]
    pub fn minute(&self, now: Instant) -> MinuteStats {
        let oldest = self.oldest(now);
        let of_disk = |disk: DiskId| DiskMinute {
            oldest: oldest[disk.index()].map(|at| now - at),
            ..self.disks[disk.index()].guest.untaken()
        };
        let added = self.paths.iter().zip(0..).filter(|(path, _)| path.added);
        let of_path = |(path, id): (&Path, u16)| {
            let latencies = path.untaken();
            latencies.iter().any(Option::is_some).then_some(PathMinute { path: PathId(id), latencies })
        };
        MinuteStats {
            covered: now - self.minute_began,
            disks: self.disks().map(of_disk).collect(),
            paths: added.filter_map(of_path).collect(),
            stalled: self.host_time.sum().saturating_sub(self.taken_stalled),
        }
    }

    /// The same, and the next minute begins.
    pub fn take_minute(&mut self, now: Instant) -> MinuteStats {
        let minute = self.minute(now);
        self.disks.iter_mut().for_each(|disk| disk.guest.take());
        self.paths.iter_mut().for_each(Path::take_minute);
        (self.minute_began, self.taken_stalled) = (now, self.host_time.sum());
        minute
    }

    fn guest_stats(&self, now: Instant) -> Vec<GuestStats> {
        let oldest = self.oldest(now).into_iter().map(|oldest| oldest.map(|at| now - at));
        self.disks
            .iter()
            .zip(oldest)
            .map(|(disk, oldest)| disk.guest.stats(self.since_start.until(now), oldest))
            .collect()
    }
}
