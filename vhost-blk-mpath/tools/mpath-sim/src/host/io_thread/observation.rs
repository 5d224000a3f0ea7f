//! The checker's view of an I/O thread: messages to it, and the bytes on its sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;

use monotonic::{Duration, Instant};
use mpath_core::{AnaState, DiskId, Epoch, GroupStats, PathId, WaitCause};
use mpath_lifecycle::ThreadMessage;
use reactor::ThreadExplanation;

use super::socket::{Refusal, Socket};
use super::{IoThread, Message};
use crate::checker::is_accessible;
use crate::checker::wire::{Command, CommandEnd, CommandKind, Wire};
use crate::connection::ConnId;
use crate::context::Ctx;
use crate::tls::Received;

/// How much older than the I/O timeout a command may become before its association ends.
const AGE_SLACK: Duration = Duration::from_secs(1);

impl IoThread {
    /// Counts settings that a message has changed.
    pub(super) fn count_changes(&self, ctx: &mut Ctx, before: &GroupStats) {
        let after = self.stats(ctx.clock.now());
        let disks = before.scheduler.disks.iter().zip(&after.scheduler.disks);
        let weights = disks.filter(|(before, after)| before.weight != after.weight).count();
        ctx.checker.counts.weights_changed += weights as u64;
        ctx.checker.counts.policies_changed += u64::from(before.policy != after.policy);
    }

    /// The requests that wait for the end of an injection.
    pub(super) fn held_by_injection(&mut self, now: Instant) -> u64 {
        let (reply, explained) = mpsc::channel();
        for disk in (0..self.disks.len() as u16).map(DiskId) {
            let reply = reply.clone();
            let reply = Box::new(move |explanation| reply.send(explanation).expect("it is waited for"));
            self.inner.handle(now, Message::Explain { disk, reply }).expect("the ring does what it is asked");
        }
        let waiting = explained.try_iter().flat_map(|explanation: ThreadExplanation| explanation.group.waiting);
        waiting.filter(|waiting| waiting.cause == WaitCause::Injection).map(|waiting| waiting.requests).sum()
    }

    /// The thread does not use the queue pair of an association any more.
    pub(super) fn association_ended(&mut self, ctx: &mut Ctx, path: PathId, epoch: Epoch) {
        let of = |socket: &&mut Socket| (socket.path, socket.epoch) == (path, epoch) && !socket.is_ended;
        if let Some(socket) = self.sockets.values_mut().find(of) {
            socket.is_ended = true;
            ctx.checker.queue_lost();
            (0..self.disks.len()).for_each(|disk| ctx.checker.flushes.association_ended((disk, path, epoch)));
        }
    }

    /// The checker reads bytes that the thread is about to receive.
    pub(super) fn observe_received(&mut self, ctx: &mut Ctx, id: ConnId, bytes: &[u8]) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let was_broken = socket.wire.is_broken();
        let (plain, received) = ctx.net.plain_received(id, bytes);
        let ends = socket.wire.host_receives(&plain);
        ctx.checker.counts.digest_errors += std::mem::take(&mut socket.wire.digest_errors);
        ctx.checker.counts.protocol_errors += u64::from(socket.wire.is_broken() && !was_broken);
        if received == Received::Changed && !socket.wire.is_broken() {
            ctx.checker.counts.records_changed += 1;
            socket.wire.record_changed();
        }
        for (Command { kind, nsid, blocks }, end, sent) in ends {
            let Some(disk) = self.disks.iter().position(|disk| disk.namespace.nsid == nsid) else { continue };
            let association = (disk, socket.path, socket.epoch);
            match kind {
                CommandKind::Read => {}
                CommandKind::Change => ctx.checker.flushes.cache_written(association),
                CommandKind::Flush => {
                    let is_ana_reading = self.unflushed[disk].is_ana_reading(socket.path, socket.epoch);
                    let counts = end == CommandEnd::Success && !is_ana_reading && !ctx.checker.are_answers_altered();
                    ctx.checker.flushes.flush_answered(association, counts);
                    // An error that may pass counts too: the host may have no retries left.
                    if matches!(end, CommandEnd::Final | CommandEnd::Passing) {
                        ctx.checker.closed_paths.flush_failed(socket.path, socket.epoch);
                    }
                }
            }
            if end == CommandEnd::Success {
                // The path serves the disk again. A command that was on its way before proves nothing.
                socket.refusing.retain(|of, refusal| *of != disk || sent < refusal.since);
                socket.refusing.entry(disk).and_modify(|refusal| refusal.has_served = true);
            } else {
                let counts = socket.refusing.get(&disk).is_none_or(|refusal| refusal.has_served);
                ctx.checker.command_failed(disk, kind, blocks.as_ref(), end, counts);
                if end == CommandEnd::OfPath {
                    socket.refusing.insert(disk, Refusal { since: ctx.clock.now(), has_served: false });
                }
            }
        }
    }

    /// The thread sends a command.
    pub(super) fn check_command(&self, ctx: &mut Ctx, socket: &Socket, command: Command) {
        let Command { kind, nsid, blocks } = command;
        let at = ctx.clock.elapsed();
        let Some(disk) = self.disks.iter().position(|disk| disk.namespace.nsid == nsid) else {
            return ctx.checker.violate(at, None, format_args!("a command is for namespace {nsid}"));
        };
        let (path, association) = (socket.path, (disk, socket.path, socket.epoch));
        // A read may be a probe, and the daemon flushes at its end.
        if kind == CommandKind::Change && ctx.checker.first_attempts.is_waiting(disk) {
            ctx.checker.violate(
                at,
                None,
                format_args!("a {kind:?} of disk {disk} is sent before every path was tried"),
            );
        }
        match kind {
            CommandKind::Read => {
                if let Some(blocks) = blocks {
                    ctx.checker.read_sent(disk, &blocks);
                }
            }
            CommandKind::Change => ctx.checker.flushes.cache_written(association),
            CommandKind::Flush => {
                if let Err(wrong) = ctx.checker.flushes.flush_sent(association) {
                    ctx.checker.violate(at, None, wrong);
                }
            }
        }
        if socket.inaccessible.contains(&disk) {
            let ana = socket.ana.of(DiskId(disk as u16));
            ctx.checker.violate(
                at,
                None,
                format_args!("a {kind:?} of disk {disk} is sent to path {path}, which is {ana}"),
            );
        }
    }

    /// A live association has no command that is much older than the I/O timeout.
    pub(super) fn check_ages(&self, ctx: &mut Ctx) {
        let oldest = |socket: &Socket| (!socket.is_ended).then(|| socket.wire.oldest()).flatten();
        for socket in self.sockets.values() {
            let age = oldest(socket).map_or(Duration::ZERO, |oldest| ctx.clock.now() - oldest);
            if age > self.io_timeout + AGE_SLACK {
                let what = format_args!("a command on path {} is unanswered after {age:?}", socket.path);
                ctx.checker.violate(ctx.clock.elapsed(), None, what);
            }
        }
    }

    /// Tells the checker which disks the thread has a path to. A path leads to a disk unless the namespace is lost there.
    pub(super) fn observe_paths(&self, ctx: &mut Ctx) {
        for (disk, of) in self.disks.iter().enumerate() {
            let holds = |socket: &Socket| !socket.is_ended && socket.wire.has_commands_of(of.namespace.nsid);
            let is_busy = self.sockets.values().any(holds);
            let leads = |socket: &Socket| {
                let is_lost = socket.ana.of(DiskId(disk as u16)) == AnaState::PersistentLoss;
                !is_lost && !socket.refusing.contains_key(&disk)
            };
            let has_path = self.sockets.values().any(|socket| !socket.is_ended && leads(socket));
            ctx.checker.has_path(ctx.clock.elapsed(), self.index, disk, has_path, is_busy);
        }
    }

    /// The checker sees a message to the thread.
    pub(super) fn observe_message(&mut self, ctx: &mut Ctx, message: &Message) {
        match message {
            Message::PathUp { path, association, link } => {
                let (path, epoch, ana) = (*path, association.epoch, association.ana);
                let mut socket = Socket {
                    path,
                    epoch,
                    wire: Wire::default(),
                    sent: 0,
                    checked: 0,
                    queue_depth: association.queue_depth as usize,
                    ana,
                    refusing: BTreeMap::new(),
                    inaccessible: BTreeSet::new(),
                    is_ended: false,
                    released_at: None,
                };
                socket.note_inaccessible(self.disks.len());
                self.sockets.insert(link.socket, socket);
                for disk in 0..self.disks.len() {
                    if ana.of(DiskId(disk as u16)) != AnaState::PersistentLoss {
                        ctx.checker.told_of_path(ctx.clock.elapsed(), self.index, disk);
                    }
                }
            }
            Message::Path(ThreadMessage::PathDown { path, epoch, .. }) => self.association_ended(ctx, *path, *epoch),
            Message::Path(ThreadMessage::Ana { path, epoch, disk, state }) => {
                let association = (usize::from(disk.0), *path, *epoch);
                let of = |socket: &&mut Socket| (socket.path, socket.epoch) == (*path, *epoch);
                if let Some(socket) = self.sockets.values_mut().find(of) {
                    let before = socket.ana.of(*disk);
                    socket.ana.set(*disk, *state);
                    socket.refusing.remove(&association.0);
                    if is_accessible(*state) {
                        socket.inaccessible.remove(&association.0);
                    }
                    if *state != AnaState::PersistentLoss {
                        ctx.checker.told_of_path(ctx.clock.elapsed(), self.index, association.0);
                    }
                    if *state == AnaState::PersistentLoss {
                        ctx.checker.flushes.association_ended(association);
                    } else if before == AnaState::PersistentLoss {
                        ctx.checker.flushes.namespace_changed(association);
                    }
                }
            }
            Message::SetInjection { path, .. } if self.injected.insert(*path) => ctx.checker.injected(true),
            Message::ClearInjection(path) | Message::Path(ThreadMessage::RemovePath(path))
                if self.injected.remove(path) =>
            {
                ctx.checker.injected(false);
            }
            _ => {}
        }
    }
}
