//! The kernel's work on the sockets of an I/O thread: sends, receives and shutdowns.

use monotonic::Duration;
use reactor::SocketCall;

use super::IoThread;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// The typical time until the kernel ends the operations of a socket that is shut down.
const RELEASE: Duration = Duration::from_micros(100);

impl IoThread {
    /// Carries out the kernel's work since the last turn, and has the thread take its results.
    pub(super) fn take_events(&mut self, ctx: &mut Ctx) {
        let now = ctx.clock.now();
        let ids: Vec<ConnId> = self.sockets.keys().copied().collect();
        for &id in &ids {
            self.exchange(ctx, id);
        }
        if std::mem::take(&mut self.is_kicked) {
            self.inner.ring().poll();
        }
        self.inner.ring().end_cancelled();
        let (rng, ring) = (&mut self.rng, self.inner.ring());
        let open = self.sockets.iter().filter(|(_, socket)| socket.released_at.is_none()).map(|(id, _)| *id);
        let (broken, open): (Vec<_>, Vec<_>) = open.partition(|id| ctx.net.is_reset(*id, Side::Host));
        ring.set_broken(broken.into_iter().filter(|_| rng.percent(50)));
        let takes = open.into_iter().filter(|_| rng.percent(70));
        ring.set_rooms(takes.map(|id| (id, ctx.net.room(id, Side::Host))));
        self.inner.take_events(now).expect("the ring does what it is asked");
    }

    /// Moves bytes between the network and the ring.
    fn exchange(&mut self, ctx: &mut Ctx, id: ConnId) {
        let (now, ring) = (ctx.clock.now(), self.inner.ring());
        if ctx.net.peer_has_ended(id, Side::Host) {
            ring.ended(id);
        }
        if let Some(at) = self.sockets[&id].released_at {
            if at <= now {
                ring.end_send(id, -libc::EPIPE);
                ring.end_receive(id, 0);
            }
            return;
        }
        if ctx.net.has_ended(id, Side::Host) {
            ring.end_receive(id, 0);
            return self.send(ctx, id);
        }
        if ctx.net.is_reset(id, Side::Host) && (!ctx.net.has_received(id, Side::Host) || self.rng.percent(20)) {
            if ring.receives(id).is_some() {
                ctx.net.reset_reported(id, Side::Host);
            }
            ring.end_send(id, -libc::EPIPE);
            ring.end_receive(id, -libc::ECONNRESET);
            return;
        }
        if let Some(most) = ring.receives(id) {
            let most = if self.rng.percent(20) { most.min(self.rng.range(1, 64) as usize) } else { most };
            let arrived = ctx.net.received_bytes(id, Side::Host).min(most);
            let reachable = ring.reachable(id, arrived);
            // The kernel leaves a segment in the socket if the memory for a part of it is gone.
            let most = if reachable < arrived { self.rng.range(0, reachable as u64) as usize } else { arrived };
            let bytes = ctx.net.receive(&mut ctx.clock, id, Side::Host, most);
            if reachable < arrived && bytes.is_empty() {
                ring.end_receive(id, -libc::EFAULT);
            } else if !bytes.is_empty() {
                ring.received(id, &bytes);
                self.observe_received(ctx, id, &bytes);
            }
        }
        self.send(ctx, id);
    }

    /// The socket takes as much of a send as it has room for.
    fn send(&mut self, ctx: &mut Ctx, id: ConnId) {
        let ring = self.inner.ring();
        if ring.sends(id).is_none() || self.sockets[&id].released_at.is_some() {
            return;
        }
        // The range is one byte longer than the room, so that the network knows of further bytes.
        let (bytes, readable) = ring.unsent(id, 0..ctx.net.room(id, Side::Host) + 1);
        let has_faulted = readable < bytes.len();
        // The kernel drops a segment that it cannot read to the end.
        let most = if has_faulted { self.rng.range(0, readable as u64) as usize } else { readable };
        let taken = ctx.net.send(&mut ctx.clock, id, Side::Host, &bytes[..most]);
        if has_faulted {
            ring.sent(id, taken);
            ring.end_send(id, -libc::EFAULT);
            self.sockets.get_mut(&id).expect("it was just there").sent += taken;
        } else if taken > 0 {
            ring.sent(id, taken);
            if self.rng.percent(5) {
                // The kernel may end a send anywhere.
                ring.end_send(id, 0);
            }
            self.sockets.get_mut(&id).expect("it was just there").sent += taken;
        }
    }

    /// The checker reads the bytes of sends, and the kernel takes as many as it can.
    pub(super) fn begin_sends(&mut self, ctx: &mut Ctx) {
        self.inner.ring().set_rooms([]);
        self.inner.ring().set_broken([]);
        let has_more_to_do = self.inner.has_more_to_do();
        for (id, bytes) in self.inner.ring().take_sent() {
            let socket = self.sockets.get_mut(&id).expect("it was just there");
            // These are the rest of a send that the kernel ended early.
            let checked = bytes.len().min(socket.checked - socket.sent);
            socket.sent += checked;
            self.check_sent(ctx, id, &bytes[checked..]);
            let taken = ctx.net.send(&mut ctx.clock, id, Side::Host, &bytes);
            assert_eq!(taken, bytes.len(), "the socket had room");
        }
        let ids: Vec<ConnId> = self.sockets.keys().copied().collect();
        for id in ids {
            let (ring, socket) = (self.inner.ring(), self.sockets.get_mut(&id).expect("it was just there"));
            let Some(unsent) = ring.sends(id) else {
                if !has_more_to_do {
                    socket.note_inaccessible(self.disks.len());
                }
                continue;
            };
            let checked = socket.checked - socket.sent;
            if checked < unsent {
                socket.checked += unsent - checked;
                let (bytes, _) = ring.unsent(id, checked..unsent);
                self.check_sent(ctx, id, &bytes);
            }
            self.send(ctx, id);
        }
    }

    fn check_sent(&mut self, ctx: &mut Ctx, id: ConnId, bytes: &[u8]) {
        let Some(plain) = self.decrypt_sent(ctx, id, bytes) else { return };
        let socket = self.sockets.get_mut(&id).expect("it was just there");
        let commands = socket.wire.host_sends(ctx.clock.now(), &plain);
        let socket = &self.sockets[&id];
        if commands.is_none() {
            let what = format_args!("path {} is used though its controller has broken the protocol", socket.path);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
        for command in commands.into_iter().flatten() {
            self.check_command(ctx, socket, command);
        }
    }

    /// The plain text of bytes that the thread sends, which have to be encrypted in a run with TLS.
    fn decrypt_sent(&self, ctx: &mut Ctx, id: ConnId, bytes: &[u8]) -> Option<Vec<u8>> {
        let plain = ctx.net.plain_sent(id, bytes);
        if plain.is_none() {
            let what = format_args!("bytes on path {} are not encrypted by their session", self.sockets[&id].path);
            ctx.checker.violate(ctx.clock.elapsed(), None, what);
        }
        plain
    }

    /// Carries out the thread's calls on its sockets.
    pub(super) fn call_sockets(&mut self, ctx: &mut Ctx) {
        for (id, call) in self.inner.ring().take_calls() {
            match call {
                SocketCall::SendAtOnce(bytes) => {
                    self.decrypt_sent(ctx, id, &bytes);
                    ctx.net.send(&mut ctx.clock, id, Side::Host, &bytes);
                }
                SocketCall::Shutdown => {
                    let at = ctx.clock.now() + self.rng.tail(RELEASE);
                    let socket = self.sockets.get_mut(&id).expect("a socket is reset or passed on last");
                    socket.released_at = Some(at);
                }
                SocketCall::EndSending => ctx.net.shut_down_sending(&mut ctx.clock, id),
                SocketCall::Reset => {
                    ctx.net.close(&mut ctx.clock, id, Side::Host);
                    self.sockets.remove(&id);
                }
            }
        }
    }
}
