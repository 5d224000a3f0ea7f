//! The execution of I/O commands: in time, late, piece by piece, or when their connection is gone.

use std::ops::Range;

use monotonic::Duration;
use nvme_tcp::wire::{NvmCommand, Sgl, Status};
use nvme_tcp_target::{ByteRange, CommandToken, IoScope, IoTask, IoView, TargetCommand, check_io};

use super::state::{ExecutedPart, PendingCommand};
use super::store::BlockVersion;
use super::{Target, WriteCache};
use crate::blocks::{Origin, pattern};
use crate::checker::Counts;
use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// The longest time that a running node holds a command.
const HELD_MAX: Duration = Duration::from_secs(12);

/// The blocks that a command changes.
struct BlockChange {
    blocks: Range<u64>,
    durable: bool,
}

/// A command that is executed at a node, on the namespace at an index.
#[derive(Debug, Clone, Copy)]
struct Execution {
    node: usize,
    namespace: usize,
    executed: Option<ExecutedPart>,
    /// Its connection is gone.
    is_orphan: bool,
}

/// The longest pause between two pieces of a command.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Counts how the data of a command arrived.
fn count_capsule(counts: &mut Counts, command: &TargetCommand) {
    match Sgl::parse(&command.sqe.dptr) {
        _ if command.payload.is_empty() => {}
        Ok(Sgl::InCapsule { length, .. }) => {
            counts.in_capsule += 1;
            counts.capsule_bytes_max = counts.capsule_bytes_max.max(length.into());
        }
        _ => counts.requested_by_r2t += 1,
    }
}

impl Target {
    /// An I/O command with all its data has arrived.
    pub(super) fn queue_command(&mut self, ctx: &mut Ctx, id: ConnId, cntlid: u16, command: TargetCommand) {
        let Some(node) = self.conns.get(&id).map(|conn| conn.node) else { return };
        let Some(view) = self.subsystem(node).io_view(cntlid).filter(|view| view.enabled) else {
            let now = ctx.clock.now();
            return self.close(ctx, id, now);
        };
        let nsid = command.sqe.nsid.get();
        if self.conns.get(&id).is_some_and(|conn| self.is_for_replaced(conn, nsid)) {
            let what = format_args!("node {node} is sent a command for namespace {nsid}, which is another one there");
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.out.is_empty() && conn.queue.pending().is_empty() && ctx.net.room(id, Side::Target) >= conn.repeat.len()
        {
            ctx.checker.counts.responses_repeated += u64::from(!conn.repeat.is_empty());
            ctx.net.send(&mut ctx.clock, id, Side::Target, &std::mem::take(&mut conn.repeat));
        }
        count_capsule(&mut ctx.checker.counts, &command);
        let instance = conn.instance;
        if let Some(writer) = self.writer_of(&command) {
            ctx.checker.write_arrived(ctx.clock.elapsed(), writer, id);
        }
        let state = self.nodes[node];
        let service = if self.rng.percent(state.held_percent) {
            self.rng.up_to(HELD_MAX)
        } else {
            ctx.checker.counts.commands_slowed += u64::from(!state.extra_service.is_zero());
            self.rng.tail(self.plan.service) + state.extra_service
        };
        let due = ctx.clock.now() + service;
        let is_lost = self.rng.percent(state.lost_percent);
        ctx.checker.counts.commands_lost += u64::from(is_lost);
        if is_lost && self.rng.percent(50) {
            return;
        }
        self.last_number += 1;
        ctx.clock.at(due, Event::Execute(self.last_number));
        self.pending.insert(
            self.last_number,
            PendingCommand { conn: id, node, instance, command, view, due, until: None, is_lost, executed: None },
        );
    }

    /// The request that a write belongs to.
    pub(super) fn writer_of(&self, command: &TargetCommand) -> Option<u64> {
        let Ok(NvmCommand::Write { slba, .. }) = NvmCommand::parse(&command.sqe) else { return None };
        let plan = self.plan.namespaces.get((command.sqe.nsid.get() as usize).wrapping_sub(1))?;
        match pattern::parse(plan.disk, command.payload.get(..plan.block_bytes())?, slba) {
            Ok(Origin::Request(id)) => Some(id),
            _ => None,
        }
    }

    /// [`Event::Execute`] has come.
    pub(crate) fn on_execute(&mut self, ctx: &mut Ctx, number: u64) {
        let Some(id) = self.pending.get(&number).map(|pending| pending.conn) else { return };
        self.execute(ctx, number);
        self.close_if_executed(ctx, id);
    }

    fn execute(&mut self, ctx: &mut Ctx, number: u64) {
        let now = ctx.clock.now();
        let early = |pending: &PendingCommand| pending.due > now || self.nodes[pending.node].paused;
        if self.pending.get(&number).is_none_or(early) {
            return;
        }
        if self.execute_piece(ctx, number) {
            return;
        }
        let Some(PendingCommand { conn: id, node, instance, command, view, until, is_lost, executed, .. }) =
            self.pending.remove(&number)
        else {
            return;
        };
        if let Some(until) = until {
            if now <= until
                && let Ok((IoScope::One(namespace), task)) = check_io(&command, &self.namespaces, &view)
                && self.refusal_of_size(namespace, &task).is_none()
            {
                self.change(ctx, Execution { node, namespace, executed, is_orphan: true }, &task, &command.payload);
            }
            return;
        }
        let Some(conn) = self.conns.get(&id) else { return };
        let cntlid = conn.queue.identity().map_or(0, |identity| identity.cntlid);
        let Some(view) = self.subsystem(node).io_view(cntlid).filter(|view| view.enabled) else {
            return self.close(ctx, id, now);
        };
        if is_lost {
            if let Ok((IoScope::One(namespace), task)) = check_io(&command, &self.namespaces, &view)
                && self.refusal_of_size(namespace, &task).is_none()
            {
                self.change(ctx, Execution { node, namespace, executed, is_orphan: false }, &task, &command.payload);
            }
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let absent = self.absent.contains(&(node, command.sqe.nsid.get()));
        let checked = check_io(&command, &self.namespaces, &view);
        let token = match if absent { Err(Status::INVALID_NAMESPACE.with_dnr()) } else { checked } {
            Err(status) => {
                if !absent && !status.is_ana_error() {
                    let at = ctx.clock.elapsed();
                    ctx.checker.violate(at, None, format_args!("node {node} was asked what it cannot do: {status}"));
                }
                conn.queue.complete(command.token, status, 0);
                return self.send(ctx, id);
            }
            Ok((IoScope::All, _)) => {
                let at = ctx.clock.elapsed();
                return ctx.checker.violate(at, None, format_args!("node {node} was asked to flush every namespace"));
            }
            Ok((IoScope::One(namespace), task)) => {
                let blocks = self.blocks_at(node, command.sqe.nsid.get());
                if self.end_of(namespace, &task) > blocks {
                    let at = ctx.clock.elapsed();
                    let what = format_args!("node {node} knows {blocks} blocks, and was asked for more: {task:?}");
                    return ctx.checker.violate(at, None, what);
                }
                if let Some(status) = self.refusal_of_size(namespace, &task) {
                    ctx.checker.counts.too_large_refused += 1;
                    if let Some(conn) = self.conns.get_mut(&id) {
                        conn.queue.complete(command.token, status, 0);
                    }
                    return self.send(ctx, id);
                }
                if let Some(status_fault) = self.nodes[node].status_fault
                    && self.rng.percent(status_fault.percent)
                {
                    if task == IoTask::Flush {
                        self.fail_flush(ctx, node, namespace, status_fault.status);
                    } else if self.rng.percent(20) {
                        // Executed, and yet it failed.
                        self.change(
                            ctx,
                            Execution { node, namespace, executed, is_orphan: false },
                            &task,
                            &command.payload,
                        );
                    }
                    if let Some(conn) = self.conns.get_mut(&id) {
                        conn.queue.complete(command.token, status_fault.status, 0);
                    }
                    return self.send(ctx, id);
                }
                let changed = self.change(
                    ctx,
                    Execution { node, namespace, executed, is_orphan: false },
                    &task,
                    &command.payload,
                );
                if let Some(((blocks, Origin::Request(id)), controller)) = changed.zip(instance) {
                    let disk = self.plan.namespaces[namespace].disk;
                    ctx.checker.closed_paths.answered(node, disk, controller, id, blocks);
                }
                match task {
                    IoTask::Read(range) => return self.read(ctx, id, namespace, command, range),
                    _ => command.token,
                }
            }
        };
        self.complete(ctx, id, token);
    }

    /// A flush fails. The cache may be gone, unless the status says that the flush was not executed. A host file system drops data
    /// that it could not write.
    fn fail_flush(&mut self, ctx: &mut Ctx, node: usize, namespace: usize, status: Status) {
        let may_be_gone = status.sct() == 2 || status.is(Status::INTERNAL_ERROR) || status.sct() == 7;
        if !may_be_gone || !self.statuses_rng.percent(50) {
            return;
        }
        let losses = self.stores[namespace].crash(node);
        ctx.checker.counts.caches_dropped += u64::from(!losses.is_empty());
        ctx.checker.cache_lost(ctx.clock.elapsed(), node, self.plan.namespaces[namespace].disk, &losses);
    }

    /// Completes a command without data. A faulty node repeats the response when the next command has arrived.
    fn complete(&mut self, ctx: &mut Ctx, id: ConnId, token: CommandToken) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let alone = conn.queue.pending().is_empty();
        conn.queue.complete(token, Status::SUCCESS, 0);
        if alone && self.rng.percent(self.nodes[conn.node].repeated_percent) {
            conn.repeat = conn.queue.pending().to_vec();
        }
        self.send(ctx, id);
    }

    fn read(&mut self, ctx: &mut Ctx, id: ConnId, namespace: usize, command: TargetCommand, range: ByteRange) {
        let mut data = Vec::with_capacity(range.bytes as usize);
        for lba in self.plan.namespaces[namespace].blocks_of(&range) {
            data.extend_from_slice(&self.stores[namespace].read(lba).bytes);
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.queue.complete_with_data(command.token, data.len() as u32, |part, out| {
                out.extend_from_slice(&data[part]);
                Ok(())
            });
        }
        self.send(ctx, id);
    }

    /// The status for a Write Zeroes above the limit of the target.
    fn refusal_of_size(&self, namespace: usize, task: &IoTask) -> Option<Status> {
        let (most, status) = self.plan.write_zeroes_limit?;
        let IoTask::WriteZeroes { range, .. } = task else { return None };
        let blocks = self.plan.namespaces[namespace].blocks_of(range);
        (blocks.end - blocks.start > most).then_some(status)
    }

    /// At random, executes only a piece of a command of several blocks, and leaves the rest for later. Returns whether it has.
    fn execute_piece(&mut self, ctx: &mut Ctx, number: u64) -> bool {
        let now = ctx.clock.now();
        if !self.plan.piecemeal || !self.pieces_rng.percent(60) {
            return false;
        }
        let Some(pending) = self.pending.get(&number).filter(|pending| pending.until.is_none_or(|until| now <= until))
        else {
            return false;
        };
        let (node, executed, is_orphan) = (pending.node, pending.executed, pending.until.is_some());
        let is_gone = self.absent.contains(&(node, pending.command.sqe.nsid.get()));
        let Some(view) = self.view_of(pending) else { return false };
        let Ok((IoScope::One(namespace), task)) = check_io(&pending.command, &self.namespaces, &view) else {
            return false;
        };
        let is_refused = is_gone || self.refusal_of_size(namespace, &task).is_some();
        let Some(BlockChange { blocks, durable }) = self.change_of(namespace, &task).filter(|_| !is_refused) else {
            return false;
        };
        let done = executed.map_or(0, |executed| executed.blocks);
        let left = blocks.end - blocks.start - done;
        if left < 2 {
            return false;
        }
        let piece = blocks.start + done..blocks.start + done + self.pieces_rng.range(1, left - 1);
        let Some(mut pending) = self.pending.remove(&number) else { return false };
        let payload = matches!(task, IoTask::Write { .. }).then_some(&pending.command.payload[..]);
        let executed = self.apply(
            ctx,
            Execution { node, namespace, executed, is_orphan },
            BlockChange { blocks, durable },
            piece,
            payload,
        );
        ctx.checker.counts.pieces += 1;
        pending.executed = Some(executed);
        let pause = if self.pieces_rng.percent(5) { PAUSE_MAX } else { self.plan.service };
        pending.due = now + self.pieces_rng.up_to(pause);
        ctx.clock.at(pending.due, Event::Execute(number));
        self.pending.insert(number, pending);
        true
    }

    /// The command's view of namespaces. It is fixed when its connection ends.
    fn view_of(&self, pending: &PendingCommand) -> Option<IoView> {
        if pending.until.is_some() {
            return Some(pending.view.clone());
        }
        let identity = self.conns.get(&pending.conn)?.queue.identity()?;
        let subsystem = &self.subsystems[self.process(pending.node)];
        subsystem.io_view(identity.cntlid).filter(|view| view.enabled)
    }

    /// The end of the range of blocks that a task reads or changes, in the namespace at this index.
    fn end_of(&self, namespace: usize, task: &IoTask) -> u64 {
        match task {
            IoTask::Read(range) => self.plan.namespaces[namespace].blocks_of(range).end,
            task => self.change_of(namespace, task).map_or(0, |change| change.blocks.end),
        }
    }

    /// The blocks that a task changes in the namespace at this index.
    fn change_of(&self, namespace: usize, task: &IoTask) -> Option<BlockChange> {
        let through = self.plan.write_cache == WriteCache::None;
        let change = |range: &ByteRange, fua| BlockChange {
            blocks: self.plan.namespaces[namespace].blocks_of(range),
            durable: fua || through,
        };
        match task {
            IoTask::Read(_) | IoTask::Flush => None,
            IoTask::Write { range, fua } | IoTask::WriteZeroes { range, fua, .. } => Some(change(range, *fua)),
            // The host sends one range at a time.
            IoTask::Deallocate(ranges) => ranges.first().map(|range| change(range, false)),
        }
    }

    /// Executes the rest of a command. Returns the blocks that the command has changed, and the origin of the change.
    fn change(
        &mut self,
        ctx: &mut Ctx,
        execution: Execution,
        task: &IoTask,
        payload: &[u8],
    ) -> Option<(Range<u64>, Origin)> {
        if *task == IoTask::Flush {
            self.stores[execution.namespace].flush(execution.node);
        }
        let change = self.change_of(execution.namespace, task)?;
        let payload = matches!(task, IoTask::Write { .. }).then_some(payload);
        let rest = change.blocks.start + execution.executed.map_or(0, |executed| executed.blocks)..change.blocks.end;
        let blocks = change.blocks.clone();
        Some((blocks, self.apply(ctx, execution, change, rest, payload).origin))
    }

    /// Changes a piece of the blocks of a command, to its payload or to zeroes.
    fn apply(
        &mut self,
        ctx: &mut Ctx,
        execution: Execution,
        change: BlockChange,
        piece: Range<u64>,
        payload: Option<&[u8]>,
    ) -> ExecutedPart {
        let Execution { node, namespace, executed, is_orphan } = execution;
        let (plan, at) = (self.plan.namespaces[namespace], ctx.clock.elapsed());
        let BlockChange { blocks, durable } = change;
        let (block_bytes, first) = (plan.block_bytes(), blocks.start);
        let origin = if let Some(ExecutedPart { origin, .. }) = executed {
            let origin = ctx.checker.origin_of_next_piece(origin, plan.disk, first, payload, block_bytes);
            ctx.checker.change_continues(at, node, plan.disk, piece.clone(), origin, is_orphan);
            origin
        } else {
            ctx.checker.change_begins(at, node, plan.disk, blocks.clone(), payload, is_orphan)
        };
        let zeroes = vec![0; block_bytes];
        for lba in piece.clone() {
            let at = (lba - first) as usize * block_bytes;
            let bytes = payload.map_or(&zeroes[..], |payload| &payload[at..at + block_bytes]);
            self.stores[namespace].write(node, lba, BlockVersion { origin, bytes: bytes.to_vec() }, durable);
        }
        ExecutedPart { blocks: piece.end - first, origin }
    }
}
