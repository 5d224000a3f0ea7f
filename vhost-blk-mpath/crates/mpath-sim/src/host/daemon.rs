//! The daemon: its I/O threads, path tasks and fences, until it is killed.

use std::time::Instant;

use mpath_core::{Epoch, PathId, SharedDisk};

use super::fences::{FenceRecord, Fenced, Fences};
use super::path::PathTask;
use super::thread::IoThread;
use super::{Answer, Asked, HostPlan, Message};
use crate::net::ConnId;
use crate::rng::Rng;
use crate::target::Ctx;

/// What has become of a path that the operator removes, as `vhost-blk-mpath/src/membership.rs` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    There,
    /// It drops its association; then its fences lift.
    Removing,
    /// Nothing of it is left; the I/O threads are being told.
    Forgetting,
    Gone,
    /// It is there again; the I/O threads are being told.
    Adding,
}

#[derive(Debug)]
pub(crate) struct Daemon {
    threads: Vec<IoThread>,
    paths: Vec<PathTask>,
    fences: Fences,
    /// By path, and whether the operator wants it.
    membership: Vec<(Membership, bool)>,
    /// It began to serve with all paths, and has had all of them since.
    intact: bool,
}

impl Daemon {
    /// Starts it, the n-th of the run, with what the one before has left.
    pub(crate) fn start(ctx: &mut Ctx<'_>, number: u64, plan: &HostPlan, record: FenceRecord, seed: u64) -> Self {
        let now = ctx.clock.now();
        let disk = if record.is_of_a_crash() { SharedDisk::after_crash() } else { SharedDisk::default() };
        let rng = |part, index| Rng::new(seed, 1000 * number + part + index as u64);
        let thread = |index| IoThread::new(now, index, plan, &disk, rng(100, index));
        let path = |path| PathTask::new(now, PathId(path as u16), Epoch(0), plan.clone(), rng(200, path));
        let mut daemon = Self {
            threads: (0..plan.threads).map(thread).collect(),
            paths: (0..plan.paths).map(path).collect(),
            fences: Fences::new(plan.paths, record),
            membership: vec![(Membership::There, true); plan.paths],
            intact: false,
        };
        daemon.paths.iter_mut().for_each(|path| path.known = true);
        daemon.paths.iter_mut().for_each(|path| path.wake(ctx));
        daemon
    }

    /// Killed: the record is all that is left.
    pub(crate) fn kill(self) -> FenceRecord {
        self.fences.into_record()
    }

    /// The fences of the daemon before it are over.
    pub(crate) fn begin_to_serve(&mut self) {
        self.fences.record.remove_inherited();
        self.intact = self.is_whole() && self.threads.iter().all(IoThread::may_use_all);
    }

    /// Whether its flushes reach every controller that the daemon before it may have left writes in.
    pub(crate) fn is_intact(&self) -> bool {
        self.intact
    }

    pub(crate) fn notify(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.owns(id)) {
            path.wake(ctx);
        } else if let Some(thread) = self.threads.iter_mut().find(|thread| thread.owns(id)) {
            thread.wake(ctx);
        }
    }

    pub(crate) fn ask(&mut self, ctx: &mut Ctx<'_>, asked: Asked) {
        let index = usize::from(asked.flow) % self.threads.len();
        self.threads[index].ask(ctx, asked);
    }

    pub(crate) fn post_all(&mut self, ctx: &mut Ctx<'_>, message: impl Fn() -> Message) {
        self.threads.iter_mut().for_each(|thread| thread.post(ctx, message()));
    }

    /// A turn of an I/O thread: what it has to tell the guest.
    pub(crate) fn turn_thread(&mut self, ctx: &mut Ctx<'_>, index: usize) -> Vec<Answer> {
        let thread = &mut self.threads[index];
        thread.turn(ctx);
        for report in std::mem::take(&mut thread.reports) {
            ctx.say(|| format!("thread {index}: {report:?}"));
            self.intact = false;
            self.paths[usize::from(report.path.0)].report(ctx, report);
        }
        let answers = std::mem::take(&mut self.threads[index].answers);
        self.turn_membership(ctx);
        answers
    }

    /// The operator removes a path, whatever it owes, or adds it again: then it comes back as soon as it is gone.
    pub(crate) fn want_path(&mut self, ctx: &mut Ctx<'_>, index: usize, wanted: bool) {
        self.membership[index].1 = wanted;
        self.turn_membership(ctx);
    }

    fn turn_membership(&mut self, ctx: &mut Ctx<'_>) {
        for index in 0..self.paths.len() {
            while let Some(next) = self.next_membership(ctx.clock.now(), index) {
                ctx.say(|| format!("path {index}: {next:?}"));
                self.membership[index].0 = next;
                self.change_membership(ctx, index, next);
            }
        }
    }

    fn next_membership(&self, now: Instant, index: usize) -> Option<Membership> {
        use Membership::{Adding, Forgetting, Gone, Removing, There};
        let path = PathId(index as u16);
        let all = |is: &dyn Fn(&IoThread) -> bool| self.threads.iter().all(is);
        let (membership, wanted) = self.membership[index];
        let (next, when) = match membership {
            There => (Removing, !wanted),
            Removing => {
                let over = self.paths[index].is_removed() && !self.fences.holds(path);
                (Forgetting, over && all(&|thread| thread.is_idle(now, path)))
            }
            Forgetting => (Gone, all(&|thread| !thread.knows(now, path))),
            Gone => (Adding, wanted),
            Adding => (There, all(&|thread| thread.knows(now, path))),
        };
        when.then_some(next)
    }

    fn change_membership(&mut self, ctx: &mut Ctx<'_>, index: usize, next: Membership) {
        let path = PathId(index as u16);
        match next {
            Membership::Removing => {
                self.intact = false;
                self.post_all(ctx, || Message::Drain(path));
                self.paths[index].remove(ctx);
            }
            Membership::Forgetting => self.post_all(ctx, || Message::RemovePath(path)),
            Membership::Gone => ctx.check.counts.removals += 1,
            Membership::Adding => {
                let task = self.paths.remove(index).again(ctx.clock.now());
                self.paths.insert(index, task);
                self.post_all(ctx, || Message::AddPath(path));
                self.paths[index].wake(ctx);
            }
            Membership::There => {
                // Only now one of the threads may bring it up: the next flush may come to any of the others.
                self.paths[index].known = true;
                self.paths[index].wake(ctx);
            }
        }
    }

    /// A turn of a path's task.
    pub(crate) fn turn_path(&mut self, ctx: &mut Ctx<'_>, index: usize) {
        let path = &mut self.paths[index];
        path.turn(ctx, &mut self.fences);
        for (thread, message) in std::mem::take(&mut path.mail) {
            ctx.say(|| format!("path {index} to thread {thread}: {message:?}"));
            self.intact &= match message {
                Message::PathDown { .. } => false,
                Message::Ana { state, .. } => state.is_selectable(),
                _ => true,
            };
            self.threads[thread].post(ctx, message);
        }
        self.turn_fences(ctx);
    }

    pub(crate) fn turn_fences(&mut self, ctx: &mut Ctx<'_>) {
        let Fenced { lifted, asked } = self.fences.turn(ctx);
        for (path, epoch) in lifted {
            ctx.say(|| format!("the fence of path {path} {epoch:?} lifts"));
            self.post_all(ctx, || Message::FenceLifted { path, epoch });
        }
        for path in asked {
            self.paths[usize::from(path.0)].wake(ctx);
        }
        self.turn_membership(ctx);
    }

    /// Whether every I/O thread can send on every path.
    pub(crate) fn is_whole(&self) -> bool {
        self.threads.iter().all(|thread| thread.live_paths() == self.paths.len())
    }

    /// At the end of the run: what is left of anything.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        self.threads.iter().find_map(|thread| thread.leaks(now))
    }

    /// Where everything is, for a run that does not end.
    pub(crate) fn state(&self, now: Instant) -> String {
        let live = self.paths.iter().filter(|path| path.is_live()).count();
        let threads: Vec<String> = self.threads.iter().map(|thread| thread.state(now)).collect();
        format!("{live} paths live\n  {}", threads.join("\n  "))
    }
}
