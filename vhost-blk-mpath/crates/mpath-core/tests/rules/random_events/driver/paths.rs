//! Events of paths: they come, go, are drained, probed and impaired.

use mpath_core::{AnaState, AnaStates, Association, DiskId, Epoch, MAX_PROBE_BYTES, Outcome, PathConfig, PathId};

use super::{Driver, ModelPath, count};
use crate::random_events::{DISKS, PATHS, QUEUE_DEPTH};

impl Driver {
    /// Ends the injections. Then the driver has everything that the path holds.
    pub(super) fn clear_injection(&mut self, path: usize) {
        let id = PathId(path as u16);
        self.group.clear_injection(self.now, id);
        assert!(self.group.injections().all(|(of, ..)| of != id));
        self.poll();
        let live = self.paths[path].live.map(|(epoch, _)| epoch);
        if let Some(stats) = self.group.stats(self.now).path(id) {
            let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
            let issued = self.issued.iter().filter(|issued| issued.path == id).count() as u64;
            assert_eq!(in_flight, issued, "held by nothing: {live:?}");
        }
    }

    pub(super) fn path(&mut self, id: PathId) -> &mut ModelPath {
        &mut self.paths[usize::from(id.0)]
    }

    pub(super) fn add(&mut self, path: usize) {
        if !std::mem::replace(&mut self.paths[path].added, true) {
            self.group.add_path(PathId(path as u16), PathConfig::default());
        }
    }

    /// Closes a path, reports everything it held as lost and lifts its fences.
    pub(super) fn give_up(&mut self, path: usize) {
        let id = PathId(path as u16);
        self.path_lost(path, 0);
        while let Some(n) = self.issued.iter().position(|i| i.path == id) {
            self.answer(n, Outcome::Lost { indeterminate: true });
        }
        let fences: Vec<_> = self.fences.iter().copied().filter(|(of, _)| *of == id).collect();
        for (of, epoch) in fences {
            self.lift_fence(of, epoch);
        }
        self.poll();
    }

    /// Removes a path if its statistics say that nothing is left. Its losses are not forgotten: `finish` checks this.
    pub(super) fn remove_if_nothing_is_left(&mut self, path: usize) {
        let id = PathId(path as u16);
        let stats = self.group.stats(self.now);
        assert_eq!(stats.path(id).is_some(), self.paths[path].added);
        let Some(stats) = stats.path(id) else { return };
        let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
        if self.paths[path].live.is_some() || (in_flight, stats.fenced, stats.flushes_open) != (0, 0, 0) {
            return;
        }
        assert!(self.issued.iter().all(|i| i.path != id) && self.unfenced.values().all(|(of, _)| *of != id));
        // A driver also waits for this, although it makes no difference to the group.
        if self.fences.iter().any(|(of, _)| *of == id) {
            return;
        }
        let last_epoch = self.paths[path].last_epoch;
        self.paths[path] = ModelPath { last_epoch, ..ModelPath::default() };
        self.group.remove_path(id);
    }

    pub(super) fn path_up(&mut self, path: usize, ana: [AnaState; DISKS]) {
        if self.paths[path].live.is_some() || !self.paths[path].added {
            return;
        }
        self.paths[path].last_epoch += 1;
        let epoch = Epoch(self.paths[path].last_epoch);
        self.paths[path].live = Some((epoch, ana));
        // Path 2 has no volatile cache.
        let mut states = AnaStates::from(ana[0]);
        states.set(DiskId(1), ana[1]);
        let association = Association { epoch, ana: states, volatile_write_cache: path != 2, queue_depth: QUEUE_DEPTH };
        self.paths[path].abandoned.clear();
        self.paths[path].heard_of = None;
        self.held[path] = self.group.injections().any(|(id, ..)| id == PathId(path as u16));
        self.group.path_up(self.now, PathId(path as u16), association);
    }

    pub(super) fn path_lost(&mut self, path: usize, answered: usize) {
        let id = PathId(path as u16);
        let Some((epoch, _)) = self.paths[path].live.take() else { return };
        self.paths[path].probing = None;
        for (tag, _) in self.hedges_on(id) {
            self.leave(tag);
        }
        self.fences.insert((id, epoch));
        self.group.path_lost(self.now, id);
        for _ in 0..answered {
            if let Some(n) = self.issued.iter().position(|i| (i.path, i.epoch) == (id, epoch)) {
                self.answer(n, Outcome::Success);
            }
        }
    }

    pub(super) fn drain(&mut self, path: usize, draining: bool) {
        if !self.paths[path].added {
            return;
        }
        self.paths[path].draining = draining;
        self.group.set_draining(self.now, PathId(path as u16), draining);
    }

    /// Closes a path that its statistics call idle and flushed. Nothing may be lost then.
    pub(super) fn close_if_idle(&mut self, path: usize) {
        let id = PathId(path as u16);
        let stats = self.group.stats(self.now);
        let Some(stats) = stats.path(id) else { return };
        assert_eq!(stats.draining, self.paths[path].draining);
        let in_flight: u64 = stats.classes.iter().map(|class| class.in_flight).sum();
        let clean = self.disks.iter().all(|disk| !disk.unflushed.is_unflushed(id));
        let idle = in_flight == 0 && stats.flushes_open == 0 && clean;
        let Some((epoch, _)) = self.paths[path].live.filter(|_| idle && self.paths[path].draining) else { return };
        assert!(self.issued.iter().all(|i| (i.path, i.epoch) != (id, epoch)), "idle, and yet something is in flight");
        for disk in (0..DISKS as u16).map(DiskId) {
            let cache = (disk, id, epoch);
            assert_eq!(count(&self.completed, &cache), count(&self.durable, &cache), "clean, and yet unflushed");
        }
        self.path_lost(path, 0);
    }

    pub(super) fn probe(&mut self, id: PathId, disk: DiskId, bytes: u32) {
        assert!((512..=MAX_PROBE_BYTES).contains(&bytes) && bytes.is_multiple_of(512));
        let now = self.now;
        let path = self.path(id);
        let (_, ana) = path.live.expect("a live path is probed");
        assert!(ana[usize::from(disk.0)].is_selectable() && !path.draining, "nothing new for {path:?}");
        assert!(path.probing.replace(now).is_none(), "one probe at a time");
        assert!(path.ios + (path.abandoned.len() as u32) < QUEUE_DEPTH.into(), "the queue pair is full");
    }

    pub(super) fn probed(&mut self, which: usize, success: bool) {
        let probing: Vec<usize> = (0..PATHS).filter(|&path| self.paths[path].probing.is_some()).collect();
        if !probing.is_empty() {
            let path = probing[which % probing.len()];
            self.paths[path].probing = None;
            self.group.probed(self.now, PathId(path as u16), success);
        }
    }

    pub(super) fn progress(&mut self, path: usize, answered: u32) {
        let state = &mut self.paths[path];
        if state.live.is_some() {
            let answered = state.abandoned.len().min(answered as usize);
            let sent_at = state.abandoned.drain(..answered).min();
            state.heard_of = Some(self.now);
            self.group.progress(self.now, PathId(path as u16), answered as u32, sent_at.map(|at| (at, 4096)));
        }
    }
}
