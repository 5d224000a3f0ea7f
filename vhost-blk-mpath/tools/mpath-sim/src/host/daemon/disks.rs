//! The steps of the disks, carried out as in `vhost-blk-mpath/src/service/opening.rs`.

use monotonic::Instant;
use mpath_core::{DiskId, PathId};
use mpath_lifecycle::{DiskStep, DiskView, Disks as _, TriedPath};

use super::Daemon;
use crate::context::Ctx;
use crate::host::path::PathTask;

impl Daemon {
    /// Continues the disks. Returns whether one was opened, and the disks that guests see larger, with their blocks.
    pub(crate) fn turn_disks(&mut self, ctx: &mut Ctx) -> (bool, Vec<(usize, u64)>) {
        let (now, mut some_opened, mut grown) = (ctx.clock.now(), false, Vec::new());
        for disk in 0..self.disk_tasks.len() {
            if !self.disk_tasks[disk].is_due(now) {
                continue;
            }
            while let Some(step) = self.next_step(ctx, disk) {
                let Some(is_done) = self.take_step(ctx, disk, &step) else { break };
                ctx.say(|| format!("disk {disk}: {} {}", named(&step), if is_done { "done" } else { "failed" }));
                let counts = &mut ctx.checker.counts;
                match step {
                    DiskStep::Save { grow_to: Some(_) } => counts.sizes_not_saved += u64::from(!is_done),
                    _ => counts.openings_repeated += u64::from(!is_done),
                }
                some_opened |= step == DiskStep::Serve;
                if step == DiskStep::Show {
                    grown.extend(self.disks.grow(disk));
                }
                self.disks.driver(disk).done(now, is_done);
            }
            self.disk_tasks[disk].set_timer(ctx, self.disks.driver(disk));
        }
        for (disk, blocks) in &grown {
            self.front_ends[*disk].grow(*blocks);
        }
        (some_opened, grown)
    }

    fn next_step(&mut self, ctx: &mut Ctx, disk: usize) -> Option<DiskStep> {
        let now = ctx.clock.now();
        let view = self.view(now, disk);
        let driver = self.disks.driver(disk);
        let fence_until = driver.hold.inherited_fence().map(|fence| fence.until);
        let step = self.disk_tasks[disk].change(ctx, &mut self.threads, driver, |driver| driver.step(now, &view));
        if let Some(until) = fence_until.filter(|_| driver.hold.inherited_fence().is_none()) {
            ctx.checker.counts.held_for_attempts += u64::from(until < now);
            self.had_all_paths[disk] = self.paths.iter().all(|path| path.reaches(disk));
        }
        step
    }

    fn view(&self, now: Instant, disk: usize) -> DiskView {
        let id = DiskId(disk as u16);
        let paths = self.paths.iter().zip((0..).map(PathId)).filter(|(path, _)| !path.is_gone());
        let tried = |(path, id): (&PathTask, _)| TriedPath { trial: path.trial(), blocks: self.disks.blocks(id, disk) };
        let pending = |namespace| self.process.pending_fences.to_inherit(now, namespace, self.disks.hold(disk));
        DiskView {
            first_logs_are_done: self.first_logs_are_done,
            paths: paths.map(tried).collect(),
            served: self.disks.served(id),
            pending_fence: self.disks.namespace(disk).and_then(pending).cloned(),
        }
    }

    /// Takes a step. Returns whether it is done or has failed; `None` while it is under way.
    fn take_step(&mut self, ctx: &mut Ctx, disk: usize, step: &DiskStep) -> Option<bool> {
        let (task, disks) = (&mut self.disk_tasks[disk], &mut self.disks);
        Some(match step {
            DiskStep::InheritFence(pending) => {
                task.written(ctx, disks, None)?;
                let is_written = self.fences.inherit(disk, &pending.recorded(ctx.clock.now()));
                ctx.checker.counts.pending_fences += u64::from(is_written);
                is_written
            }
            DiskStep::RecordNamespace => {
                task.has_inherited = true;
                task.written(ctx, disks, None)?;
                self.fences.record_namespace(disk)
            }
            DiskStep::Save { grow_to } => {
                let blocks = grow_to.or(disks.shown(disk)).expect("a path has found it");
                task.written(ctx, disks, Some(blocks))?;
                let had_fewer = disks.saved(disk).is_some_and(|saved| saved < blocks);
                let is_saved = disks.save(disk, blocks);
                let has_grown = is_saved && had_fewer && grow_to.is_none();
                ctx.checker.counts.grown_while_no_daemon_ran += u64::from(has_grown);
                is_saved
            }
            DiskStep::TellThreads => {
                task.told(ctx, &mut self.threads)?;
                true
            }
            DiskStep::ForgetFences => {
                self.fences.forget_inherited(disk);
                true
            }
            DiskStep::Serve | DiskStep::Show => true,
        })
    }

    /// Whether a disk is open, and no fence keeps its requests from being fetched.
    pub(crate) fn is_past_fences(&self, disk: usize, now: Instant) -> bool {
        let fence = self.disks.hold(disk).inherited_fence();
        self.disks.is_open(disk) && fence.is_none_or(|fence| fence.until <= now)
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

/// A step in one line, without a time of the clock.
fn named(step: &DiskStep) -> String {
    match step {
        DiskStep::InheritFence(_) => "InheritFence".to_owned(),
        step => format!("{step:?}"),
    }
}
