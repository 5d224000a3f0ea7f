//! Its sockets: what the kernel does with sends and receives, and what the judge reads there.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpath_core::{AnaStates, DiskId, Epoch, PathId};
use reactor::SocketCall;

use super::IoThread;
use crate::check::is_accessible;
use crate::host::wire::{Command, End, What, Wire};
use crate::net::{ConnId, Side};
use crate::target::Ctx;

/// How soon the kernel lets go of a socket that is shut down, typically.
const LET_GO: Duration = Duration::from_micros(100);

/// The socket of a queue pair.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) path: PathId,
    pub(super) epoch: Epoch,
    pub(super) wire: Wire,
    /// Bytes that were sent, and those that the judge has read.
    pub(super) sent: usize,
    pub(super) read: usize,
    /// Commands that it takes at a time.
    pub(super) queue_depth: usize,
    /// What the thread was told of the path.
    pub(super) ana: AnaStates,
    /// Disks whose namespaces are not accessible there, as the thread knew before the send that begins next.
    pub(super) barred: BTreeSet<usize>,
    /// The thread uses it no more.
    pub(super) is_over: bool,
    /// When the kernel lets go of it, once it was shut down.
    pub(super) lets_go_at: Option<Instant>,
}

impl IoThread {
    /// The thread uses the queue pair of an association no more.
    pub(super) fn over(&mut self, ctx: &mut Ctx<'_>, path: PathId, epoch: Epoch) {
        let of = |socket: &&mut Socket| (socket.path, socket.epoch) == (path, epoch) && !socket.is_over;
        if let Some(socket) = self.sockets.values_mut().find(of) {
            socket.is_over = true;
            ctx.check.queue_lost();
            (0..self.disks.len()).for_each(|disk| ctx.check.owed.over((disk, path, epoch)));
        }
    }

    /// The kernel's work since the last turn.
    pub(super) fn take_events(&mut self, ctx: &mut Ctx<'_>) {
        let now = ctx.clock.now();
        let ids: Vec<ConnId> = self.sockets.keys().copied().collect();
        for &id in &ids {
            self.exchange(ctx, id);
        }
        if std::mem::take(&mut self.is_kicked) {
            self.thread.ring().poll();
        }
        self.thread.ring().end_cancelled();
        self.thread.take_events(now).expect("the ring does what it is asked");
    }

    fn exchange(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        let (now, ring) = (ctx.clock.now(), self.thread.ring());
        if let Some(at) = self.sockets[&id].lets_go_at {
            if at <= now {
                ring.end_send(id, -libc::EPIPE);
                ring.end_receive(id, 0);
            }
            return;
        }
        if ctx.net.is_finished(id, Side::Host) {
            ring.end_receive(id, 0);
            return self.send(ctx, id);
        }
        if ctx.net.is_reset(id, Side::Host) && (!ctx.net.has_received(id, Side::Host) || self.rng.percent(20)) {
            ring.end_send(id, -libc::EPIPE);
            ring.end_receive(id, -libc::ECONNRESET);
            return;
        }
        if let Some(most) = ring.receives(id) {
            let most = if self.rng.percent(20) { most.min(self.rng.range(1, 64) as usize) } else { most };
            let arrived = ctx.net.received_bytes(id, Side::Host).min(most);
            let reachable = ring.reachable(id, arrived);
            // A segment of which a part has no place is left in the socket.
            let most = if reachable < arrived { self.rng.range(0, reachable as u64) as usize } else { arrived };
            let bytes = ctx.net.receive(ctx.clock, id, Side::Host, most);
            if reachable < arrived && bytes.is_empty() {
                ring.end_receive(id, -libc::EFAULT);
            } else if !bytes.is_empty() {
                ring.received(id, &bytes);
                self.hear(ctx, id, &bytes);
            }
        }
        self.send(ctx, id);
    }

    /// The judge hears what the thread is about to hear.
    fn hear(&mut self, ctx: &mut Ctx<'_>, id: ConnId, bytes: &[u8]) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let was_broken = socket.wire.is_broken();
        let ends = socket.wire.hears(bytes);
        ctx.check.counts.broken += u64::from(socket.wire.is_broken() && !was_broken);
        for (Command { what, nsid, blocks }, end) in ends {
            let Some(disk) = self.disks.iter().position(|disk| disk.namespace.nsid == nsid) else { continue };
            let place = (disk, socket.path, socket.epoch);
            match what {
                What::Read => {}
                What::Change => ctx.check.owed.touched(place),
                What::Flush => {
                    let counts = end == End::Success && !ctx.check.are_answers_altered();
                    ctx.check.owed.flush_answered(place, counts);
                }
            }
            if end != End::Success {
                ctx.check.command_failed(disk, what, blocks.as_ref(), end == End::Final);
            }
        }
    }

    /// The socket takes as much of a send as it has room for.
    fn send(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        let ring = self.thread.ring();
        if ring.sends(id).is_none() {
            return;
        }
        // The range is one byte longer than the room, so that the network knows of further bytes.
        let (bytes, readable) = ring.unsent(id, 0..ctx.net.room(id, Side::Host) + 1);
        let has_faulted = readable < bytes.len();
        // The kernel drops what it has copied of a segment that it cannot read to the end.
        let most = if has_faulted { self.rng.range(0, readable as u64) as usize } else { readable };
        let taken = ctx.net.send(ctx.clock, id, Side::Host, &bytes[..most]);
        if has_faulted {
            ring.sent(id, taken);
            ring.end_send(id, -libc::EFAULT);
            self.sockets.get_mut(&id).expect("it was just there").sent += taken;
        } else if taken > 0 {
            ring.sent(id, taken);
            if self.rng.percent(5) {
                // The kernel may stop where it likes.
                ring.end_send(id, 0);
            }
            self.sockets.get_mut(&id).expect("it was just there").sent += taken;
        }
    }

    /// The judge reads what the thread sends, and the kernel takes what it can.
    pub(super) fn begin_sends(&mut self, ctx: &mut Ctx<'_>) {
        let ids: Vec<ConnId> = self.sockets.keys().copied().collect();
        for id in ids {
            let (ring, socket) = (self.thread.ring(), self.sockets.get_mut(&id).expect("it was just there"));
            let Some(unsent) = ring.sends(id) else {
                socket.bar(self.disks.len());
                continue;
            };
            let read = socket.read - socket.sent;
            if read < unsent {
                let commands = socket.wire.sends(&ring.unsent(id, read..unsent).0);
                socket.read += unsent - read;
                let socket = &self.sockets[&id];
                if commands.is_none() {
                    let what =
                        format_args!("path {} is used though its controller has broken the protocol", socket.path);
                    ctx.check.violate(ctx.clock.elapsed(), None, what);
                }
                for command in commands.into_iter().flatten() {
                    self.judge(ctx, socket, command);
                }
            }
            if self.sockets[&id].lets_go_at.is_none() {
                self.send(ctx, id);
            }
        }
    }

    fn judge(&self, ctx: &mut Ctx<'_>, socket: &Socket, Command { what, nsid, .. }: Command) {
        let at = ctx.clock.elapsed();
        let Some(disk) = self.disks.iter().position(|disk| disk.namespace.nsid == nsid) else {
            return ctx.check.violate(at, None, format_args!("a command is for namespace {nsid}"));
        };
        let (path, place) = (socket.path, (disk, socket.path, socket.epoch));
        match what {
            What::Read => {}
            What::Change => ctx.check.owed.touched(place),
            What::Flush => {
                if let Err(wrong) = ctx.check.owed.flush_sent(place) {
                    ctx.check.violate(at, None, wrong);
                }
            }
        }
        if socket.barred.contains(&disk) {
            let ana = socket.ana.of(DiskId(disk as u16));
            ctx.check.violate(
                at,
                None,
                format_args!("a {what:?} of disk {disk} is sent to path {path}, which is {ana}"),
            );
        }
    }

    /// What the thread has asked of its sockets.
    pub(super) fn call_sockets(&mut self, ctx: &mut Ctx<'_>) {
        for (id, call) in self.thread.ring().take_calls() {
            match call {
                SocketCall::SendAtOnce(bytes) => {
                    ctx.net.send(ctx.clock, id, Side::Host, &bytes);
                }
                SocketCall::Shutdown(_) => {
                    let at = ctx.clock.now() + self.rng.tail(LET_GO);
                    self.sockets.get_mut(&id).expect("a socket is reset last").lets_go_at.get_or_insert(at);
                }
                SocketCall::Reset => {
                    ctx.net.close(ctx.clock, id, Side::Host);
                    self.sockets.remove(&id);
                }
            }
        }
    }
}

impl Socket {
    /// No send is under way: what is sent next begins with what the thread knows now, unless commands wait for others to end.
    pub(super) fn bar(&mut self, disks: usize) {
        if self.wire.open() >= self.queue_depth {
            return;
        }
        let barred = (0..disks).filter(|disk| !is_accessible(self.ana.of(DiskId(*disk as u16))));
        self.barred = barred.collect();
    }
}
