//! Commands that arrive, wait, and are executed: in time, late, or when their connection is gone.

use std::ops::Range;
use std::time::Duration;

use nvme_tcp::target::{ByteRange, CommandToken, IoScope, IoTask, IoView, TargetCommand, check_io};
use nvme_tcp::wire::{Sgl, Status};

use super::store::Version;
use super::{Ctx, Pending, Target, WriteCache};
use crate::check::{Counts, Origin};
use crate::clock::Event;
use crate::net::{ConnId, Side};

/// The longest a node that is alive holds a command.
const HELD_MAX: Duration = Duration::from_secs(12);

/// What a command is to change.
struct Change {
    blocks: Range<u64>,
    durable: bool,
}

/// The changes of a command so far: a number of blocks from the first, and their owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct Begun {
    blocks: u64,
    origin: Origin,
}

/// A command at work: at a node, on the namespace at an index.
#[derive(Debug, Clone, Copy)]
struct Work {
    node: usize,
    of: usize,
    begun: Option<Begun>,
    /// Its connection is gone.
    orphan: bool,
}

/// The longest a node leaves a command half executed.
const RESTS_MAX: Duration = Duration::from_millis(200);

/// How the data of a command have come.
fn count_capsule(counts: &mut Counts, command: &TargetCommand) {
    match Sgl::parse(&command.sqe.dptr) {
        _ if command.payload.is_empty() => {}
        Ok(Sgl::InCapsule { length, .. }) => {
            counts.in_capsule += 1;
            counts.capsule_bytes_max = counts.capsule_bytes_max.max(length.into());
        }
        _ => counts.asked_for += 1,
    }
}

impl Target {
    /// An I/O command with all its data has arrived.
    pub(super) fn queue_command(&mut self, ctx: &mut Ctx<'_>, id: ConnId, cntlid: u16, command: TargetCommand) {
        let Some(node) = self.conns.get(&id).map(|conn| conn.node) else { return };
        let Some(view) = self.subsystem(node).io_view(cntlid).filter(|view| view.enabled) else {
            let now = ctx.clock.now();
            return self.close(ctx, id, now);
        };
        let nsid = command.sqe.nsid.get();
        if self.conns.get(&id).is_some_and(|conn| self.is_for_another(conn, nsid)) {
            let what = format_args!("node {node} is sent a command for namespace {nsid}, which is another one there");
            ctx.check.violate(ctx.clock.elapsed(), None, what);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.out.is_empty() && conn.queue.pending().is_empty() && ctx.net.room(id, Side::Target) >= conn.again.len()
        {
            ctx.net.send(ctx.clock, id, Side::Target, &std::mem::take(&mut conn.again));
        }
        count_capsule(&mut ctx.check.counts, &command);
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
        self.pending.insert(
            self.next,
            Pending { conn: id, node, instance, command, view, due, until: None, is_lost, begun: None },
        );
    }

    /// [`Event::Execute`] has come.
    pub(crate) fn on_execute(&mut self, ctx: &mut Ctx<'_>, number: u64) {
        let now = ctx.clock.now();
        let early = |pending: &Pending| pending.due > now || self.nodes[pending.node].paused;
        if self.pending.get(&number).is_none_or(early) {
            return;
        }
        if self.execute_piece(ctx, number) {
            return;
        }
        let Some(Pending { conn: id, node, command, view, until, is_lost, begun, .. }) = self.pending.remove(&number)
        else {
            return;
        };
        if let Some(until) = until {
            if now <= until
                && let Ok((IoScope::One(of), task)) = check_io(&command, &self.namespaces, &view)
            {
                self.change(ctx, Work { node, of, begun, orphan: true }, &task, &command.payload);
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
                self.change(ctx, Work { node, of, begun, orphan: false }, &task, &command.payload);
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
                let blocks = self.blocks_at(node, command.sqe.nsid.get());
                if self.end_of(of, &task) > blocks {
                    let at = ctx.clock.elapsed();
                    let what = format_args!("node {node} knows {blocks} blocks, and was asked for more: {task:?}");
                    return ctx.check.violate(at, None, what);
                }
                if let Some(failing) = self.nodes[node].failing
                    && self.rng.percent(failing.percent)
                {
                    if self.rng.percent(20) {
                        // Executed, and yet it failed.
                        self.change(ctx, Work { node, of, begun, orphan: false }, &task, &command.payload);
                    }
                    if let Some(conn) = self.conns.get_mut(&id) {
                        conn.queue.complete(command.token, failing.status, 0);
                    }
                    return self.send(ctx, id);
                }
                self.change(ctx, Work { node, of, begun, orphan: false }, &task, &command.payload);
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

    /// Executes a piece of a command of several blocks, and leaves the rest for later; not always.
    fn execute_piece(&mut self, ctx: &mut Ctx<'_>, number: u64) -> bool {
        let now = ctx.clock.now();
        if !self.plan.piecemeal || !self.pieces_rng.percent(60) {
            return false;
        }
        let Some(pending) = self.pending.get(&number).filter(|pending| pending.until.is_none_or(|until| now <= until))
        else {
            return false;
        };
        let (node, begun, orphan) = (pending.node, pending.begun, pending.until.is_some());
        let is_gone = self.gone.contains(&(node, pending.command.sqe.nsid.get()));
        let Some(view) = self.view_of(pending) else { return false };
        let Ok((IoScope::One(of), task)) = check_io(&pending.command, &self.namespaces, &view) else { return false };
        let Some(Change { blocks, durable }) = self.change_of(of, &task).filter(|_| !is_gone) else { return false };
        let done = begun.map_or(0, |begun| begun.blocks);
        let left = blocks.end - blocks.start - done;
        if left < 2 {
            return false;
        }
        let piece = blocks.start + done..blocks.start + done + self.pieces_rng.range(1, left - 1);
        let Some(mut pending) = self.pending.remove(&number) else { return false };
        let payload = matches!(task, IoTask::Write { .. }).then_some(&pending.command.payload[..]);
        let begun = self.apply(ctx, Work { node, of, begun, orphan }, Change { blocks, durable }, piece, payload);
        ctx.check.counts.pieces += 1;
        pending.begun = Some(begun);
        let rests = if self.pieces_rng.percent(5) { RESTS_MAX } else { self.plan.service };
        pending.due = now + self.pieces_rng.up_to(rests);
        ctx.clock.at(pending.due, Event::Execute(number));
        self.pending.insert(number, pending);
        true
    }

    /// The view of namespaces that a command has. It is fixed when its connection ends.
    fn view_of(&self, pending: &Pending) -> Option<IoView> {
        if pending.until.is_some() {
            return Some(pending.view.clone());
        }
        let identity = self.conns.get(&pending.conn)?.queue.identity()?;
        let subsystem = &self.subsystems[self.process(pending.node)];
        subsystem.io_view(identity.cntlid).filter(|view| view.enabled)
    }

    /// The end of the blocks that a task is about, in the namespace at this index.
    fn end_of(&self, of: usize, task: &IoTask) -> u64 {
        match task {
            IoTask::Read(range) => self.plan.namespaces[of].blocks_of(range).end,
            task => self.change_of(of, task).map_or(0, |change| change.blocks.end),
        }
    }

    /// The blocks that a task changes in the namespace at this index.
    fn change_of(&self, of: usize, task: &IoTask) -> Option<Change> {
        let through = self.plan.write_cache == WriteCache::None;
        let change = |range: &ByteRange, fua| Change {
            blocks: self.plan.namespaces[of].blocks_of(range),
            durable: fua || through,
        };
        match task {
            IoTask::Read(_) | IoTask::Flush => None,
            IoTask::Write { range, fua } | IoTask::WriteZeroes { range, fua, .. } => Some(change(range, *fua)),
            // The host sends one range at a time.
            IoTask::Deallocate(ranges) => ranges.first().map(|range| change(range, false)),
        }
    }

    /// Does what is left to be done of a change of the store of the namespace at this index.
    fn change(&mut self, ctx: &mut Ctx<'_>, work: Work, task: &IoTask, payload: &[u8]) {
        if *task == IoTask::Flush {
            self.stores[work.of].flush(work.node);
        }
        let Some(change) = self.change_of(work.of, task) else { return };
        let payload = matches!(task, IoTask::Write { .. }).then_some(payload);
        let rest = change.blocks.start + work.begun.map_or(0, |begun| begun.blocks)..change.blocks.end;
        self.apply(ctx, work, change, rest, payload);
    }

    /// Changes these blocks among those of a command, with a payload for all of them, or to zeroes.
    fn apply(
        &mut self,
        ctx: &mut Ctx<'_>,
        work: Work,
        change: Change,
        piece: Range<u64>,
        payload: Option<&[u8]>,
    ) -> Begun {
        let Work { node, of, begun, orphan } = work;
        let (plan, at) = (self.plan.namespaces[of], ctx.clock.elapsed());
        let Change { blocks, durable } = change;
        let origin = if let Some(Begun { origin, .. }) = begun {
            ctx.check.applying_more(at, node, plan.disk, piece.clone(), origin, orphan);
            origin
        } else {
            ctx.check.applying(at, node, plan.disk, blocks.clone(), payload, orphan)
        };
        let (block_bytes, first) = (plan.block_bytes(), blocks.start);
        let zeroes = vec![0; block_bytes];
        for lba in piece.clone() {
            let at = (lba - first) as usize * block_bytes;
            let bytes = payload.map_or(&zeroes[..], |payload| &payload[at..at + block_bytes]);
            self.stores[of].write(node, lba, Version { origin, bytes: bytes.to_vec() }, durable);
        }
        Begun { blocks: piece.end - first, origin }
    }
}
