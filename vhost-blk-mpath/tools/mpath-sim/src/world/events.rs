//! Passes each event to the part of the simulation that it is for.

use mpath_core::DiskId;

use super::World;
use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::tls::TlsRefusal;

impl World {
    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Deliver(id, side) => {
                let (readable, room) = self.ctx.net.on_deliver(&mut self.ctx.clock, id, side);
                if readable {
                    self.notify(id, side);
                }
                if room {
                    self.notify(id, side.other());
                }
            }
            Event::Established(id) => {
                if self.ctx.net.on_established(&mut self.ctx.clock, id) {
                    let (paths, link) = (self.plan.host.paths, self.ctx.net.path_of(id));
                    let (node, now) = (link, self.ctx.clock.now());
                    let controller = link.checked_sub(paths);
                    if let (Some((controllers, ctx)), Some(controller)) = (self.controllers(), controller) {
                        controllers.on_accept(ctx, id, controller);
                    } else {
                        self.begin_tls(id, node);
                        self.target.on_accept(now, id, node);
                    }
                }
                self.notify(id, Side::Host);
            }
            Event::Reset(id, side) => {
                if self.ctx.net.on_reset(id, side) {
                    match side {
                        Side::Host => self.notify(id, side),
                        Side::Target => match self.controllers() {
                            Some((controllers, ctx)) if controllers.owns(id) => controllers.close(ctx, id),
                            _ => {
                                let (target, ctx) = self.target();
                                target.on_reset(ctx, id);
                            }
                        },
                    }
                }
            }
            Event::CloseSocket(id) => self.ctx.net.close(&mut self.ctx.clock, id, Side::Host),
            Event::ExpireFences { socket } => self.expire_fences(socket),
            // Disks are opened, released, removed and grow after every event.
            Event::Disks => {}
            Event::IoThread(index) => self.turn_io_thread(index),
            Event::Discovery => {
                if let Some((daemon, ctx)) = self.daemon() {
                    daemon.turn_discovery(ctx);
                }
            }
            Event::Path(index) => {
                if let Some((daemon, ctx)) = self.daemon() {
                    daemon.turn_path(ctx, index);
                }
            }
            Event::Fences => {
                if let Some((daemon, ctx)) = self.daemon() {
                    daemon.turn_fences(ctx);
                }
            }
            Event::Execute(number) => {
                let (target, ctx) = self.target();
                target.on_execute(ctx, number);
            }
            Event::CrossReset(number) => {
                let (target, ctx) = self.target();
                target.on_cross_reset(ctx, number);
            }
            Event::KeepAlive(id) => match self.controllers() {
                Some((controllers, ctx)) if controllers.owns(id) => controllers.on_keep_alive(ctx, id),
                _ => {
                    let (target, ctx) = self.target();
                    target.on_keep_alive(ctx, id);
                }
            },
            Event::BeginFault(index) => self.begin_fault(self.plan.faults[index].fault),
            Event::EndFault(index) => self.end_fault(self.plan.faults[index].fault),
            Event::Guest { disk, user } => {
                if let Some(request) = self.guests[disk].next_request(&mut self.ctx.clock, user) {
                    self.submit(request);
                }
            }
            Event::Quiet => {
                self.ctx.say(|| "quiet".into());
                self.on_quiet();
            }
        }
    }

    /// The target begins TLS on a connection in a run with TLS, unless its node expects clear text.
    fn begin_tls(&mut self, id: ConnId, node: usize) {
        let refusal = self.target.nodes[node].tls_refusal;
        if let Some(tls) = self.plan.host.tls.as_ref().filter(|_| refusal != Some(TlsRefusal::ClearText)) {
            self.ctx.net.encrypt(id, tls.controller(refusal.is_none()));
        }
    }

    /// This end of a connection has bytes to read, or room to write.
    fn notify(&mut self, id: ConnId, side: Side) {
        if let Some((controllers, ctx)) = self.controllers()
            && controllers.owns(id)
            && side == Side::Target
        {
            controllers.on_ready(ctx, id);
        } else if side == Side::Target {
            let (target, ctx) = self.target();
            target.on_ready(ctx, id);
        } else if let Some((daemon, ctx)) = self.daemon() {
            daemon.notify(ctx, id);
        }
    }

    /// An I/O thread has its turn, and guests reap its answers.
    fn turn_io_thread(&mut self, index: usize) {
        let Some((daemon, ctx)) = self.daemon() else { return };
        daemon.turn_thread(ctx, index);
        for disk in 0..self.machines.len() {
            let id = DiskId(disk as u16);
            for queue in 0..self.plan.host.disks[disk].queues {
                let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.thread_of(id, queue) == index) else {
                    continue;
                };
                let had_all_paths = daemon.had_all_paths(id);
                let answers = self.machines[disk].reap(queue.into());
                for answer in answers.iter().filter(|answer| answer.result.is_ok()) {
                    self.ctx.checker.served(self.ctx.clock.elapsed(), index, answer.request.id);
                }
                self.answer(answers, had_all_paths);
            }
        }
        self.turn_memory_faults(index);
        self.turn_front_ends();
    }
}
