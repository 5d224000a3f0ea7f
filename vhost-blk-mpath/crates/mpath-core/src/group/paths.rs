//! Decides: a request goes on after its fence (`fence_lifted`).
//! Decides: a path does not lead to the disk after a path error until a request succeeds (`find_disks_without_path`).
//!
//! Paths that come and go, and fences of lost associations.

use monotonic::Instant;

use super::Group;
use crate::path::Path;
use crate::requests::State;
use crate::{AnaState, Association, DiskId, Epoch, MAX_PATHS, PathConfig, PathId, Tag};

impl Group {
    /// Adds a path. The path is down at first. Its id, below [`MAX_PATHS`], must be free: never used, or the id of a
    /// removed path.
    ///
    /// Add a path to every group of the disks before it is up in any: a flush goes only to paths that its group
    /// knows.
    pub fn add_path(&mut self, id: PathId, config: PathConfig) {
        assert!(id.index() < MAX_PATHS, "at most {MAX_PATHS} paths");
        while self.paths.len() <= id.index() {
            self.paths.push(Path::vacant(self.config.suspect_timeout, self.disks.len()));
        }
        let path = &mut self.paths[id.index()];
        assert!(!path.added, "a path is added once");
        (path.added, path.config) = (true, config);
        self.policies.iter_mut().for_each(|policy| policy.path_changed(id));
    }

    /// Removes a path that is down. No request may be issued on it, wait for one of its fences or, as a flush, wait for
    /// the path. The group forgets the path, except the writes that its cache lost: the next flush fails because of
    /// them. The epochs of the next path with this id continue from the last epoch.
    pub fn remove_path(&mut self, id: PathId) {
        let path = &mut self.paths[id.index()];
        assert!(path.added && path.association.is_none(), "only a path that is down is removed");
        let idle = path.fenced.is_empty() && path.stats.iter().all(|class| class.in_flight == 0);
        assert!(idle && self.flushes.open_on(id) == 0, "a path is removed only when no request or flush needs it");
        *path = Path { last_epoch: path.last_epoch, ..Path::vacant(self.config.suspect_timeout, self.disks.len()) };
        self.disks.iter().for_each(|disk| disk.unflushed.path_removed(id));
        self.policies.iter_mut().for_each(|policy| policy.path_changed(id));
        self.requests.iter_mut().filter_map(|request| request.tried.as_mut()).for_each(|tried| tried.forget_path(id));
    }

    /// Records that a path has a live controller and a ready queue pair.
    ///
    /// Associations of one path follow each other in every group of the disks. Before the next is up in any group,
    /// the previous must be lost in all.
    pub fn path_up(&mut self, now: Instant, id: PathId, association: Association) {
        let path = &mut self.paths[id.index()];
        assert!(path.association.is_none(), "the path is down");
        assert!(path.last_epoch < Some(association.epoch), "epochs grow with each association");
        path.association = Some(association);
        path.last_epoch = Some(association.epoch);
        path.reset_watch(self.config.suspect_timeout);
        for ((disk, per_disk), of) in self.disks.iter().zip(&mut path.per_disk).zip(0..) {
            per_disk.rest.clear();
            per_disk.cache_period = association.epoch.into();
            disk.unflushed.association_begun(now, id, association.epoch, association.volatile_write_cache);
            if association.ana.of(DiskId(of)) == AnaState::PersistentLoss {
                per_disk.cache_period = per_disk.cache_period.next();
                disk.unflushed.namespace_lost(now, id, per_disk.cache_period);
            }
        }
        self.path_changed(now, id);
    }

    /// Takes the ANA state of a disk's namespace on a live path, from the latest ANA log page of the path.
    pub fn ana_changed(&mut self, now: Instant, id: PathId, disk: DiskId, ana: AnaState) {
        let path = &mut self.paths[id.index()];
        // The path may have been lost while this event was on its way.
        let Some(association) = &mut path.association else {
            return;
        };
        let before = association.ana.set(disk, ana);
        if ana == before {
            // The event is about another disk, or the state has changed and changed back. Either way earlier path
            // errors are out of date.
            path.per_disk[disk.index()].rest.clear();
            self.find_disks_without_path(now);
            self.refresh_eligible(now);
            return;
        }
        let unflushed = &self.disks[disk.index()].unflushed;
        let per_disk = &mut path.per_disk[disk.index()];
        if ana == AnaState::PersistentLoss {
            // The controller will never flush what it has not flushed so far.
            per_disk.cache_period = per_disk.cache_period.next();
            unflushed.namespace_lost(now, id, per_disk.cache_period);
        } else if before == AnaState::PersistentLoss {
            unflushed.namespace_back(id, per_disk.cache_period, association.volatile_write_cache);
        }
        per_disk.rest.clear();
        if !ana.is_selectable() {
            self.take_back_unsent_of(now, id, disk);
        }
        self.path_changed(now, id);
    }

    /// Drains a path, or ends its draining. A draining path gets no new requests, even if no other path is left.
    /// Requests that its injection keeps go back to their queues. Requests already sent finish. Flushes still go to the
    /// path.
    ///
    /// Ignored after the path was removed: the next path with this id must not inherit the draining.
    pub fn set_draining(&mut self, now: Instant, id: PathId, draining: bool) {
        if !self.paths[id.index()].added {
            return;
        }
        self.paths[id.index()].draining = draining;
        self.refresh_eligible(now);
        if draining {
            self.take_back_unsent(now, id);
        }
    }

    /// Handles the end of a path's association. The group issues nothing more on it. The driver then answers every
    /// request that it got, with [`crate::Outcome::Lost`] if there was no answer.
    pub fn path_lost(&mut self, now: Instant, id: PathId) {
        if let Some(association) = self.paths[id.index()].association {
            self.disks.iter().for_each(|disk| disk.unflushed.association_lost(now, id, association.epoch));
            self.path_closed(now, id);
        }
    }

    /// Closes the group's part of an association at the end of the daemon. Other groups may still flush the
    /// association. When all groups have ended, ask [`crate::UnflushedPaths::has_unreported_loss`].
    pub fn path_closed(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        if path.association.take().is_none() {
            return;
        }
        for disk in &mut path.per_disk {
            disk.rest.clear();
            (disk.daemon_flush, disk.daemon_flush_after, disk.daemon_flush_retries) = (None, None, 0);
        }
        path.daemon_flushes = 0;
        path.reset_watch(self.config.suspect_timeout);
        path.probe = None;
        self.timers.forget_probe(id);
        self.lose_hedges(id);
        self.path_changed(now, id);
        self.take_back_unsent(now, id);
        self.lose_delayed(now, id);
        // No controller is left to repeat these commands on.
        for tag in self.timers.take_flush_command_retries(id) {
            self.queue_flush_command(id, tag);
        }
    }

    /// Tries the requests again that wait for the fence of this association, because none of its commands can change
    /// data any more.
    ///
    /// Call it after the driver has reported the loss of all requests of the association. A fence says nothing about
    /// other associations.
    pub fn fence_lifted(&mut self, now: Instant, id: PathId, epoch: Epoch) {
        let path = &mut self.paths[id.index()];
        assert!(
            path.association.is_none_or(|live| live.epoch != epoch),
            "only an association that has ended is fenced"
        );
        let is_open = |tag: Tag| {
            let request = &self.requests[tag];
            request.state == State::InFlight && request.path == id && request.epoch == epoch
        };
        assert!(!self.requests.tags().any(is_open), "a fence lifts after the loss of its requests was reported");
        let fenced = std::mem::take(&mut path.fenced);
        let (lifted, left): (Vec<_>, _) = fenced.into_iter().partition(|&(of, _)| of == epoch);
        path.fenced = left;
        // Each request is pushed to the front of its flow, so the last is pushed first.
        for (_, tag) in lifted.into_iter().rev() {
            let request = &self.requests[tag];
            self.disks[request.io.disk.index()].fence_waits.add(now - request.history.phase_began());
            self.try_again(now, tag);
        }
    }

    fn path_changed(&mut self, now: Instant, id: PathId) {
        self.find_disks_without_path(now);
        self.policies.iter_mut().for_each(|policy| policy.path_changed(id));
        self.refresh_eligible(now);
    }

    /// Finds the disks to which no live path leads. A path that refuses the requests of a disk does not lead there.
    pub(super) fn find_disks_without_path(&mut self, now: Instant) {
        self.without_path = 0;
        for disk in self.disks() {
            let leads_there = |path: &Path| {
                let is_live =
                    path.association.as_ref().is_some_and(|live| live.ana.of(disk) != AnaState::PersistentLoss);
                is_live && !path.per_disk[disk.index()].rest.is_refusing()
            };
            let none = !self.paths.iter().any(leads_there);
            let since = &mut self.disks[disk.index()].no_path_since;
            *since = none.then(|| since.unwrap_or(now));
            self.without_path += usize::from(since.is_some());
        }
    }

    /// Takes back requests that are bound to the path and that its injection keeps.
    pub(super) fn take_back_unsent(&mut self, now: Instant, id: PathId) {
        self.forget_unsent_probe(id, |_| true);
        self.forget_unsent_hedges(id, |_| true);
        self.take_back(now, id, |_| true);
    }

    /// Takes back the requests of one disk that its injection keeps.
    pub(super) fn take_back_unsent_of(&mut self, now: Instant, id: PathId, disk: DiskId) {
        self.forget_unsent_probe(id, |of| of == disk);
        self.forget_unsent_hedges(id, |of| of == disk);
        self.take_back(now, id, |of| of == disk);
    }

    fn take_back(&mut self, now: Instant, id: PathId, of: impl Fn(DiskId) -> bool) {
        let mut unsent = Vec::new();
        let requests = &self.requests;
        self.released.retain(|&(path, tag, _)| {
            let goes = path == id && of(requests[tag].io.disk);
            if goes {
                unsent.push(tag);
            }
            !goes
        });
        unsent.append(&mut self.timers.take_injected(id, |tag| of(requests[tag].io.disk)));
        for tag in unsent.into_iter().rev() {
            if self.has_flush_commands(tag) {
                self.take_back_flush_command(id, tag);
            } else {
                self.unbind(tag);
                self.requeue(now, tag);
            }
        }
    }
}
