//! The ends of I/O connections of a target that promises to execute everything before it closes one.

use super::Target;
use super::state::{Connection, DrainCause, Role};
use crate::connection::ConnId;
use crate::context::Ctx;

impl Target {
    /// Ends a connection once everything it received is executed. Its host has ended it, or its node closes it. Targets without
    /// this promise close a connection at once.
    pub(super) fn drain(&mut self, ctx: &mut Ctx, id: ConnId, cause: DrainCause) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.drain.is_none() {
            conn.drain = Some(cause);
            let is_by_host = cause == DrainCause::Host;
            ctx.checker.counts.drained_with_commands += u64::from(is_by_host && self.has_commands(id));
        }
        self.close_if_executed(ctx, id);
    }

    /// Closes a connection that is to end, if everything it received is executed.
    pub(super) fn close_if_executed(&mut self, ctx: &mut Ctx, id: ConnId) {
        if self.conns.get(&id).is_some_and(|conn| conn.drain.is_some()) && !self.has_commands(id) {
            let now = ctx.clock.now();
            self.close(ctx, id, now);
        }
    }

    /// Whether commands of a connection may still be executed.
    pub(super) fn has_commands(&self, id: ConnId) -> bool {
        self.pending.values().any(|pending| pending.conn == id)
    }

    /// Whether a connection that closes ends in order, and not with a reset. If its controller is alive and has promised to
    /// drain, an orderly end means that everything is executed. If the controller has ended, an orderly end means nothing.
    pub(super) fn ends_in_order(&mut self, conn: &Connection, has_commands: bool) -> bool {
        let closes_in_order = self.nodes[conn.node].closes_in_order;
        if !self.plan.drains() || !matches!(conn.role, Role::Io(_)) {
            closes_in_order
        } else if self.has_admin_connection(conn) {
            !has_commands && (closes_in_order || conn.drain.is_some())
        } else {
            closes_in_order || self.ends_rng.percent(50)
        }
    }

    fn has_admin_connection(&self, conn: &Connection) -> bool {
        let is_its = |other: &Connection| {
            matches!(other.role, Role::Admin(_))
                && other.instance == conn.instance
                && self.process(other.node) == self.process(conn.node)
        };
        conn.instance.is_some() && self.conns.values().any(is_its)
    }
}
