//! The daemons of a run, one after the other, and the operator's orders to them.

use std::time::Duration;

use mpath_core::Limits;
use mpath_host::DesiredState;

use super::World;
use crate::clock::Event;
use crate::connection::Side;
use crate::host::{Daemon, Message};

impl World {
    /// Starts a daemon, unless there is one.
    pub(super) fn start_daemon(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        let files = std::mem::take(&mut self.files);
        let (number, seed, plan) = (self.daemons, self.seed, self.plan.host.clone());
        let (ctx, controllers) = (&mut self.ctx, self.controllers.as_ref());
        let (daemon, fence) = Daemon::start(ctx, number, &plan, files, controllers, seed);
        self.daemon = Some(daemon);
        self.daemons += 1;
        self.serves_at = Some(self.ctx.clock.now() + fence);
        self.ctx.clock.after(fence, Event::Serve);
    }

    /// The daemon is killed. The kernel closes its sockets after `exit`.
    pub(super) fn kill_daemon(&mut self, resubmits: bool, exit: Duration) {
        if self.daemon.is_none() {
            return;
        }
        self.end_daemon(!resubmits);
        self.ctx.checker.daemon_killed(self.ctx.clock.elapsed());
        for id in self.ctx.net.connections_of_host() {
            self.ctx.clock.after(exit, Event::CloseSocket(id));
        }
    }

    /// The daemon begins to end in order. The next daemon starts when it has ended.
    pub(super) fn stop_daemon(&mut self) {
        let Self { ctx, machines, .. } = self;
        if let Some(daemon) = &mut self.daemon
            && !daemon.is_ending()
        {
            (0..machines.len()).for_each(|disk| ctx.checker.limits_lifted(disk));
            daemon.begin_shutdown(ctx, machines);
        }
    }

    /// Starts the next daemon if the present one has ended in order.
    pub(super) fn turn_shutdown(&mut self) {
        let Some(daemon) = self.daemon.take_if(|daemon| daemon.has_ended(&mut self.ctx)) else { return };
        let (files, is_written) = daemon.finish_shutdown(&mut self.ctx);
        self.ctx.checker.daemon_ended(self.ctx.clock.elapsed(), is_written);
        self.files = files;
        (self.serves, self.serves_at) = (false, None);
        self.unsettled.fill(false);
        for id in self.ctx.net.connections_of_host() {
            self.ctx.net.close(&mut self.ctx.clock, id, Side::Host);
        }
        self.start_daemon();
    }

    /// The daemon is gone, and its files are left. The guests may be reset with it.
    pub(super) fn end_daemon(&mut self, is_reset: bool) {
        let Some(daemon) = self.daemon.take() else { return };
        let Self { ctx, machines, .. } = self;
        self.files = daemon.kill(ctx, machines, is_reset);
        (self.serves, self.serves_at) = (false, None);
        self.unsettled.fill(false);
    }

    /// The inherited fences are over.
    pub(super) fn serve(&mut self) {
        if self.serves_at.take_if(|at| *at == self.ctx.clock.now()).is_none() {
            return;
        }
        let Some((daemon, ctx)) = self.daemon() else { return };
        daemon.update_holds(ctx);
        ctx.say(|| "the inherited fences are over".into());
        self.serves = true;
        self.drop_given_up();
    }

    /// The operator orders a state of a path. A removed path is added again first.
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
