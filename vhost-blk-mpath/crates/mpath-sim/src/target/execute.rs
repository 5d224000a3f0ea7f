//! Commands that arrive, wait, and are executed: in time, late, or when their connection is gone.

use std::ops::Range;
use std::time::Duration;

use nvme_tcp::target::{ByteRange, CommandToken, IoScope, IoTask, TargetCommand, check_io};
use nvme_tcp::wire::Status;

use super::store::Version;
use super::{Ctx, Pending, Target};
use crate::clock::Event;
use crate::net::{ConnId, Side};

/// The longest a node that is alive holds a command.
const HELD_MAX: Duration = Duration::from_secs(12);

impl Target {
    /// An I/O command with all its data has arrived.
    pub(super) fn queue_command(&mut self, ctx: &mut Ctx<'_>, id: ConnId, cntlid: u16, command: TargetCommand) {
        let Some(node) = self.conns.get(&id).map(|conn| conn.node) else { return };
        let Some(view) = self.subsystem(node).io_view(cntlid).filter(|view| view.enabled) else {
            let now = ctx.clock.now();
            return self.close(ctx, id, now);
        };
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.out.is_empty() && conn.queue.pending().is_empty() && ctx.net.room(id, Side::Target) >= conn.again.len()
        {
            ctx.net.send(ctx.clock, id, Side::Target, &std::mem::take(&mut conn.again));
        }
        let instance = conn.instance;
        let state = self.nodes[node];
        let service = if self.rng.percent(state.held_percent) {
            self.rng.up_to(HELD_MAX)
        } else {
            self.rng.tail(self.plan.service) + state.extra_service
        };
        let due = ctx.clock.now() + service;
        let is_lost = self.rng.percent(state.lost_percent);
        if is_lost && self.rng.percent(50) {
            return;
        }
        self.next += 1;
        ctx.clock.at(due, Event::Execute(self.next));
        self.pending.insert(self.next, Pending { conn: id, node, instance, command, view, due, until: None, is_lost });
    }

    /// [`Event::Execute`] has come.
    pub(crate) fn on_execute(&mut self, ctx: &mut Ctx<'_>, number: u64) {
        let now = ctx.clock.now();
        let early = |pending: &Pending| pending.due > now || self.nodes[pending.node].paused;
        if self.pending.get(&number).is_none_or(early) {
            return;
        }
        let Some(Pending { conn: id, node, command, view, until, is_lost, .. }) = self.pending.remove(&number) else {
            return;
        };
        if let Some(until) = until {
            if now <= until
                && let Ok((IoScope::One(of), task)) = check_io(&command, &self.namespaces, &view)
            {
                self.change(ctx, node, of, &task, &command.payload, true);
            }
            return;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        let cntlid = conn.queue.identity().map_or(0, |identity| identity.cntlid);
        let Some(view) = self.subsystem(node).io_view(cntlid).filter(|view| view.enabled) else {
            return self.close(ctx, id, now);
        };
        if is_lost {
            if let Ok((IoScope::One(of), task)) = check_io(&command, &self.namespaces, &view) {
                self.change(ctx, node, of, &task, &command.payload, false);
            }
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let gone = self.gone.contains(&(node, command.sqe.nsid.get()));
        let checked = check_io(&command, &self.namespaces, &view);
        let token = match if gone { Err(Status::INVALID_NAMESPACE.with_dnr()) } else { checked } {
            Err(status) => {
                if !gone && !status.is_path_error() {
                    let at = ctx.clock.elapsed();
                    ctx.check.violate(at, None, format_args!("node {node} was asked what it cannot do: {status}"));
                }
                conn.queue.complete(command.token, status, 0);
                return self.send(ctx, id);
            }
            Ok((IoScope::All, _)) => {
                let at = ctx.clock.elapsed();
                return ctx.check.violate(at, None, format_args!("node {node} was asked to flush every namespace"));
            }
            Ok((IoScope::One(of), task)) => {
                if let Some(failing) = self.nodes[node].failing
                    && self.rng.percent(failing.percent)
                {
                    if self.rng.percent(20) {
                        // Executed, and yet it failed.
                        self.change(ctx, node, of, &task, &command.payload, false);
                    }
                    if let Some(conn) = self.conns.get_mut(&id) {
                        conn.queue.complete(command.token, failing.status, 0);
                    }
                    return self.send(ctx, id);
                }
                self.change(ctx, node, of, &task, &command.payload, false);
                match task {
                    IoTask::Read(range) => return self.read(ctx, id, of, command, range),
                    _ => command.token,
                }
            }
        };
        self.complete(ctx, id, token);
    }

    /// Completes a command without data; a faulty node does so once more when the next command has come.
    fn complete(&mut self, ctx: &mut Ctx<'_>, id: ConnId, token: CommandToken) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let alone = conn.queue.pending().is_empty();
        conn.queue.complete(token, Status::SUCCESS, 0);
        if alone && self.rng.percent(self.nodes[conn.node].repeated_percent) {
            conn.again = conn.queue.pending().to_vec();
        }
        self.send(ctx, id);
    }

    fn read(&mut self, ctx: &mut Ctx<'_>, id: ConnId, of: usize, command: TargetCommand, range: ByteRange) {
        let mut data = Vec::with_capacity(range.bytes as usize);
        for lba in self.plan.namespaces[of].blocks_of(&range) {
            data.extend_from_slice(&self.stores[of].read(lba).bytes);
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.queue.complete_with_data(command.token, data.len() as u32, |offset, part| {
                part.copy_from_slice(&data[offset as usize..][..part.len()]);
                Ok(())
            });
        }
        self.send(ctx, id);
    }

    /// Does what changes the store of the namespace at this index.
    fn change(&mut self, ctx: &mut Ctx<'_>, node: usize, of: usize, task: &IoTask, payload: &[u8], orphan: bool) {
        let through = !self.plan.volatile_write_cache;
        let (plan, store) = (self.plan.namespaces[of], &mut self.stores[of]);
        let block_bytes = plan.block_bytes();
        let zeroes = vec![0; block_bytes];
        let mut write = |blocks: Range<u64>, payload: Option<&[u8]>, fua: bool| {
            let at = ctx.clock.elapsed();
            let origin = ctx.check.applying(at, node, plan.disk, blocks.clone(), payload, orphan);
            for (index, lba) in (0..).zip(blocks) {
                let bytes = payload.map_or(&zeroes[..], |payload| &payload[index * block_bytes..][..block_bytes]);
                store.write(node, lba, Version { origin, bytes: bytes.to_vec() }, fua || through);
            }
        };
        match task {
            IoTask::Read(_) => {}
            IoTask::Flush => store.flush(node),
            IoTask::Write { range, fua } => write(plan.blocks_of(range), Some(payload), *fua),
            IoTask::WriteZeroes { range, fua, .. } => write(plan.blocks_of(range), None, *fua),
            IoTask::Deallocate(ranges) => ranges.iter().for_each(|range| write(plan.blocks_of(range), None, false)),
        }
    }
}
