//! Decides: an operator may declare a fence, a guest or lost writes void.
//!
//! Fences as operators see them, and the parts of a fence record that an operator declares void.

use std::sync::Arc;
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{ClearedFence, DiskFences, EventKind, FenceLift, InheritedFence, PathFence};
use mpath_api_server::ControlError;
use mpath_core::{DiskId, PathId};
use mpath_lifecycle::HeldFence;

use crate::disk::Disk;
use crate::disk_files::fence_record::WriteError;
use crate::events::utc;
use crate::subsystem::Subsystem;
use crate::subsystem::path_status::PathStatus;

impl Subsystem {
    /// The fences of a disk, a guest that it waits for, and lost writes that it has to report.
    pub(crate) fn fences_of(&self, disk: &Disk) -> DiskFences {
        let (index, now) = (usize::from(disk.id.0), Instant::now());
        // The disk that has the paths shows their fences.
        let held = if disk.id == DiskId(0) { self.fences.held() } else { Vec::new() };
        let inherited = disk.inherited_fence().filter(|fence| fence.until > now).map(|fence| InheritedFence {
            // Rounded up, so that 0 is never shown.
            ends_in_ms: (fence.until - now).as_millis() + 1,
            removed_disk: fence.of,
        });
        DiskFences {
            disk: disk.name().into(),
            record: self.records.file(index).display().to_string(),
            fences: held.iter().map(|fence| self.fence_for_api(fence, now)).collect(),
            inherited,
            guest_of: self.guest_of(disk),
            lost_writes: self.has_lost_writes(disk),
        }
    }

    /// The time until the last fence of a path lifts at the latest, unless its connections are half-closed.
    pub(crate) fn fence_left(&self, path: PathId) -> Option<Duration> {
        let of_path = self.fences.held().into_iter().filter(|fence| fence.of.path == path);
        of_path.filter_map(|fence| fence.lifts_at).max().map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn fence_for_api(&self, fence: &HeldFence, now: Instant) -> PathFence {
        let lifts_by = [
            (fence.lifts_at.is_some(), FenceLift::Time),
            (fence.lifts_at.is_none(), FenceLift::Drain),
            (fence.may_be_reset, FenceLift::CrossReset),
        ];
        PathFence {
            path: self.state().path(fence.of.path).map(PathStatus::named),
            since: utc(SystemTime::now() - (now - fence.begun).into()),
            ends_in_ms: fence.lifts_at.map(|at| at.saturating_duration_since(now).as_millis() + 1),
            lifts_by: lifts_by.into_iter().filter_map(|(can, by)| can.then_some(by)).collect(),
        }
    }

    /// The namespace of a guest that may come back with unanswered requests.
    fn guest_of(&self, disk: &Disk) -> Option<String> {
        let before = self.records.previous_namespace(disk.id.0.into());
        let name = before.or(disk.backing().map(|backing| &backing.name));
        // A record without a namespace is of an older version.
        disk.queues.has_unanswered().then(|| name.map_or_else(|| "an unknown namespace".into(), ToString::to_string))
    }

    fn has_lost_writes(&self, disk: &Disk) -> bool {
        let is_recorded = disk.backing().is_none() && self.records.lost_writes(disk.id.0.into()).is_some();
        let unflushed = &disk.shared.unflushed;
        let is_lost =
            if self.config.shared_write_cache { unflushed.has_shared_cache_loss() } else { unflushed.has_known_loss() };
        is_recorded || is_lost
    }

    /// Forgets what keeps a disk from another namespace or guest. An inherited fence that has not passed, and lost
    /// writes, need `force`.
    pub(crate) async fn clear_fences(
        self: &Arc<Self>,
        id: DiskId,
        force: bool,
    ) -> Result<Vec<ClearedFence>, ControlError> {
        let (disk, index) = (self.disk(id), usize::from(id.0));
        let name = || disk.name().to_owned();
        let connected = || disk.is_connected().then(|| ControlError::GuestGoesOn(name()));
        connected().map_or(Ok(()), Err)?;
        let DiskFences { inherited, guest_of, lost_writes, .. } = self.fences_of(disk);
        if guest_of.is_none() && inherited.is_none() && !lost_writes {
            return Ok(Vec::new());
        }
        if let Some(InheritedFence { ends_in_ms, .. }) = inherited.as_ref().filter(|_| !force) {
            return Err(ControlError::FenceNotPassed { disk: name(), left_s: ends_in_ms.div_ceil(1000) });
        }
        if lost_writes && !force {
            return Err(ControlError::LostWrites(name()));
        }
        let unwritten = |error: WriteError| ControlError::FenceRecord(error.to_string());
        self.records.forget_guest(index, lost_writes).await.map_err(unwritten)?;
        // The guest may have come back meanwhile.
        connected().map_or(Ok(()), Err)?;
        disk.queues.forget_unanswered();
        if lost_writes {
            disk.shared.unflushed.forget_losses();
        }
        if inherited.is_some() {
            self.change_disk(id, |disk| disk.hold.end_fence(Instant::now()));
            // The fence record loses the fence, unless some path was not tried.
            self.signal_change();
        }
        // Other disks may write to the earlier namespace from now on.
        self.writers.keep_only(disk.name(), disk.backing().map(|backing| &backing.name));
        let parts = [
            (guest_of.is_some(), ClearedFence::UnansweredRequests),
            (inherited.is_some(), ClearedFence::InheritedFence),
            (lost_writes, ClearedFence::LostWrites),
        ];
        let cleared: Vec<_> = parts.into_iter().filter_map(|(is, part)| is.then_some(part)).collect();
        let names: Vec<_> = cleared.iter().map(ToString::to_string).collect();
        let of = guest_of.map_or(String::new(), |of| format!("; no guest of {of} can come back"));
        let forced = if force { "; forced" } else { "" };
        disk.event(EventKind::FenceCleared, format!("cleared: {}{of}{forced}", names.join(", ")));
        Ok(cleared)
    }
}
