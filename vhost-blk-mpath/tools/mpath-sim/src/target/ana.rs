//! The ANA states of namespaces, and persistent losses, which take the cache of a node.
//!
//! A host cannot see a loss that comes and goes between two readings of its ANA log page. So a controller keeps a namespace in that
//! state until each host that was connected when the loss began has read the log, or its association has ended. A host that reads the
//! log without lists of namespaces asks for the group of each afterwards, so the state lasts until then.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use nvme_tcp::wire::{AdminCommand, AnaGroup, AnaLog, AnaState, LogPage, Sgl};
use nvme_tcp_target::TargetCommand;

use super::state::{Connection, Role, UnseenLoss};
use super::{Target, WriteCache};
use crate::connection::ConnId;
use crate::context::Ctx;

/// The first ANA group without namespaces.
const OTHERS: u32 = 100_000;
/// From a group of a namespace to the next one.
const MOVE_BY: u32 = 100;

/// A part of the ANA log that a host reads.
pub(super) struct AnaPart {
    pub(super) bytes: Vec<u8>,
    /// The host has read the whole log as it is.
    pub(super) is_seen: bool,
    /// The log lists the namespaces of its groups.
    pub(super) has_lists: bool,
}

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
        if self.plan.ana.moves && before != state {
            let id = self.group_of(node, nsid);
            let left = AnaGroup { id, change_count: 0, state: before, nsids: Vec::new() };
            self.moved.insert((node, nsid), (id + MOVE_BY, left));
            ctx.checker.counts.ana_moves += 1;
        }
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
        let by: BTreeMap<_, _> =
            self.conns.iter().filter(|(_, conn)| is_alive(conn)).map(|(&id, _)| (id, false)).collect();
        if !by.is_empty() {
            self.unseen.insert((node, nsid), UnseenLoss { by, next: None });
        }
    }

    /// The ANA group of a namespace at a node.
    pub(super) fn group_of(&self, node: usize, nsid: u32) -> u32 {
        self.moved.get(&(node, nsid)).map_or(nsid, |(group, _)| *group)
    }

    /// The ANA log of a controller.
    fn ana_log(&mut self, node: usize, cntlid: u16, groups_only: bool) -> AnaLog {
        let AnaLog { change_count, groups: own } = self.subsystem(node).ana_log(cntlid, groups_only);
        let other =
            |number| AnaGroup { id: OTHERS + number, change_count: 0, state: AnaState::Optimized, nsids: vec![] };
        let mut groups: Vec<_> = (0..self.plan.ana.others).map(other).collect();
        let left = self.moved.iter().filter(|((of, _), _)| *of == node);
        groups.extend(left.map(|(_, (_, left))| left.clone()));
        groups.extend(own.into_iter().map(|group| AnaGroup { id: self.group_of(node, group.id), ..group }));
        AnaLog { change_count, groups }
    }

    /// A part of the ANA log, if an admin command reads it. `command` is changed so that the subsystem answers it whatever its
    /// offset.
    pub(super) fn read_ana(
        &mut self,
        ctx: &mut Ctx,
        (node, id, cntlid): (usize, ConnId, u16),
        parsed: AdminCommand,
        command: &mut TargetCommand,
    ) -> Option<AnaPart> {
        let AdminCommand::GetLogPage { lid: LogPage::ANA, nsid, lsp, rae, bytes, offset } = parsed else { return None };
        let whole = AdminCommand::GetLogPage { lid: LogPage::ANA, nsid, lsp, rae, bytes, offset: 0 };
        command.sqe = command.sqe.with_cdw(whole.to_sqe(0, Sgl::NONE).cdw());
        let log = self.ana_log(node, cntlid, lsp & 1 != 0);
        ctx.checker.counts.ana_parts += u64::from(offset > 0);
        if offset == 0 && !rae {
            self.ana_begun.insert(id, log.change_count);
        }
        let emitted = log.emit();
        // A host that finds another change count in the header may begin again, but it has seen the end of this log.
        let is_last = offset + u64::from(command.expects_bytes) >= emitted.len() as u64;
        let is_seen = is_last && self.ana_begun.get(&id) == Some(&log.change_count);
        let mut bytes = emitted[emitted.len().min(offset as usize)..].to_vec();
        bytes.resize(command.expects_bytes as usize, 0);
        Some(AnaPart { bytes, is_seen, has_lists: lsp & 1 == 0 })
    }

    /// Notes that a host has read the ANA log without lists on its admin connection to a node.
    pub(super) fn has_read_groups(&mut self, node: usize, id: ConnId) {
        for (_, unseen) in self.unseen.iter_mut().filter(|((of, _), _)| *of == node) {
            unseen.by.entry(id).and_modify(|has_read| *has_read = true);
        }
    }

    /// Notes that a host was told the group of a namespace on its admin connection to a node.
    pub(super) fn has_asked_for_group(&mut self, ctx: &mut Ctx, node: usize, id: ConnId, nsid: u32) {
        if self.unseen.get(&(node, nsid)).is_some_and(|unseen| unseen.by.get(&id) == Some(&true)) {
            self.has_seen_losses(ctx, node, id, nsid..=nsid);
        }
    }

    /// Notes that a host has read the ANA log on its admin connection to a node, or that its association has ended.
    pub(super) fn has_seen_ana(&mut self, ctx: &mut Ctx, node: usize, id: ConnId) {
        self.has_seen_losses(ctx, node, id, 0..=u32::MAX);
    }

    /// Persistent losses that every host has seen may end.
    fn has_seen_losses(&mut self, ctx: &mut Ctx, node: usize, id: ConnId, nsids: RangeInclusive<u32>) {
        let mut over = Vec::new();
        for (&place, unseen) in self.unseen.range_mut((node, *nsids.start())..=(node, *nsids.end())) {
            if unseen.by.remove(&id).is_some() && unseen.by.is_empty() {
                over.push((place, unseen.next));
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
