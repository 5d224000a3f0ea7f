//! The orderly shutdown of a controller at the end of an association.

use std::collections::VecDeque;
use std::time::Instant;

use nvme_tcp::host::{ControllerEvent, HostController};

use super::socket::send_all;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// A controller that is shut down, on the admin connection of its association.
pub(super) struct ControllerShutdown {
    pub(super) admin: HostController,
    pub(super) conn: ConnId,
    pub(super) out: VecDeque<u8>,
    pub(super) until: Instant,
}

impl ControllerShutdown {
    /// Moves its bytes: whether the controller has answered, or has taken too long.
    pub(super) fn has_ended(&mut self, ctx: &mut Ctx) -> bool {
        let now = ctx.clock.now();
        let mut out = Vec::new();
        self.admin.fill_tx(&mut out);
        self.out.extend(out);
        send_all(ctx, self.conn, &mut self.out);
        let bytes = ctx.net.receive(&mut ctx.clock, self.conn, Side::Host, 16 * 1024);
        if bytes.is_empty() && ctx.net.is_reset(self.conn, Side::Host) || self.until <= now {
            return true;
        }
        if self.admin.receive(now, &bytes).is_err() || self.admin.handle_timeout(now).is_err() {
            return true;
        }
        let is_shut_down = |event| matches!(event, ControllerEvent::ShutdownComplete);
        std::iter::from_fn(|| self.admin.poll_event()).any(is_shut_down)
    }
}
