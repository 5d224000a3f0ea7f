//! The ANA states of namespaces, and persistent losses, which take what was in the cache of a node.
//!
//! A host cannot see a loss that comes and goes between two readings of its ANA log page. So a controller keeps a namespace in that
//! state until each host that was connected when the loss began has read the log, or its association has ended.

use std::collections::BTreeSet;

use nvme_tcp::wire::{AdminCommand, AnaState, LogPage};

use super::{Connection, Ctx, Role, Target, WriteCache};
use crate::net::ConnId;

/// A persistent loss that not every host has seen.
#[derive(Debug)]
pub(super) struct Unseen {
    /// The admin connections of those that have not.
    by: BTreeSet<ConnId>,
    /// The state that follows.
    next: Option<AnaState>,
}

impl Target {
    /// The state of one disk, or of all.
    pub(crate) fn set_ana(&mut self, ctx: &mut Ctx<'_>, node: usize, disk: Option<usize>, state: AnaState) {
        let all = 1..=self.namespaces.len() as u32;
        let nsids = disk.map_or(all, |disk| self.nsid(disk)..=self.nsid(disk));
        for nsid in nsids {
            if let Some(unseen) = self.unseen.get_mut(&(node, nsid)) {
                unseen.next = (state != AnaState::PersistentLoss).then_some(state);
            } else {
                self.move_to(ctx, node, nsid, state);
            }
        }
        self.tell_events(ctx);
    }

    fn move_to(&mut self, ctx: &mut Ctx<'_>, node: usize, nsid: u32, state: AnaState) {
        let (port, index) = (node as u16 + 1, nsid as usize - 1);
        let before = self.subsystem(node).ana(port)[index];
        self.subsystem(node).set_ana_group(port, nsid, state);
        if state != AnaState::PersistentLoss || before == state {
            return;
        }
        // Other nodes still have a cache that all of them share.
        if self.plan.write_cache != WriteCache::Shared {
            let losses = self.stores[index].crash(node);
            ctx.check.counts.caches_taken += u64::from(!losses.is_empty());
            ctx.check.cache_lost(ctx.clock.elapsed(), node, self.plan.namespaces[index].disk, &losses);
        }
        // The end of a connection whose controller was shut down may never be heard of, and its keep-alive is over.
        let subsystem = &self.subsystems[self.process(node)];
        let is_alive = |conn: &Connection| matches!(conn.role, Role::Admin(cntlid) if conn.node == node && subsystem.next_timeout(cntlid).is_some());
        let by: BTreeSet<_> = self.conns.iter().filter(|(_, conn)| is_alive(conn)).map(|(&id, _)| id).collect();
        if !by.is_empty() {
            self.unseen.insert((node, nsid), Unseen { by, next: None });
        }
    }

    /// An admin command is answered: whether it has read the ANA log.
    pub(super) fn reads_ana(command: &AdminCommand) -> bool {
        matches!(command, AdminCommand::GetLogPage { lid: LogPage::ANA, .. })
    }

    /// The host of an admin connection of a node has read the ANA log, or its association has ended.
    pub(super) fn has_seen_ana(&mut self, ctx: &mut Ctx<'_>, node: usize, id: ConnId) {
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
