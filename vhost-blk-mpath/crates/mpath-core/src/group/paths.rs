//! Paths that come and go, and the fences of those that went.

use std::time::Instant;

use super::Group;
use crate::path::Path;
use crate::requests::State;
use crate::{AnaState, Association, DiskId, Epoch, MAX_PATHS, PathConfig, PathId};

impl Group {
    /// Adds a path, down at first. Its id, below [`MAX_PATHS`], is free: never used, or that of a path that was removed.
    ///
    /// Every group of the disks is to know of a path before it is up in any: a flush goes to the paths that its group knows.
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

    /// Removes a path that is down and of which nothing is left: no request is issued, waits for one of its fences or, being
    /// a flush, for the path. All that is known of it is forgotten, but not what its cache lost: the next flush fails for
    /// that. Of its id it stays known which epochs were used: those of the next path with it go on from there.
    pub fn remove_path(&mut self, id: PathId) {
        let path = &mut self.paths[id.index()];
        assert!(path.added && path.association.is_none(), "only a path that is down is removed");
        let idle = path.fenced.is_empty() && path.stats.iter().all(|class| class.in_flight == 0);
        assert!(idle && self.flushes.open_on(id) == 0, "only a path of which nothing is left is removed");
        *path = Path { last_epoch: path.last_epoch, ..Path::vacant(self.config.suspect_timeout, self.disks.len()) };
        self.disks.iter().for_each(|disk| disk.dirty.removed(id));
        self.policies.iter_mut().for_each(|policy| policy.path_changed(id));
        self.requests.iter_mut().for_each(|request| request.forget_path(id));
    }

    /// A path has a live controller and a ready queue pair.
    ///
    /// Associations of one path follow each other in every group of the disks: up in any only after lost in all.
    pub fn path_up(&mut self, now: Instant, id: PathId, association: Association) {
        let path = &mut self.paths[id.index()];
        assert!(path.association.is_none(), "the path is down");
        assert!(path.last_epoch < Some(association.epoch), "epochs grow with each association");
        path.association = Some(association);
        path.last_epoch = Some(association.epoch);
        path.begin_watch(self.config.suspect_timeout);
        for ((disk, of_disk), of) in self.disks.iter().zip(&mut path.of_disk).zip(0..) {
            of_disk.hold.clear();
            of_disk.life = association.epoch.into();
            disk.dirty.up(now, id, association.epoch, association.volatile_write_cache);
            if association.ana.of(DiskId(of)) == AnaState::PersistentLoss {
                of_disk.life = of_disk.life.next();
                disk.dirty.namespace_lost(now, id, of_disk.life);
            }
        }
        self.path_changed(now, id);
    }

    /// The ANA state of a disk's namespace on a live path, as its ANA log page has it now.
    pub fn ana_changed(&mut self, now: Instant, id: PathId, disk: DiskId, ana: AnaState) {
        let path = &mut self.paths[id.index()];
        // The path may have been lost while the news was on its way.
        let Some(association) = &mut path.association else {
            return;
        };
        let before = association.ana.set(disk, ana);
        if ana == before {
            // News of another disk, or what had changed has changed back: errors tell nothing any more.
            path.of_disk[disk.index()].hold.clear();
            self.refresh_eligible(now);
            return;
        }
        let dirty = &self.disks[disk.index()].dirty;
        let of_disk = &mut path.of_disk[disk.index()];
        if ana == AnaState::PersistentLoss {
            // What it has not flushed by now it never will.
            of_disk.life = of_disk.life.next();
            dirty.namespace_lost(now, id, of_disk.life);
        } else if before == AnaState::PersistentLoss {
            dirty.back(id, of_disk.life, association.volatile_write_cache);
        }
        of_disk.hold.clear();
        if !ana.is_selectable() {
            self.take_back_unsent_of(now, id, disk);
        }
        self.path_changed(now, id);
    }

    /// A draining path is given no new requests, also if that leaves none to choose from; what its injection holds goes back.
    /// What was sent ends as ever, and so does what flushes owe the path: they still reach it.
    ///
    /// An order that arrives after its path was removed has no effect: the next path with this id must not inherit it.
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

    /// The association of a path has ended, or is given up. Nothing more is issued on it. The driver then answers every
    /// request that it had been issued with its outcome, [`crate::Outcome::Lost`] if there was none.
    pub fn path_lost(&mut self, now: Instant, id: PathId) {
        if let Some(association) = self.paths[id.index()].association {
            self.disks.iter().for_each(|disk| disk.dirty.lost(now, id, association.epoch));
            self.path_left(now, id);
        }
    }

    /// The same at the end of this process, when this group has nothing more to do: other groups may still flush the association. Whoever
    /// ends the process asks [`crate::DirtyPaths::has_unreported_loss`] when all of them have ended.
    pub fn path_left(&mut self, now: Instant, id: PathId) {
        let path = &mut self.paths[id.index()];
        if path.association.take().is_none() {
            return;
        }
        path.of_disk.iter_mut().for_each(|disk| disk.hold.clear());
        path.begin_watch(self.config.suspect_timeout);
        path.probe = None;
        self.timers.forget_probe(id);
        self.lose_hedges(id);
        self.path_changed(now, id);
        self.take_back_unsent(now, id);
        self.lose_held(now, id);
        // Nobody is asked again.
        for tag in self.timers.take_leg_retries(id) {
            self.queue_leg(id, tag);
        }
    }

    /// No command of that association can change data any more: what waited for it may be tried again.
    ///
    /// May come before the driver has reported the loss of all requests. A fence says nothing about other associations.
    pub fn fence_lifted(&mut self, now: Instant, id: PathId, epoch: Epoch) {
        let path = &mut self.paths[id.index()];
        assert!(
            path.association.is_none_or(|live| live.epoch != epoch),
            "only an association that has ended is fenced"
        );
        let fenced = std::mem::take(&mut path.fenced);
        let (lifted, left): (Vec<_>, _) = fenced.into_iter().partition(|&(of, _)| of == epoch);
        path.fenced = left;
        // Pushed to the front one by one: the first one last.
        for (_, tag) in lifted.into_iter().rev() {
            self.try_again(now, tag);
        }
        for tag in self.requests.tags() {
            let request = &mut self.requests[tag];
            if request.state == State::InFlight && request.path == id && request.epoch == epoch {
                request.fence_lifted = true;
            }
        }
    }

    fn path_changed(&mut self, now: Instant, id: PathId) {
        for disk in self.disks() {
            let leads_there = |path: &Path| {
                path.association.as_ref().is_some_and(|live| live.ana.of(disk) != AnaState::PersistentLoss)
            };
            let none = !self.paths.iter().any(leads_there);
            let since = &mut self.disks[disk.index()].no_path_since;
            *since = none.then(|| since.unwrap_or(now));
        }
        self.policies.iter_mut().for_each(|policy| policy.path_changed(id));
        self.refresh_eligible(now);
    }

    /// What is bound to the path but still held by its injection goes back to where it came from.
    pub(super) fn take_back_unsent(&mut self, now: Instant, id: PathId) {
        self.forget_unsent_probe(id, |_| true);
        self.forget_unsent_hedges(id, |_| true);
        self.take_back(now, id, |_| true);
    }

    /// The same of one disk only.
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
            if self.has_legs(tag) {
                self.take_back_leg(id, tag);
            } else {
                self.unbind(tag);
                self.requeue(now, tag);
            }
        }
    }
}
