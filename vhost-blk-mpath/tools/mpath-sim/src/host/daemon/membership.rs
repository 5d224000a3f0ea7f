//! Paths that come and go: by the operator's orders, and by what discovery hears.

use std::net::SocketAddr;

use mpath_core::PathId;
use mpath_host::discovery::KnownPath;
use mpath_host::{DesiredState, RemovalStep};

use super::{Daemon, IoThread, Message};
use crate::controllers::{Controllers, node_at, path_address};
use crate::target::Ctx;

impl Daemon {
    /// The operator wants a path to be used so.
    pub(crate) fn order(&mut self, ctx: &mut Ctx<'_>, index: usize, wanted: DesiredState) {
        let is_there = self.is_there(index);
        if matches!(wanted, DesiredState::Removed { .. }) {
            let is_listed = self.discovery.as_ref().is_some_and(|discovery| discovery.has_heard_of(index));
            self.taken[index] |= is_there && is_listed;
            if let Some(discovery) = self.discovery.as_mut().filter(|_| is_there) {
                discovery.operator_removes(index);
            }
        } else if !is_there {
            (self.own[index], self.taken[index]) = (true, false);
        }
        self.change(ctx, index, wanted);
    }

    /// Whether there is such a path, and is to be.
    fn is_there(&self, index: usize) -> bool {
        !self.paths[index].is_gone() && !self.paths[index].is_removing()
    }

    /// A path is to be used so. One that is being removed goes first; then it is added again, if it is wanted.
    fn change(&mut self, ctx: &mut Ctx<'_>, index: usize, wanted: DesiredState) {
        let is_wanted = !matches!(wanted, DesiredState::Removed { .. });
        self.is_wanted[index] = is_wanted;
        let is_heeded = if is_wanted { !self.paths[index].is_removing() } else { !self.paths[index].is_gone() };
        if is_heeded {
            if wanted != DesiredState::Enabled {
                self.intact.fill(false);
            }
            // The I/O threads hear of it first: the path's task relies on that.
            let (path, draining) = (PathId(index as u16), wanted != DesiredState::Enabled);
            self.post_all(ctx, || Message::SetDraining { path, draining });
            self.paths[index].order(ctx, wanted);
        }
        self.turn_membership(ctx);
    }

    /// [`Event::Discovery`](crate::clock::Event::Discovery) has come.
    pub(crate) fn turn_discovery(&mut self, ctx: &mut Ctx<'_>) {
        let have: Vec<_> = (0..self.paths.len()).filter_map(|index| self.have(index)).collect();
        let Some(discovery) = &mut self.discovery else { return };
        let Some(changes) = discovery.turn(ctx, &have) else { return };
        for (index, taken) in self.taken.iter_mut().enumerate() {
            *taken &= discovery.has_heard_of(index);
        }
        let at = ctx.clock.elapsed();
        for index in changes.add.into_iter().map(node_at) {
            if self.taken[index] || !self.paths[index].is_gone() {
                let what = format_args!("discovery adds path {index}, which is there, or the operator has removed it");
                ctx.check.violate(at, None, what);
            }
            ctx.check.counts.discovered += 1;
            self.own[index] = false;
            self.change(ctx, index, DesiredState::Enabled);
        }
        let (leave, stay): (Vec<&KnownPath<_>>, _) = have.iter().partition(|path| changes.remove.contains(&path.path));
        if leave.iter().any(|path| path.usable) && !stay.iter().any(|path: &&KnownPath<_>| path.usable && !path.leaving)
        {
            ctx.check.violate(at, None, "discovery removes the last usable path");
        }
        for KnownPath { path, .. } in leave {
            let index = usize::from(path.0);
            if self.own[index] || self.discovery.as_ref().is_some_and(|discovery| discovery.has_heard_of(index)) {
                let what = format_args!("discovery removes path {index}, which is listed, or was not added by it");
                ctx.check.violate(at, None, what);
            }
            ctx.check.counts.listed_no_more += 1;
            self.change(ctx, index, DesiredState::Removed { at_once: false });
        }
    }

    /// A path as discovery is to see it.
    fn have(&self, index: usize) -> Option<KnownPath<SocketAddr>> {
        let there = KnownPath {
            path: PathId(index as u16),
            address: path_address(index),
            discovered: !self.own[index],
            usable: self.is_usable(index) && self.paths[index].is_enabled(),
            leaving: self.paths[index].is_removing(),
        };
        (!self.paths[index].is_gone()).then_some(there)
    }

    /// At the end of a run: whether the paths are those that are listed and those that are wanted all the same.
    pub(crate) fn is_as_listed(&self, controllers: &Controllers) -> bool {
        let is_wanted = |index: usize| self.own[index] || controllers.is_listed(index) && !self.taken[index];
        // One that waits for a flush to leave cannot be added again before.
        let leaves = |index: usize| self.paths[index].is_removing() && self.paths[index].is_live();
        (0..self.paths.len()).all(|index| leaves(index) || self.is_there(index) == is_wanted(index))
    }

    /// Goes on with paths that leave or come.
    pub(super) fn turn_membership(&mut self, ctx: &mut Ctx<'_>) {
        for index in 0..self.paths.len() {
            self.turn_leaving(ctx, index);
            if self.paths[index].is_gone() && self.is_wanted[index] {
                ctx.say(|| format!("path {index} is added"));
                let task = self.paths.remove(index).again(ctx.clock.now());
                self.paths.insert(index, task);
                self.post_all(ctx, || Message::AddPath(PathId(index as u16)));
                self.paths[index].wake(ctx);
            }
            let is_known = || self.threads.0.iter().all(|thread| thread.knows(ctx.clock.now(), PathId(index as u16)));
            if !self.paths[index].known && is_known() {
                // Only now one of the threads may bring it up: the next flush may come to any of the others.
                self.paths[index].known = true;
                self.paths[index].wake(ctx);
            }
        }
    }

    fn turn_leaving(&mut self, ctx: &mut Ctx<'_>, index: usize) {
        let (now, path) = (ctx.clock.now(), PathId(index as u16));
        let all = |is: &dyn Fn(&IoThread) -> bool| self.threads.0.iter().all(is);
        let is_taken = match self.paths[index].leaving {
            None => false,
            Some(RemovalStep::AwaitFences) => !self.fences.holds(path),
            Some(RemovalStep::AwaitIdle) => all(&|thread| thread.has_forgotten(now, path)),
            Some(RemovalStep::RemoveFromThreads) => all(&|thread| !thread.knows(now, path)),
        };
        if is_taken {
            self.paths[index].step_taken(ctx);
        }
    }

    fn is_usable(&self, index: usize) -> bool {
        self.threads.0.iter().all(|thread| thread.may_use(PathId(index as u16)))
    }

    /// Whether every disk can use every path that is to be there.
    pub(crate) fn has_all(&self) -> bool {
        // One that discovery removes may go only after a flush.
        let may_stay = |index: usize| self.discovery.is_some() && self.paths[index].is_live();
        let is_settled = |index: usize| {
            if self.is_there(index) { self.is_usable(index) } else { may_stay(index) || !self.is_wanted[index] }
        };
        (0..self.paths.len()).all(is_settled)
    }
}
