//! The daemon: its I/O threads, path tasks and fences, until it is killed.

mod membership;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, Epoch, Limits, PathId, SharedDisk};
use mpath_host::{DesiredState, DiskShutdown};
use reactor::{LossReason, PathEventKind, UnansweredQueues};

use super::discovery::Discovery;
use super::disks::Disks;
use super::fences::{Fences, RecordFiles};
use super::frontends::Door;
use super::path::PathTask;
use super::thread::IoThread;
use super::threads::Threads;
use super::{DiskPlan, HostPlan, Message};
use crate::check::is_accessible;
use crate::controllers::Controllers;
use crate::machine::Machine;
use crate::net::ConnId;
use crate::rng::Rng;
use crate::target::Ctx;

pub(crate) struct Daemon {
    threads: Threads,
    /// By disk: its front-ends, and whether there is to be one.
    doors: Vec<Door>,
    has_front_end: Vec<bool>,
    /// Nothing is taken from virtqueues before.
    held_until: Option<Instant>,
    is_cache_shared: bool,
    disks: Disks,
    /// By disk: the blocks that it is to grow to, once every I/O thread knows of them.
    growing: BTreeMap<usize, (u64, Arc<()>)>,
    /// By disk, as the next two.
    shared: Vec<SharedDisk>,
    unanswered: Vec<Arc<UnansweredQueues>>,
    /// It began to serve with all paths, and has had all of them since.
    intact: Vec<bool>,
    paths: Vec<PathTask>,
    fences: Fences,
    /// By path, whether the operator wants it to be there.
    is_wanted: Vec<bool>,
    discovery: Option<Discovery>,
    /// By path: the operator wants it, or the configuration does. Discovery leaves it alone.
    own: Vec<bool>,
    /// By path: the operator has removed it while it was listed. Discovery must not add it before it is listed anew.
    taken: Vec<bool>,
    ending: Option<Ending>,
}

/// How far its orderly end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// The I/O threads give the virtqueues back, and end.
    Threads,
    /// Controllers are told that the host leaves.
    Paths { in_doubt: bool },
}

impl Daemon {
    /// Starts it, the n-th of the run, with what the one before has left, and serves the machines: how long it has to wait for the
    /// fences of that one before it takes anything from their virtqueues.
    pub(crate) fn start(
        ctx: &mut Ctx<'_>,
        number: u64,
        plan: &HostPlan,
        files: RecordFiles,
        machines: &mut [Machine],
        controllers: Option<&Controllers>,
        seed: u64,
    ) -> (Self, Duration) {
        let now = ctx.clock.now();
        let (fences, inherited) = Fences::open(now, number, files, plan, Rng::new(seed, 1000 * number + 300));
        let disk = |_| if inherited.is_some() { SharedDisk::after_crash() } else { SharedDisk::default() };
        let shared: Vec<_> = plan.disks.iter().map(disk).collect();
        let lossy = shared.iter().enumerate().filter(|(disk, _)| fences.has_lost_writes(*disk));
        lossy.for_each(|(_, disk)| disk.unflushed.set_lost(now));
        let left = |(disk, plan): (usize, &DiskPlan)| if fences.is_left(disk) { plan.queues } else { 0 };
        let unanswered = plan.disks.iter().enumerate().map(|disk| Arc::new(UnansweredQueues::new(left(disk), now)));
        let unanswered: Vec<_> = unanswered.collect();
        let rng = |part, index| Rng::new(seed, 1000 * number + part + index as u64);
        let thread = |index| IoThread::new(now, index, plan, &shared, &unanswered, rng(100, index));
        let discovery = controllers.map(|controllers| Discovery::new(ctx, plan, controllers, rng(400, 0)));
        let own = controllers.map_or_else(|| vec![true; plan.paths], |controllers| controllers.plan.configured.clone());
        let path = |path| PathTask::new(now, PathId(path as u16), Epoch(0), plan.clone(), rng(200, path));
        let mut daemon = Self {
            threads: Threads((0..plan.threads).map(thread).collect()),
            doors: (0..).map(DiskId).zip(&plan.disks).map(|(disk, plan)| Door::new(disk, plan.clone())).collect(),
            has_front_end: vec![true; plan.disks.len()],
            held_until: inherited.map(|fence| now + fence),
            is_cache_shared: plan.group.shared_write_cache,
            paths: (0..plan.paths).map(path).collect(),
            fences,
            is_wanted: own.clone(),
            discovery,
            own,
            taken: vec![false; plan.paths],
            intact: vec![false; shared.len()],
            shared,
            disks: Disks::new(&plan.disks, &machines.iter().map(Machine::blocks).collect::<Vec<_>>()),
            growing: BTreeMap::new(),
            unanswered,
            ending: None,
        };
        for index in 0..daemon.paths.len() {
            daemon.paths[index].known = true;
            if daemon.is_wanted[index] {
                daemon.paths[index].wake(ctx);
            } else {
                daemon.paths[index].set_gone();
                daemon.post_all(ctx, || Message::RemovePath(PathId(index as u16)));
            }
        }
        daemon.turn_doors(ctx, machines);
        (daemon, inherited.unwrap_or_default())
    }

    /// Lets front-ends in that wait: the disks whose guests were reset before for lost memory, and those from which nothing that was given
    /// up can be executed any more.
    pub(crate) fn turn_doors(&mut self, ctx: &mut Ctx<'_>, machines: &mut [Machine]) -> (Vec<usize>, Vec<usize>) {
        let held = self.held_until.filter(|until| ctx.clock.now() < *until);
        let (mut reset, mut settled) = (Vec::new(), Vec::new());
        let doors = self.doors.iter_mut().zip(&self.has_front_end).zip(machines);
        for (index, ((door, wants), machine)) in doors.enumerate() {
            let is_free = door.go_on(ctx, &mut self.threads, machine);
            if is_free && *wants && self.ending.is_none() {
                if machine.is_cut_off() {
                    machine.disconnect(true);
                    ctx.check.unheard(machine.given_up());
                    reset.push(index);
                }
                door.connect(ctx, &mut self.threads, machine, held, self.disks.shown(index));
            }
            if door.settles(ctx, &mut self.threads) && door.serves() {
                settled.push(index);
            }
        }
        (reset, settled)
    }

    /// The front-end of a disk hangs up; with the guest if that is reset.
    pub(crate) fn hang_up(&mut self, ctx: &mut Ctx<'_>, disk: usize, machine: &mut Machine, is_reset: bool) {
        self.has_front_end[disk] = false;
        self.doors[disk].hang_up(ctx, &mut self.threads, machine, is_reset);
    }

    /// The front-end of a disk stops its virtqueues.
    pub(crate) fn stop_queues(&mut self, ctx: &mut Ctx<'_>, disk: usize, machine: &mut Machine) {
        self.doors[disk].stop_queues(ctx, &mut self.threads, machine);
    }

    /// It has them run again.
    pub(crate) fn start_queues(&mut self, disk: usize) {
        self.doors[disk].start_queues();
    }

    /// Whether a disk has a front-end.
    pub(crate) fn has_front_end(&self, disk: usize) -> bool {
        self.doors[disk].serves()
    }

    /// Whether a thread has found, in this turn, that memory of the front-end of a disk is gone.
    pub(crate) fn has_faulted(&self, thread: usize, disk: usize) -> bool {
        self.has_front_end(disk) && self.threads.0[thread].has_faulted(DiskId(disk as u16))
    }

    /// Then it hangs up on the front-end.
    pub(crate) fn fault(&mut self, ctx: &mut Ctx<'_>, disk: usize, machine: &mut Machine) {
        self.has_front_end[disk] = false;
        self.doors[disk].fault(ctx, &mut self.threads, machine);
    }

    /// The front-end of a disk, or another one, connects as soon as it can.
    pub(crate) fn connect(&mut self, disk: usize) {
        self.has_front_end[disk] = true;
    }

    /// The I/O thread that has this virtqueue.
    pub(crate) fn thread_of(&self, disk: DiskId, queue: u16) -> usize {
        self.threads.of(disk, queue)
    }

    /// Killed: the file is all that is left.
    pub(crate) fn kill(self, ctx: &mut Ctx<'_>, machines: &mut [Machine], is_reset: bool) -> RecordFiles {
        let doors: Vec<_> = self.doors.into_iter().filter_map(Door::kill).collect();
        for thread in self.threads.0 {
            thread.kill(ctx);
        }
        for machine in machines {
            machine.disconnect(is_reset);
        }
        for door in doors {
            door.join().expect("it serves to the end");
        }
        self.fences.into_files()
    }

    /// Begins to end in order: front-ends are hung up on, and requests in flight have a moment.
    pub(crate) fn end(&mut self, ctx: &mut Ctx<'_>, machines: &mut [Machine]) {
        self.ending = Some(Ending::Threads);
        self.unanswered.iter().for_each(|disk| disk.begin_hang_up());
        self.post_all(ctx, || Message::Shutdown);
        for (disk, machine) in machines.iter_mut().enumerate() {
            self.hang_up(ctx, disk, machine, false);
        }
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Goes on with that: whether it is at its end.
    pub(crate) fn has_ended(&mut self, ctx: &mut Ctx<'_>) -> bool {
        match self.ending {
            None => false,
            Some(Ending::Threads) => {
                let are_over = self.threads.0.iter().all(IoThread::is_over);
                if are_over {
                    let in_doubt = self.threads.0.iter().any(IoThread::has_writes_in_doubt);
                    self.ending = Some(Ending::Paths { in_doubt });
                    self.discovery.iter_mut().for_each(|discovery| discovery.end_all(ctx));
                    self.paths.iter_mut().for_each(|path| path.end(ctx));
                }
                false
            }
            Some(Ending::Paths { .. }) => {
                let discovery = self.discovery.as_ref();
                self.paths.iter().all(PathTask::is_over)
                    && self.doors.iter().all(Door::is_free)
                    && discovery.is_none_or(Discovery::is_over)
            }
        }
    }

    /// It has ended in order: the files that it leaves, and whether they say all there is to say.
    pub(crate) fn leave(self, ctx: &mut Ctx<'_>) -> (RecordFiles, bool) {
        let Some(Ending::Paths { in_doubt }) = self.ending else { unreachable!("it has ended") };
        let now = ctx.clock.now();
        let leaving = |(disk, unanswered): (&SharedDisk, &Arc<UnansweredQueues>)| DiskShutdown {
            in_doubt,
            inherited_left: self.held_until.map(|until| until.saturating_duration_since(now)).unwrap_or_default(),
            unanswered: unanswered.has_any(),
            lost_writes: !self.is_cache_shared && disk.unflushed.has_unreported_loss(),
        };
        let leaving: Vec<_> = self.shared.iter().zip(&self.unanswered).map(leaving).collect();
        self.threads.0.into_iter().for_each(|thread| thread.count_hedges(ctx));
        self.fences.end(now, &leaving)
    }

    /// The fences of the daemon before it are over.
    pub(crate) fn begin_to_serve(&mut self) {
        self.fences.forget_inherited();
        self.intact = (0..self.shared.len() as u16).map(|disk| self.is_whole() && self.may_use_all(disk)).collect();
    }

    /// Whether flushes of a disk reach every controller that the daemon before it may have left its writes in.
    pub(crate) fn is_intact(&self, disk: DiskId) -> bool {
        self.intact[usize::from(disk.0)]
    }

    /// The operator changes the limits of a disk. Threads that wait because of the earlier ones look again.
    pub(crate) fn limit(&mut self, ctx: &mut Ctx<'_>, disk: usize, limits: Limits) {
        self.shared[disk].limits.set(ctx.clock.now(), limits);
        self.threads.0.iter_mut().for_each(|thread| thread.wake(ctx));
    }

    pub(crate) fn notify(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.owns(id)) {
            path.wake(ctx);
        } else if let Some(discovery) = self.discovery.as_mut().filter(|discovery| discovery.owns(id)) {
            discovery.wake(ctx);
        } else if let Some(thread) = self.threads.0.iter_mut().find(|thread| thread.owns(id)) {
            thread.wake(ctx);
        }
    }

    /// A guest has kicked a virtqueue.
    pub(crate) fn kick(&mut self, ctx: &mut Ctx<'_>, disk: DiskId, queue: u16) {
        let thread = self.thread_of(disk, queue);
        self.threads.0[thread].kick(ctx);
    }

    pub(crate) fn post_all(&mut self, ctx: &mut Ctx<'_>, message: impl Fn() -> Message) {
        self.threads.post_all(ctx, message);
    }

    /// A turn of an I/O thread.
    pub(crate) fn turn_thread(&mut self, ctx: &mut Ctx<'_>, index: usize) {
        let thread = &mut self.threads.0[index];
        thread.turn(ctx);
        for report in std::mem::take(&mut thread.reports) {
            ctx.say(|| format!("thread {index}: {report:?}"));
            if matches!(report.kind, PathEventKind::Lost(_) | PathEventKind::Closed { .. }) {
                self.intact.fill(false);
            }
            let has_need = match &report.kind {
                PathEventKind::Lost(LossReason::Socket(error)) => error.raw_os_error() != Some(libc::EFAULT),
                PathEventKind::Lost(LossReason::Abandoned) => {
                    self.ending.is_some() || self.doors.iter().any(|door| door.is_overdue(ctx.clock.now()))
                }
                _ => true,
            };
            if !has_need {
                let what = format_args!("path {} is lost for the memory of a front-end", report.path);
                ctx.check.violate(ctx.clock.elapsed(), None, what);
            }
            self.paths[usize::from(report.path.0)].report(ctx, report);
        }
        self.turn_membership(ctx);
    }

    /// Has disks grow that can, once the queue pairs know it: which, and to how many blocks.
    pub(crate) fn grow(&mut self, ctx: &mut Ctx<'_>) -> Vec<(usize, u64)> {
        let mut grown = Vec::new();
        for disk in 0..self.shared.len() {
            let growth = self.disks.growth(disk);
            let growing = self.growing.get(&disk);
            if let Some(&(agreed_before, _)) = growing.filter(|(_, told)| Arc::strong_count(told) == 1) {
                let blocks = growth.map(|blocks| blocks.min(agreed_before));
                self.growing.remove(&disk);
                if let Some(blocks) = blocks {
                    self.disks.grow(disk, blocks);
                    self.doors[disk].grow(blocks);
                    grown.push((disk, blocks));
                }
            } else if let Some(blocks) = growth
                && !self.growing.contains_key(&disk)
            {
                let told = Arc::new(());
                self.post_all(ctx, || {
                    let told = Arc::clone(&told);
                    Message::Barrier(Box::new(move || drop(told)))
                });
                self.growing.insert(disk, (blocks, told));
            }
        }
        grown
    }

    /// A turn of a path's task.
    pub(crate) fn turn_path(&mut self, ctx: &mut Ctx<'_>, index: usize) {
        let path_id = PathId(index as u16);
        let path = &mut self.paths[index];
        path.turn(ctx, &mut self.fences, &mut self.disks);
        for (thread, message) in std::mem::take(&mut path.mail) {
            match message {
                Message::PathDown { .. } => self.intact.fill(false),
                Message::Ana { disk, state, .. } => self.intact[usize::from(disk.0)] &= is_accessible(state),
                _ => {}
            }
            self.threads.0[thread].post(ctx, message);
        }
        if let Some(at_once) = self.paths[index].look.take() {
            let now = ctx.clock.now();
            let owes_nothing = (at_once || !self.may_be_dirty(path_id))
                && self.threads.0.iter().all(|thread| thread.owes_nothing(now, path_id));
            self.paths[index].looked(ctx, owes_nothing);
        }
        if self.paths[index].is_refused(ctx.clock.now()) && !self.paths[index].is_removing() {
            self.order(ctx, index, DesiredState::Removed { at_once: true });
            self.order(ctx, index, DesiredState::Enabled);
        }
        self.turn_fences(ctx);
    }

    pub(crate) fn turn_fences(&mut self, ctx: &mut Ctx<'_>) {
        for (path, epoch) in self.fences.turn(ctx) {
            ctx.say(|| format!("the fence of path {path} {epoch:?} lifts"));
            self.post_all(ctx, || Message::FenceLifted { path, epoch });
        }
        for (path, index) in self.paths.iter_mut().zip(0..) {
            if self.fences.has_reset(PathId(index)) {
                path.wake(ctx);
            }
        }
        self.turn_membership(ctx);
    }

    fn may_be_dirty(&self, path: PathId) -> bool {
        self.shared.iter().any(|disk| disk.unflushed.is_unflushed(path))
    }

    /// Whether every I/O thread can send on every path.
    fn is_whole(&self) -> bool {
        self.threads.0.iter().all(|thread| thread.live_paths() == self.paths.len())
    }

    fn may_use_all(&self, disk: u16) -> bool {
        self.threads.0.iter().all(|thread| thread.may_use_all(DiskId(disk)))
    }

    /// At the end of the run: what is left of anything.
    pub(crate) fn leaks(&self, now: Instant) -> Option<String> {
        self.threads.0.iter().find_map(|thread| thread.leaks(now))
    }

    /// Where everything is, for a run that does not end.
    pub(crate) fn state(&self, now: Instant) -> String {
        let live = self.paths.iter().filter(|path| path.is_live()).count();
        let threads: Vec<String> = self.threads.0.iter().map(|thread| thread.state(now)).collect();
        format!("{live} paths live, wanted: {:?}\n  {}", self.is_wanted, threads.join("\n  "))
    }
}
