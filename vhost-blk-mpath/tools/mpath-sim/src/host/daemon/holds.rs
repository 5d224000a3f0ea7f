//! The openings and holds of the disks, which decide when requests are fetched.

use std::time::Instant;

use mpath_core::{DiskId, PathId};
use mpath_host::TriedPath;

use super::Daemon;
use crate::context::Ctx;
use crate::host::disk_hold::DiskHold;

impl Daemon {
    /// Continues the openings of disks. Returns whether one of them has just been opened.
    pub(super) fn open_disks(&mut self, ctx: &mut Ctx) -> bool {
        let (now, mut some_opened) = (ctx.clock.now(), false);
        for disk in 0..self.openings.len() {
            if self.disks.opening(disk).is_over() {
                continue;
            }
            let (are_done, paths) = (self.first_logs_are_done, self.tried_paths(disk));
            let (opening, hold) = (&mut self.openings[disk], &mut self.holds[disk]);
            let files = (&mut self.disks, &mut self.fences);
            let inherited = (&mut *hold, &self.shared[disk], &self.process.pending_fences);
            if opening.advance(ctx, files, inherited, are_done, &paths) {
                hold.change(ctx, &mut self.threads, |hold| hold.open(now, are_done, &paths));
                some_opened = true;
            }
        }
        let is_due = |hold: &DiskHold| hold.decides().next_timeout().is_some_and(|at| at <= now);
        if some_opened || self.holds.iter().any(is_due) {
            self.update_holds(ctx);
        }
        self.holds.iter_mut().for_each(|hold| hold.set_timer(ctx));
        some_opened
    }

    /// Whether a disk is open, and no fence keeps its requests from being fetched.
    pub(crate) fn is_past_fences(&self, disk: usize, now: Instant) -> bool {
        self.disks.is_open(disk) && self.holds[disk].is_past_fences(now)
    }

    /// Updates the holds of all disks after paths have changed or time has passed.
    pub(crate) fn update_holds(&mut self, ctx: &mut Ctx) {
        for disk in 0..self.holds.len() {
            let (now, are_done, paths) = (ctx.clock.now(), self.first_logs_are_done, self.tried_paths(disk));
            let (hold, threads) = (&mut self.holds[disk], &mut self.threads);
            let fence_until = hold.decides().inherited_fence().map(|fence| fence.until);
            if hold.change(ctx, threads, |hold| hold.update(now, are_done, &paths)) {
                ctx.checker.counts.held_for_attempts += u64::from(fence_until.is_some_and(|until| until < now));
                self.fences.forget_inherited(disk);
                self.had_all_paths[disk] = self.paths.iter().all(|path| path.reaches(disk));
            }
        }
    }

    fn tried_paths(&self, disk: usize) -> Vec<TriedPath> {
        let paths = self.paths.iter().zip((0..).map(PathId)).filter(|(path, _)| !path.is_gone());
        let leads = |path| self.disks.leads_to(path, DiskId(disk as u16));
        paths.map(|(path, id)| TriedPath { trial: path.trial(), leads_to_disk: leads(id) }).collect()
    }

    /// Whether flushes of a disk reach every controller in which its predecessor may have left unflushed writes.
    pub(crate) fn had_all_paths(&self, disk: DiskId) -> bool {
        self.had_all_paths[usize::from(disk.0)]
    }

    /// Tells the checker which paths have to be tried after a kill: all but refused paths and those that the operator takes out
    /// of use.
    pub(crate) fn observe_attempts(&self, ctx: &mut Ctx) {
        if !ctx.checker.first_attempts.are_waiting() {
            return;
        }
        let is_tried = |index: &usize| {
            let path = &self.paths[*index];
            !path.is_gone() && path.is_enabled() && !path.was_refused()
        };
        let has_logs = self.discovery.as_ref().is_none_or(|discovery| discovery.has_first_logs(ctx.clock.now()));
        if has_logs {
            let paths: Vec<_> = (0..self.paths.len()).filter(is_tried).collect();
            ctx.checker.first_attempts.judge(&paths);
        }
    }
}
