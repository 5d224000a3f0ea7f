//! The daemon: its I/O threads, the tasks of its paths, its fences, its disks and their front-ends.

mod disks;
mod front_ends;
mod membership;
mod shutdown;

use std::sync::Arc;

use monotonic::Instant;
use mpath_core::{DiskId, Epoch, Limits, PathId, SharedDisk};
use mpath_lifecycle::{DesiredState, DiskDriver, ThreadMessage};
use reactor::{DiskQueues, LossReason, PathEventKind};

use super::discovery::Discovery;
use super::disk_task::DiskTask;
use super::disks::Disks;
use super::fences::Fences;
use super::files::Files;
use super::front_ends::FrontEndServer;
use super::io_thread::{IoThread, Message};
use super::io_threads::{IoThreads, Virtqueues};
use super::path::PathTask;
use super::plan::{DiskPlan, HostPlan};
use super::process::Process;
use super::shutdown_phase::ShutdownPhase;
use crate::checker::is_accessible;
use crate::connection::ConnId;
use crate::context::Ctx;
use crate::discovery_controllers::DiscoveryControllers;
use crate::rng::Rng;

/// A daemon that serves disks: all disks of its process, which share their paths.
pub(crate) struct Daemon {
    process: Process,
    threads: IoThreads,
    /// By disk.
    front_ends: Vec<FrontEndServer>,
    /// By disk: a front-end wants to be connected.
    wants_front_end: Vec<bool>,
    disks: Disks,
    /// By disk.
    disk_tasks: Vec<DiskTask>,
    /// By disk.
    shared: Vec<SharedDisk>,
    /// By disk.
    queues: Vec<Arc<DiskQueues>>,
    /// By disk: the daemon had all paths when requests were fetched first, and has had all of them since.
    had_all_paths: Vec<bool>,
    paths: Vec<PathTask>,
    fences: Fences,
    /// By path: the daemon is to have it.
    is_wanted: Vec<bool>,
    discovery: Option<Discovery>,
    first_logs_are_done: bool,
    /// By path: the operator or the configuration added it, so discovery must not remove it.
    by_operator: Vec<bool>,
    /// By path: the operator removed it while it was listed, so discovery must not add it before it is listed anew.
    removed_by_operator: Vec<bool>,
    shutdown: Option<ShutdownPhase>,
    /// Its disks are removed, and its process goes on.
    is_removal: bool,
}

impl Daemon {
    /// Starts to serve disks, with the files that were left on their sockets. `number` is that of the daemon in the run.
    pub(crate) fn start(
        ctx: &mut Ctx,
        number: u64,
        process: Process,
        plan: &HostPlan,
        files: Files,
        controllers: Option<&DiscoveryControllers>,
        seed: u64,
    ) -> Self {
        let now = ctx.clock.now();
        let (fences, inherited) = Fences::open(now, &process, files.records, plan, Rng::new(seed, 1000 * number + 300));
        let (is_cache_shared, delay) = (plan.group.shared_write_cache, plan.reconnect_delay);
        let driver = |_| DiskDriver::new(now, inherited.clone(), is_cache_shared, delay);
        let drivers: Vec<_> = plan.disks.iter().map(driver).collect();
        let shared: Vec<_> = drivers.iter().map(|driver| driver.shared().clone()).collect();
        let with_losses = shared.iter().enumerate().filter(|(disk, _)| fences.has_lost_writes(*disk));
        with_losses.for_each(|(_, disk)| disk.unflushed.set_lost(now));
        let left = |(disk, plan): (usize, &DiskPlan)| if fences.has_predecessor(disk) { plan.queues } else { 0 };
        let queues = plan.disks.iter().enumerate().map(|disk| Arc::new(DiskQueues::new(left(disk), now)));
        let queues: Vec<_> = queues.collect();
        let rng = |part, index| Rng::new(seed, 1000 * number + part + index as u64);
        let thread = |index| IoThread::new(now, index, plan, &shared, &queues, rng(100, index));
        let left = files.discovered;
        let discovery = controllers.map(|controllers| Discovery::new(ctx, plan, controllers, left, rng(400, 0)));
        let by_operator =
            controllers.map_or_else(|| vec![true; plan.paths], |controllers| controllers.plan.configured.clone());
        let path = |path| PathTask::new(now, PathId(path as u16), Epoch(0), plan.clone(), rng(200, path));
        let virtqueues = Virtqueues::new(plan.threads);
        let mut daemon = Self {
            process,
            disks: Disks::new(plan, drivers, &fences, (files.shown, virtqueues.clone()), rng(500, 0)),
            threads: IoThreads((0..plan.threads).map(thread).collect(), virtqueues),
            front_ends: (0..)
                .map(DiskId)
                .zip(plan.disks.iter().zip(&queues))
                .map(|(disk, (plan, queues))| FrontEndServer::new(disk, plan.clone(), queues.clone()))
                .collect(),
            wants_front_end: vec![true; plan.disks.len()],
            disk_tasks: (0..).map(DiskId).zip(&plan.disks).map(|(disk, _)| DiskTask::new(disk)).collect(),
            paths: (0..plan.paths).map(path).collect(),
            fences,
            is_wanted: by_operator.clone(),
            first_logs_are_done: discovery.is_none(),
            discovery,
            by_operator,
            removed_by_operator: vec![false; plan.paths],
            had_all_paths: vec![false; shared.len()],
            shared,
            queues,
            shutdown: None,
            is_removal: false,
        };
        for index in 0..daemon.paths.len() {
            daemon.paths[index].own.is_known = true;
            if daemon.is_wanted[index] {
                daemon.paths[index].wake(ctx);
            } else {
                daemon.paths[index].set_gone();
                daemon.post_all(ctx, || ThreadMessage::RemovePath(PathId(index as u16)).into());
            }
        }
        daemon.name_namespaces();
        daemon
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// The I/O thread that serves this virtqueue.
    pub(crate) fn thread_of(&self, disk: DiskId, queue: u16) -> usize {
        self.threads.serving(self.front_ends[usize::from(disk.0)].flow(queue))
    }

    /// The operator changes the limits of a disk. Threads that wait because of the old limits run again.
    pub(crate) fn set_limits(&mut self, ctx: &mut Ctx, disk: usize, limits: Limits) {
        self.shared[disk].limits.set(ctx.clock.now(), limits);
        self.threads.0.iter_mut().for_each(|thread| thread.wake(ctx));
    }

    /// A connection has bytes to read, room to write, or news.
    pub(crate) fn notify(&mut self, ctx: &mut Ctx, id: ConnId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.owns(id)) {
            path.wake(ctx);
        } else if let Some(discovery) = self.discovery.as_mut().filter(|discovery| discovery.owns(id)) {
            discovery.wake(ctx);
        } else if let Some(thread) = self.threads.0.iter_mut().find(|thread| thread.owns(id)) {
            thread.wake(ctx);
        }
    }

    /// A guest has kicked a virtqueue.
    pub(crate) fn kick(&mut self, ctx: &mut Ctx, disk: DiskId, queue: u16) {
        let thread = self.thread_of(disk, queue);
        self.threads.0[thread].kick(ctx);
    }

    /// Posts a message to all I/O threads.
    pub(crate) fn post_all(&mut self, ctx: &mut Ctx, message: impl Fn() -> Message) {
        self.threads.post_all(ctx, message);
    }

    /// Whether the records of its disks have the fences of removed disks on their namespaces.
    pub(crate) fn has_inherited(&self) -> bool {
        self.disk_tasks.iter().all(|task| task.has_inherited)
    }

    /// Runs a turn of an I/O thread, and passes its reports to the tasks of paths.
    pub(crate) fn turn_thread(&mut self, ctx: &mut Ctx, index: usize) {
        let thread = &mut self.threads.0[index];
        thread.turn(ctx);
        for report in std::mem::take(&mut thread.reports) {
            ctx.say(|| format!("thread {index}: {report:?}"));
            if matches!(report.kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. }) {
                self.had_all_paths.fill(false);
            }
            let has_reason = match &report.kind {
                PathEventKind::Lost(LossReason::Socket(error)) => error.raw_os_error() != Some(libc::EFAULT),
                PathEventKind::Lost(LossReason::GivenUp) => {
                    self.shutdown.is_some()
                        || self.front_ends.iter().any(|front_end| front_end.is_overdue(ctx.clock.now()))
                }
                _ => true,
            };
            if !has_reason {
                let what = format_args!("path {} is lost for the memory of a front-end", report.path);
                ctx.checker.violate(ctx.clock.elapsed(), None, what);
            }
            self.paths[usize::from(report.path.0)].report(ctx, report);
        }
        self.paths.iter_mut().for_each(|path| path.wake_if_answered(ctx));
        self.turn_membership(ctx);
    }

    /// Runs a turn of the task of a path, and carries out what follows for threads, disks and fences.
    pub(crate) fn turn_path(&mut self, ctx: &mut Ctx, index: usize) {
        let path = &mut self.paths[index];
        path.turn(ctx, &mut self.fences, &mut self.disks);
        for (thread, message) in std::mem::take(&mut path.own.outbox) {
            match message {
                Message::Path(ThreadMessage::PathDown { .. }) => self.had_all_paths.fill(false),
                Message::Path(ThreadMessage::Ana { disk, state, .. }) => {
                    self.had_all_paths[usize::from(disk.0)] &= is_accessible(state);
                }
                _ => {}
            }
            self.threads.0[thread].post(ctx, message);
        }
        self.hold_removals(ctx);
        self.name_namespaces();
        if self.paths[index].is_refused(ctx.clock.now()) && !self.paths[index].is_removing() {
            self.order(ctx, index, DesiredState::Removed { at_once: true });
            self.order(ctx, index, DesiredState::Enabled);
        }
        self.disk_tasks.iter_mut().for_each(DiskTask::wake);
        self.turn_fences(ctx);
    }

    /// Has the fence records name the namespaces that are known.
    fn name_namespaces(&mut self) {
        for disk in 0..self.shared.len() {
            if let Some(namespace) = self.disks.namespace(disk) {
                self.fences.set_namespace(disk, namespace);
            }
        }
    }

    /// Lifts fences that are due.
    pub(crate) fn turn_fences(&mut self, ctx: &mut Ctx) {
        for (path, epoch) in self.fences.turn(ctx) {
            ctx.say(|| format!("the fence of path {path} {epoch:?} lifts"));
            self.post_all(ctx, || ThreadMessage::FenceLifted { path, epoch }.into());
            // Its removal may wait for the fence.
            self.paths[usize::from(path.0)].wake(ctx);
        }
        for (path, index) in self.paths.iter_mut().zip(0..) {
            if self.fences.inner.has_reset(PathId(index)) {
                path.wake(ctx);
            }
        }
        self.turn_membership(ctx);
    }

    /// The requests that are left, as a text; `None` if there are none. At the end of a run, such requests are leaks.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        self.threads.0.iter().find_map(|thread| thread.leaks(now))
    }

    /// The state of the daemon, for the report of a run that does not end.
    pub(crate) fn state(&self, now: Instant) -> String {
        let live = self.paths.iter().filter(|path| path.is_live()).count();
        let threads: Vec<String> = self.threads.0.iter().map(|thread| thread.state(now)).collect();
        format!("{live} paths live, wanted: {:?}\n  {}", self.is_wanted, threads.join("\n  "))
    }
}
