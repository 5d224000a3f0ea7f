//! The ANA states of namespaces, and persistent losses, which take the cache of a node.
//!
//! A host cannot see a loss that comes and goes between two readings of its ANA log page. So a controller keeps a namespace in that
//! state until each host that was connected when the loss began has read the log, or its association has ended.

use std::collections::BTreeSet;

use nvme_tcp::wire::{AdminCommand, AnaState, LogPage};

use super::state::{Connection, Role, UnseenLoss};
use super::{Target, WriteCache};
use crate::connection::ConnId;
use crate::context::Ctx;

impl Target {
    /// A node sets the ANA state of one disk, or of all.
    pub(crate) fn set_ana(&mut self, ctx: &mut Ctx, node: usize, disk: Option<usize>, state: AnaState) {
        let all = 1..=self.namespaces.len() as u32;
        let nsids = disk.map_or(all, |disk| self.nsid(disk)..=self.nsid(disk));
        for nsid in nsids {
            if let Some(unseen) = self.unseen.get_mut(&(node, nsid)) {
                unseen.next = (state != AnaState::PersistentLoss).then_some(state);
            } else {
                self.move_to(ctx, node, nsid, state);
            }
        }
        self.send_events(ctx);
    }

    fn move_to(&mut self, ctx: &mut Ctx, node: usize, nsid: u32, state: AnaState) {
        let (port, index) = (node as u16 + 1, nsid as usize - 1);
        let before = self.subsystem(node).ana(port)[index];
        self.subsystem(node).set_ana_group(port, nsid, state);
        if before != state && state == AnaState::PersistentLoss {
            ctx.checker.namespace_gone(node, self.plan.namespaces[index].disk);
        }
        if state != AnaState::PersistentLoss || before == state {
            return;
        }
        // A shared cache survives at the other nodes.
        if self.plan.write_cache != WriteCache::Shared {
            let losses = self.stores[index].crash(node);
            ctx.checker.counts.caches_lost += u64::from(!losses.is_empty());
            ctx.checker.cache_lost(ctx.clock.elapsed(), node, self.plan.namespaces[index].disk, &losses);
        }
        // A controller that was shut down has no keep-alive timer, so its host may never be heard of again.
        let subsystem = &self.subsystems[self.process(node)];
        let is_alive = |conn: &Connection| matches!(conn.role, Role::Admin(cntlid) if conn.node == node && subsystem.next_timeout(cntlid).is_some());
        let by: BTreeSet<_> = self.conns.iter().filter(|(_, conn)| is_alive(conn)).map(|(&id, _)| id).collect();
        if !by.is_empty() {
            self.unseen.insert((node, nsid), UnseenLoss { by, next: None });
        }
    }

    /// Whether an admin command reads the ANA log.
    pub(super) fn reads_ana(command: &AdminCommand) -> bool {
        matches!(command, AdminCommand::GetLogPage { lid: LogPage::ANA, .. })
    }

    /// Notes that a host has read the ANA log on its admin connection to a node, or that its association has ended. Persistent
    /// losses that every host has seen may then end.
    pub(super) fn has_seen_ana(&mut self, ctx: &mut Ctx, node: usize, id: ConnId) {
        let mut over = Vec::new();
        for (&(of, nsid), unseen) in self.unseen.iter_mut().filter(|((of, _), _)| *of == node) {
            if unseen.by.remove(&id) && unseen.by.is_empty() {
                over.push(((of, nsid), unseen.next));
            }
        }
        for (place, next) in over {
            self.unseen.remove(&place);
            if let Some(next) = next {
                self.move_to(ctx, place.0, place.1, next);
            }
        }
    }
}
