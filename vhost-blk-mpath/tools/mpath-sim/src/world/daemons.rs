//! The daemons of a run, one after the other, and the operator's orders to them.

use monotonic::Duration;
use mpath_core::Limits;
use mpath_lifecycle::DesiredState;

use super::World;
use crate::clock::Event;
use crate::connection::Side;
use crate::host::{Daemon, EndedDaemon, Files, Message, Process};

impl World {
    /// Starts a daemon, unless there is one.
    pub(super) fn start_daemon(&mut self) {
        if self.daemon.is_none() && self.idle.is_none() {
            let process = Process::new(self.daemons, self.ctx.clock.now());
            self.serve_disks(process);
        }
    }

    /// A process begins to serve the disks.
    fn serve_disks(&mut self, process: Process) {
        let files = std::mem::replace(&mut self.files[self.socket], Files::new(&self.plan.host));
        let (number, seed, plan) = (self.daemons, self.seed, self.plan.host.clone());
        let (ctx, controllers) = (&mut self.ctx, self.controllers.as_ref());
        self.daemon = Some(Daemon::start(ctx, number, process, &plan, files, controllers, seed));
        self.daemons += 1;
    }

    /// The daemon is killed. The kernel closes its sockets after `exit`.
    pub(super) fn kill_daemon(&mut self, resubmits: bool, exit: Duration) {
        if self.would_forget_fences() {
            return;
        }
        if self.daemon.is_none() {
            if self.idle.take().is_some() {
                // The next process knows of the fences on this socket alone.
                self.socket = self.last_socket;
            }
            return;
        }
        self.end_daemon(!resubmits);
        self.ctx.checker.daemon_killed(self.ctx.clock.elapsed());
        for id in self.ctx.net.connections_of_host() {
            self.ctx.clock.after(exit, Event::CloseSocket(id));
        }
    }

    /// Whether the next daemon would not know of fences on the namespaces of its disks. The disks were removed and added on other
    /// sockets, and no path has named their namespaces since. `docs/failure-model.md` promises nothing then.
    fn would_forget_fences(&self) -> bool {
        self.socket != self.last_socket
            && self.fences_until.is_some_and(|until| self.ctx.clock.now() < until)
            && self.daemon.as_ref().is_some_and(|daemon| !daemon.has_inherited())
    }

    /// The daemon begins to end in order. The next daemon starts when it has ended.
    pub(super) fn stop_daemon(&mut self) {
        if self.would_forget_fences() {
            return;
        }
        let Self { ctx, machines, .. } = self;
        if let Some(daemon) = &mut self.daemon
            && !daemon.is_ending()
        {
            (0..machines.len()).for_each(|disk| ctx.checker.limits_lifted(disk));
            daemon.begin_shutdown(ctx, machines);
        }
    }

    /// The operator removes all disks, whose guests are gone, and adds them later, on other sockets or on the same ones.
    pub(super) fn remove_disks(&mut self, to_other_socket: bool) {
        let Self { ctx, machines, guests, unsettled, .. } = self;
        let Some(daemon) = self.daemon.as_mut().filter(|daemon| !daemon.is_ending()) else { return };
        (self.adds_on, self.is_added) = (if to_other_socket { 1 - self.socket } else { self.socket }, false);
        (0..machines.len()).for_each(|disk| ctx.checker.limits_lifted(disk));
        daemon.begin_removal(ctx, machines);
        for ((machine, guest), unsettled) in machines.iter_mut().zip(guests).zip(unsettled) {
            ctx.checker.guest_gone(machine.given_up());
            machine.forget_size();
            guest.replaced(machine.blocks());
            *unsettled = true;
        }
    }

    /// The operator adds the disks that were removed, once they are gone.
    pub(super) fn add_disks(&mut self) {
        self.is_added = true;
        if let Some(process) = self.idle.take() {
            self.serve_disks(process);
        }
    }

    /// Continues the end of a daemon. If the daemon has ended in order, the next one starts.
    pub(super) fn turn_shutdown(&mut self) {
        let Some(daemon) = self.daemon.take_if(|daemon| daemon.has_ended(&mut self.ctx)) else { return };
        let EndedDaemon { process, is_removal, files, is_written, fence_left, is_clean } =
            daemon.finish_shutdown(&mut self.ctx);
        let at = self.ctx.clock.elapsed();
        self.files[self.socket] = files;
        self.forget_daemon();
        if !is_removal {
            self.ctx.checker.daemon_ended(at, is_written);
            for id in self.ctx.net.connections_of_host() {
                self.ctx.net.close(&mut self.ctx.clock, id, Side::Host);
            }
            return self.start_daemon();
        }
        self.ctx.checker.disks_removed(at, is_clean || is_written && self.adds_on == self.socket);
        self.ctx.checker.counts.removed_in_doubt += u64::from(!fence_left.is_zero());
        // Fences are recorded in whole milliseconds, rounded up.
        self.ctx.clock.after(fence_left + Duration::from_millis(1), Event::ExpireFences { socket: self.socket });
        self.fences_until = self.fences_until.max(Some(self.ctx.clock.now() + fence_left));
        (self.last_socket, self.socket) = (self.socket, self.adds_on);
        self.idle = Some(process);
        if self.is_added {
            self.add_disks();
        }
    }

    /// Handles [`Event::ExpireFences`]: the process updates the records of removed disks, if no disk is on their sockets.
    pub(super) fn expire_fences(&mut self, socket: usize) {
        let now = self.ctx.clock.now();
        let process = self.idle.as_ref().or_else(|| Some(self.daemon.as_ref()?.process()));
        if let Some(process) = process.filter(|_| self.daemon.is_none() || self.socket != socket) {
            self.files[socket].expire(process, now);
        }
    }

    /// Ends the daemon by a kill, and keeps its files. The guests may be reset at the same time.
    pub(super) fn end_daemon(&mut self, is_reset: bool) {
        let Some(daemon) = self.daemon.take() else { return };
        let Self { ctx, machines, .. } = self;
        self.files[self.socket] = daemon.kill(ctx, machines, is_reset);
        self.forget_daemon();
    }

    fn forget_daemon(&mut self) {
        self.serves.fill(false);
        self.unsettled.fill(false);
    }

    /// Notes which disks are open and past their inherited fences, so that their requests are fetched.
    pub(super) fn turn_fences(&mut self) {
        let now = self.ctx.clock.now();
        let Some(daemon) = &self.daemon else { return };
        for (disk, serves) in self.serves.iter_mut().enumerate().filter(|(_, serves)| !**serves) {
            *serves = daemon.is_past_fences(disk, now);
        }
        self.drop_given_up();
    }

    /// Orders a state of a path, as the operator does. A removed path is added again first.
    pub(super) fn order(&mut self, path: usize, wanted: DesiredState) {
        if let Some((daemon, ctx)) = self.daemon() {
            daemon.order(ctx, path, wanted);
        }
    }

    /// Posts a message to all I/O threads.
    pub(super) fn post_all(&mut self, message: impl Fn() -> Message) {
        if let Some((daemon, ctx)) = self.daemon() {
            daemon.post_all(ctx, message);
        }
    }

    /// The operator changes the limits of a disk.
    pub(super) fn set_limits(&mut self, disk: usize, limits: Limits) {
        if let Some((daemon, ctx)) = self.daemon() {
            daemon.set_limits(ctx, disk, limits);
            self.ctx.checker.limits_set(self.ctx.clock.elapsed(), disk, limits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    /// More than any fence and any orderly end take.
    const LONG: Duration = Duration::from_secs(60);

    /// A world without faults, guests and discovery.
    fn quiet_world(seed: u64) -> World {
        let mut world = World::new(seed, false, false);
        world.ctx.clock = Clock::new();
        world.controllers = None;
        world.start_daemon();
        world
    }

    /// Takes events until the world is as it should be. Returns whether it became so in time.
    fn becomes(world: &mut World, is_so: impl Fn(&World) -> bool) -> bool {
        let until = world.ctx.clock.now() + LONG;
        while !is_so(world) {
            match world.ctx.clock.next() {
                Some(event) if world.ctx.clock.now() < until => world.take_event(event),
                _ => return false,
            }
        }
        true
    }

    fn is_of_daemon(world: &World, is_so: impl Fn(&Daemon) -> bool) -> bool {
        world.daemon.as_ref().is_some_and(is_so)
    }

    #[test]
    fn a_path_added_while_paths_are_closed_does_not_hold_up_the_end() {
        for seed in 0..10 {
            let mut world = quiet_world(seed);
            assert!(becomes(&mut world, |world| is_of_daemon(world, Daemon::can_use_all_paths)), "seed {seed}");
            world.order(0, DesiredState::Removed { at_once: true });
            // Its fence passes, and it is gone.
            becomes(&mut world, |_| false);
            world.stop_daemon();
            assert!(becomes(&mut world, |world| is_of_daemon(world, Daemon::is_closing_paths)), "seed {seed}");
            world.order(0, DesiredState::Enabled);
            assert!(becomes(&mut world, |world| world.daemons == 2), "seed {seed}: the next daemon starts");
            world.end_daemon(false);
        }
    }
}
