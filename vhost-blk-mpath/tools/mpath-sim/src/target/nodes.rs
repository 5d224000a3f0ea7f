//! Nodes that close their connections, stand still, or lose power.

use nvme_tcp_target::{AnswerFault, FaultyCommands};

use super::state::{Connection, DrainCause, PendingCommand, Role};
use super::{Target, WriteCache};
use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

impl Target {
    /// A node answers a number of its next commands wrongly.
    pub(crate) fn answer_wrongly(&self, node: usize, fault: AnswerFault, count: u32) {
        self.answer_faults[node].set(fault, FaultyCommands { count, opcode: None, nsid: None });
    }

    /// Has a node close connections in order: its admin connections, with which the I/O connections end too, or only I/O
    /// connections. A paused node does nothing: otherwise it would notice the end of an association later than its keep-alive
    /// timer does.
    pub(crate) fn close_in_order(&mut self, ctx: &mut Ctx, node: usize, admin: bool) {
        if self.nodes[node].paused {
            return;
        }
        let of_node = |conn: &Connection| conn.node == node && matches!(conn.role, Role::Admin(_)) == admin;
        let ids: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(&id, _)| id).collect();
        let now = ctx.clock.now();
        self.nodes[node].closes_in_order = true;
        for id in ids {
            if self.plan.drains() && !admin {
                self.drain(ctx, id, DrainCause::Target);
            } else {
                self.close(ctx, id, now);
            }
        }
    }

    /// The node's processor runs again.
    pub(crate) fn resume(&mut self, ctx: &mut Ctx, node: usize) {
        self.nodes[node].paused = false;
        let of_node = |conn: &Connection| conn.node == node;
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(&id, _)| id).collect();
        // Keep-alive timers have run meanwhile, so they come before the bytes that have arrived.
        for &id in &conns {
            self.on_keep_alive(ctx, id);
        }
        for id in conns {
            if ctx.net.was_reset(id, Side::Target) {
                self.on_reset(ctx, id);
            } else {
                self.on_ready(ctx, id);
            }
        }
        for (&number, pending) in self.pending.iter_mut().filter(|(_, pending)| pending.node == node) {
            pending.due = pending.due.max(ctx.clock.now());
            ctx.clock.at(pending.due, Event::Execute(number));
        }
        self.send_events(ctx);
    }

    /// The node loses power: its connections, its commands, its cache.
    pub(crate) fn crash(&mut self, ctx: &mut Ctx, node: usize) {
        let cut = |pending: &&PendingCommand| pending.node == node && pending.executed.is_some();
        ctx.checker.counts.commands_cut += self.pending.values().filter(cut).count() as u64;
        self.pending.retain(|_, pending| pending.node != node);
        self.nodes[node].is_down = true;
        let loses_cache = self.plan.write_cache != WriteCache::Shared || self.nodes.iter().all(|node| node.is_down);
        for (store, plan) in self.stores.iter_mut().zip(&self.plan.namespaces) {
            if self.rng.percent(25) {
                // The node had just written back its cache.
                store.flush(node);
            }
            let losses = if loses_cache { store.crash(node) } else { Vec::new() };
            let is_shared = self.plan.write_cache == WriteCache::Shared;
            ctx.checker.counts.shared_caches_lost += u64::from(is_shared && !losses.is_empty());
            ctx.checker.cache_lost(ctx.clock.elapsed(), node, plan.disk, &losses);
        }
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| conn.node == node).map(|(&id, _)| id).collect();
        let now = ctx.clock.now();
        for id in conns {
            self.close(ctx, id, now);
        }
    }
}
