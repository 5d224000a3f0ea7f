//! The orderly end of a controller. This drives the shipping state machine over simulated sockets.

use std::time::Instant;

use mpath_host::{AssociationId, ControllerShutdown};

use super::control_socket::ControlSocket;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// A controller that ends, with the sockets of its association that are still open.
pub(super) struct EndingController {
    inner: ControllerShutdown,
    admin: ControlSocket,
    /// The sockets of the I/O queues that drain.
    queues: Vec<ConnId>,
    /// The association whose fence the end may lift.
    pub(super) fence: Option<AssociationId>,
}

impl EndingController {
    /// A controller with its admin socket and its draining I/O sockets.
    pub(super) fn new(
        inner: ControllerShutdown,
        admin: ControlSocket,
        queues: Vec<ConnId>,
        fence: Option<AssociationId>,
    ) -> Self {
        Self { inner, admin, queues, fence }
    }

    pub(super) fn owns(&self, id: ConnId) -> bool {
        self.admin.conn == id || self.queues.contains(&id)
    }

    pub(super) fn next_timeout(&self) -> Instant {
        self.inner.next_timeout()
    }

    /// Moves its bytes. Returns whether the end is confirmed, once that is known.
    pub(super) fn turn(&mut self, ctx: &mut Ctx) -> Option<bool> {
        let now = ctx.clock.now();
        let inner = &mut self.inner;
        self.queues.retain(|&queue| {
            // Answers on a draining connection are dropped: their requests wait for the fence and are repeated.
            while !ctx.net.receive(&mut ctx.clock, queue, Side::Host, 16 * 1024).is_empty() {}
            let Some(end) = ctx.net.end_of_stream(queue, Side::Host) else { return true };
            inner.queue_ended(now, end.is_ok());
            ctx.net.close(&mut ctx.clock, queue, Side::Host);
            false
        });
        let (mut is_idle, mut has_failed) = (false, false);
        while !is_idle {
            let mut out = Vec::new();
            inner.fill_tx(&mut out);
            let sent = self.admin.send(ctx, &out);
            let received = sent.and_then(|()| self.admin.receive(ctx, 16 * 1024));
            has_failed |= received.is_err();
            let bytes = received.unwrap_or_default();
            // Bytes that have arrived come before timeouts. An error is an outcome.
            let _ = if bytes.is_empty() {
                is_idle = inner.next_timeout() > now;
                if is_idle { Ok(()) } else { inner.handle_timeout(now) }
            } else {
                inner.receive(now, &bytes)
            };
            is_idle |= inner.poll_confirmed().is_some();
        }
        if has_failed || ctx.net.is_reset(self.admin.conn, Side::Host) {
            inner.admin_ended();
        }
        inner.poll_confirmed()
    }

    /// Resets its connections.
    pub(super) fn close(self, ctx: &mut Ctx) {
        for id in self.queues.into_iter().chain([self.admin.conn]) {
            ctx.net.close(&mut ctx.clock, id, Side::Host);
        }
    }
}
