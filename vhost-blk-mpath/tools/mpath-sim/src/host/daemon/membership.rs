//! Paths that the operator or discovery adds and removes.

use std::net::SocketAddr;

use mpath_core::PathId;
use mpath_lifecycle::discovery::KnownPath;
use mpath_lifecycle::{DesiredState, RemovablePath, held_removals};

use super::Daemon;
use crate::context::Ctx;
use crate::discovery_controllers::{DiscoveryControllers, node_at, path_address};
use crate::host::disk_task::DiskTask;
use crate::host::io_thread::Message;
use crate::host::path::PathTask;

impl Daemon {
    /// The operator orders a state of a path.
    pub(crate) fn order(&mut self, ctx: &mut Ctx, index: usize, wanted: DesiredState) {
        let is_there = self.is_there(index);
        if wanted.is_removal() {
            let is_listed = self.discovery.as_ref().is_some_and(|discovery| discovery.is_listed(index));
            self.removed_by_operator[index] |= is_there && is_listed;
            if let Some(discovery) = self.discovery.as_mut().filter(|_| is_there) {
                discovery.operator_removes(index);
            }
        } else if !is_there {
            (self.by_operator[index], self.removed_by_operator[index]) = (true, false);
        }
        self.set_desired(ctx, index, wanted);
    }

    /// The operator resets a path.
    pub(crate) fn reset(&mut self, ctx: &mut Ctx, index: usize) {
        if self.is_there(index) {
            self.paths[index].reset(ctx);
        }
    }

    /// Whether the daemon has a path and is not removing it.
    fn is_there(&self, index: usize) -> bool {
        !self.paths[index].is_gone() && !self.paths[index].is_removing()
    }

    /// Orders a state of a path. If the path is being removed and is wanted again, its removal is taken back. If it is closed
    /// already, the removal ends first, and then the path is added.
    fn set_desired(&mut self, ctx: &mut Ctx, index: usize, wanted: DesiredState) {
        let is_wanted = !wanted.is_removal();
        self.is_wanted[index] = is_wanted;
        let can_return = self.paths[index].can_return();
        let applies =
            if is_wanted { can_return || !self.paths[index].is_removing() } else { !self.paths[index].is_gone() };
        if applies {
            ctx.checker.counts.removals_taken_back += u64::from(is_wanted && can_return);
            self.pass_order(ctx, index, wanted);
            self.hold_removals(ctx);
        }
        self.turn_membership(ctx);
    }

    fn pass_order(&mut self, ctx: &mut Ctx, index: usize, wanted: DesiredState) {
        if wanted.is_draining() {
            self.had_all_paths.fill(false);
        }
        // The I/O threads hear of the order before the path's task, because the task relies on that.
        let (path, draining) = (PathId(index as u16), wanted.is_draining());
        self.post_all(ctx, || Message::SetDraining { path, draining });
        self.paths[index].order(ctx, wanted);
    }

    /// Holds removals without which a disk would have no usable path, and has held removals go on once it has another.
    pub(super) fn hold_removals(&mut self, ctx: &mut Ctx) {
        if !self.paths.iter().any(PathTask::can_return) {
            return;
        }
        let there: Vec<_> = (0..self.paths.len()).filter(|index| !self.paths[*index].is_gone()).collect();
        let serves = |path: &PathTask| {
            let served = (0..self.shared.len()).filter(|disk| path.could_serve(*disk));
            served.fold(0, |served, disk| served | 1 << disk)
        };
        let removable = |index: &usize| {
            let path = &self.paths[*index];
            RemovablePath { wanted: path.wanted(), serves: if path.is_leaving() { 0 } else { serves(path) } }
        };
        let paths: Vec<_> = there.iter().map(removable).collect();
        let disks = (1 << self.shared.len()) - 1;
        for (index, wanted) in held_removals(disks, &paths) {
            ctx.say(|| format!("the removal of path {} becomes {wanted:?}", there[index]));
            ctx.checker.counts.removals_held += u64::from(wanted == DesiredState::RemovalHeld);
            self.pass_order(ctx, there[index], wanted);
        }
    }

    /// [`Event::Discovery`](crate::clock::Event::Discovery) has come.
    pub(crate) fn turn_discovery(&mut self, ctx: &mut Ctx) {
        let known_paths: Vec<_> = (0..self.paths.len()).filter_map(|index| self.known_path(index)).collect();
        let Some(discovery) = &mut self.discovery else { return };
        let Some(changes) = discovery.turn(ctx, &known_paths) else { return };
        let first_logs_are_done = discovery.first_logs_are_done(ctx.clock.now());
        for (index, is_removed) in self.removed_by_operator.iter_mut().enumerate() {
            *is_removed &= discovery.is_listed(index);
        }
        let at = ctx.clock.elapsed();
        for index in changes.add.into_iter().map(node_at) {
            if self.removed_by_operator[index] || !self.paths[index].is_gone() {
                let what = format_args!("discovery adds path {index}, which is there, or the operator has removed it");
                ctx.checker.violate(at, None, what);
            }
            ctx.checker.counts.discovered += 1;
            self.by_operator[index] = false;
            self.set_desired(ctx, index, DesiredState::Enabled);
        }
        let (leave, stay): (Vec<&KnownPath<_>>, _) =
            known_paths.iter().partition(|path| changes.remove.contains(&path.path));
        if leave.iter().any(|path| path.usable) && !stay.iter().any(|path: &&KnownPath<_>| path.usable && !path.leaving)
        {
            ctx.checker.violate(at, None, "discovery removes the last usable path");
        }
        for KnownPath { path, .. } in leave {
            let index = usize::from(path.0);
            if self.by_operator[index] || self.discovery.as_ref().is_some_and(|discovery| discovery.is_listed(index)) {
                let what = format_args!("discovery removes path {index}, which is listed, or was not added by it");
                ctx.checker.violate(at, None, what);
            }
            ctx.checker.counts.unlisted += 1;
            self.set_desired(ctx, index, DesiredState::Removed { at_once: false });
        }
        for index in changes.take_back.into_iter().map(|path| usize::from(path.0)) {
            if self.removed_by_operator[index] || !self.discovery.as_ref().is_some_and(|by| by.is_listed(index)) {
                let what =
                    format_args!("discovery takes path {index} back, which the operator removes or no log lists");
                ctx.checker.violate(at, None, what);
            }
            self.set_desired(ctx, index, DesiredState::Enabled);
        }
        self.first_logs_are_done = first_logs_are_done;
        self.disk_tasks.iter_mut().for_each(DiskTask::wake);
    }

    /// A path as discovery sees it; `None` if the daemon does not have it.
    fn known_path(&self, index: usize) -> Option<KnownPath<SocketAddr>> {
        let there = KnownPath {
            path: PathId(index as u16),
            address: path_address(index),
            discovered: !self.by_operator[index],
            usable: self.is_usable(index) && self.paths[index].is_enabled(),
            leaving: self.paths[index].is_removing(),
        };
        (!self.paths[index].is_gone()).then_some(there)
    }

    /// Whether the daemon has the listed paths, plus those that the operator or the configuration added. Asked at the end of a
    /// run.
    pub(crate) fn is_as_listed(&self, controllers: &DiscoveryControllers) -> bool {
        let is_wanted =
            |index: usize| self.by_operator[index] || controllers.is_listed(index) && !self.removed_by_operator[index];
        (0..self.paths.len()).all(|index| self.is_there(index) == is_wanted(index))
    }

    /// Continues the removal and the addition of paths.
    pub(super) fn turn_membership(&mut self, ctx: &mut Ctx) {
        for index in 0..self.paths.len() {
            let (now, path) = (ctx.clock.now(), PathId(index as u16));
            let is_removed = || self.threads.0.iter().all(|thread| !thread.knows(now, path));
            if self.paths[index].own.awaits_removal && is_removed() {
                self.paths[index].removed_from_threads(ctx);
            }
            if self.paths[index].is_gone() && self.is_wanted[index] {
                ctx.say(|| format!("path {index} is added"));
                let task = self.paths.remove(index).added_again(ctx.clock.now());
                self.paths.insert(index, task);
                self.post_all(ctx, || Message::AddPath(path));
                self.paths[index].wake(ctx);
                if self.is_closing_paths() {
                    // As the daemon's task does, which finds at once that the daemon ends.
                    self.paths[index].end(ctx, &mut self.fences, &mut self.disks);
                }
            }
            let is_known = || self.threads.0.iter().all(|thread| thread.knows(now, path));
            if !self.paths[index].own.is_known && is_known() {
                // No thread may use the path before all know it, because the next flush may arrive at any of them.
                self.paths[index].own.is_known = true;
                self.paths[index].wake(ctx);
            }
        }
    }

    /// Whether every I/O thread with virtqueues can use every disk on a path.
    fn is_usable(&self, index: usize) -> bool {
        self.threads.all_that_serve(|thread| thread.can_use(PathId(index as u16)))
    }

    /// Whether every disk can use every path that the daemon is to have. At least one path is required, because discovery may not
    /// have found any yet.
    pub(crate) fn can_use_all_paths(&self) -> bool {
        let is_settled =
            |index: usize| if self.is_there(index) { self.is_usable(index) } else { !self.is_wanted[index] };
        let is_used = |index: usize| self.is_there(index) && self.is_usable(index);
        (0..self.paths.len()).all(is_settled) && (0..self.paths.len()).any(is_used)
    }
}
