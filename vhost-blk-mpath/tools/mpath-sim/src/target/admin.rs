//! Connect commands, admin commands and Cross-Controller Resets.

use monotonic::Duration;
use nvme_tcp::wire::{
    ActiveList, AdminCommand, CROSS_RESET_DONE, Cns, FeatureId, IdentifyController, IdentifyNamespace,
    NamespaceDescriptors, NumberOfQueues, Status,
};
use nvme_tcp_target::{AdminReply, TargetCommand};
use zerocopy::IntoBytes;

use super::ana::AnaPart;
use super::state::{CrossReset, OddIdentity, Role};
use super::{Target, WriteCache};
use crate::clock::Event;
use crate::connection::ConnId;
use crate::context::Ctx;

/// When a paused node tries a Cross-Controller Reset again.
const RETRY_PAUSED: Duration = Duration::from_millis(100);

/// With this number of ANA groups, hosts read the log without lists of namespaces.
const UNLISTED_GROUPS: u32 = 10_000;

impl Target {
    pub(super) fn connect(&mut self, ctx: &mut Ctx, id: ConnId, command: TargetCommand) {
        let Some(node) = self.conns.get(&id).map(|conn| conn.node) else { return };
        let now = ctx.clock.now();
        let subsystem = self.subsystem(node);
        let connected = subsystem.connect(now, node as u16 + 1, &command);
        let instance = connected.as_ref().ok().and_then(|identity| subsystem.instance(identity.cntlid));
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match connected {
            Ok(identity) => {
                conn.role = if identity.qid == 0 { Role::Admin(identity.cntlid) } else { Role::Io(identity.cntlid) };
                conn.instance = instance;
                conn.queue.accept(command.token, identity, None);
                if identity.qid == 0 {
                    self.watch(ctx, id, node, identity.cntlid);
                }
            }
            Err((status, result)) => conn.queue.complete(command.token, status, result),
        }
    }

    pub(super) fn admin(&mut self, ctx: &mut Ctx, id: ConnId, cntlid: u16, mut command: TargetCommand) {
        let Some(node) = self.conns.get(&id).map(|conn| conn.node) else { return };
        let parsed = AdminCommand::parse(&command.sqe);
        let ana = parsed.as_ref().ok().and_then(|parsed| self.read_ana(ctx, (node, id, cntlid), *parsed, &mut command));
        let refused = matches!(parsed, Ok(AdminCommand::CrossControllerReset(_)))
            && self.rng.percent(self.plan.cross_reset.refused_percent);
        ctx.checker.counts.cross_resets_refused += u64::from(refused);
        let reply = if refused {
            AdminReply::Done { token: command.token, status: Status::INTERNAL_ERROR, result: 0 }
        } else if parsed.as_ref().is_ok_and(|parsed| self.is_about_absent(node, parsed)) {
            AdminReply::Done { token: command.token, status: Status::INVALID_NAMESPACE.with_dnr(), result: 0 }
        } else if let Some(status) = parsed.as_ref().ok().and_then(|parsed| self.refuses_descriptors(node, parsed)) {
            AdminReply::Done { token: command.token, status, result: 0 }
        } else {
            self.subsystem(node).admin(ctx.clock.now(), cntlid, command)
        };
        let has_data = matches!(reply, AdminReply::Data { .. });
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match reply {
            AdminReply::Done { token, status, result } => {
                let sets_queues = matches!(
                    parsed,
                    Ok(AdminCommand::SetFeatures { fid: FeatureId::NUMBER_OF_QUEUES, .. }) if status.is_success()
                );
                let result = if sets_queues { self.granted(node, result) } else { result };
                let Some(conn) = self.conns.get_mut(&id) else { return };
                conn.queue.complete(token, status, result);
            }
            AdminReply::Data { token, mut data } => {
                if let Ok(AdminCommand::Identify { cns, nsid, .. }) = parsed {
                    self.adjust_identify(node, cns, nsid, &mut data);
                }
                if let Some(part) = &ana {
                    data.copy_from_slice(&part.bytes);
                }
                let Some(conn) = self.conns.get_mut(&id) else { return };
                conn.queue.complete_with_data(token, data.len() as u32, |part, out| {
                    out.extend_from_slice(&data[part]);
                    Ok(())
                });
            }
            AdminReply::ResetController { token, instance } => {
                self.begin_reset(ctx, CrossReset { conn: id, node, token, instance });
            }
            // Like Linux's target, the node does not write back its cache for a shutdown.
            AdminReply::Shutdown { token } => {
                conn.queue.complete(token, Status::SUCCESS, 0);
                self.has_seen_ana(ctx, node, id);
            }
            AdminReply::Deferred => {}
        }
        match (ana, parsed) {
            (Some(AnaPart { is_seen: true, has_lists: true, .. }), _) => self.has_seen_ana(ctx, node, id),
            (Some(AnaPart { is_seen: true, .. }), _) => self.has_read_groups(node, id),
            (_, Ok(AdminCommand::Identify { cns: Cns::NAMESPACE, nsid, .. })) if has_data => {
                self.has_asked_for_group(ctx, node, id, nsid);
            }
            _ => {}
        }
        self.send_events(ctx);
    }

    /// The subsystem has given up the instance, if there was one. Until the reset is done, its commands are executed like those of any
    /// lost association.
    fn begin_reset(&mut self, ctx: &mut Ctx, reset: CrossReset) {
        let now = ctx.clock.now();
        self.close_all(ctx, reset.node, Some(reset.instance), now);
        let plan = &self.plan.cross_reset;
        if self.rng.percent(plan.deadly_percent / 2) {
            ctx.checker.counts.cross_resets_deadly += 1;
            return self.close(ctx, reset.conn, now);
        }
        if self.rng.percent(plan.begun_percent) {
            ctx.checker.counts.cross_resets_begun += 1;
            if let Some(conn) = self.conns.get_mut(&reset.conn) {
                conn.queue.complete(reset.token, Status::SUCCESS, 0);
            }
            return;
        }
        self.last_number += 1;
        ctx.clock.after(self.rng.tail(plan.takes), Event::CrossReset(self.last_number));
        self.resets.insert(self.last_number, reset);
    }

    /// [`Event::CrossReset`] has come: nothing of that instance is executed any more.
    pub(crate) fn on_cross_reset(&mut self, ctx: &mut Ctx, number: u64) {
        let Some(reset) = self.resets.get(&number) else { return };
        if self.nodes[reset.node].paused {
            return ctx.clock.after(RETRY_PAUSED, Event::CrossReset(number));
        }
        let Some(CrossReset { conn: id, node, token, instance }) = self.resets.remove(&number) else { return };
        let (process, processes) = (self.process(node), self.subsystems.len());
        self.pending.retain(|_, pending| pending.node % processes != process || pending.instance != Some(instance));
        if self.rng.percent(self.plan.cross_reset.deadly_percent / 2) {
            let now = ctx.clock.now();
            ctx.checker.counts.cross_resets_deadly += 1;
            return self.close(ctx, id, now);
        }
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.queue.complete(token, Status::SUCCESS, CROSS_RESET_DONE);
            self.send(ctx, id);
        }
    }

    pub(super) fn send_events(&mut self, ctx: &mut Ctx) {
        let admins = self.conns.iter().filter_map(|(&id, conn)| match conn.role {
            Role::Admin(cntlid) if !self.nodes[conn.node].paused => Some((id, conn.node, cntlid)),
            _ => None,
        });
        for (id, node, cntlid) in admins.collect::<Vec<_>>() {
            while let Some((token, status, result)) = self.subsystem(node).poll_event(cntlid) {
                if let Some(conn) = self.conns.get_mut(&id) {
                    conn.queue.complete(token, status, result);
                }
            }
            self.send(ctx, id);
        }
    }

    /// The result of Number of Queues at a node that grants fewer than `result` says.
    fn granted(&self, node: usize, result: u64) -> u64 {
        let most = self.nodes[node].io_queues.unwrap_or(u16::MAX).min(self.plan.io_queues) - 1;
        let NumberOfQueues { submission, completion } = NumberOfQueues::from_value(result as u32);
        NumberOfQueues { submission: submission.min(most), completion: completion.min(most) }.to_value().into()
    }

    /// The Identify data of a node and of its namespaces.
    fn adjust_identify(&self, node: usize, cns: Cns, nsid: u32, data: &mut [u8]) {
        let plan = &self.plan;
        match cns {
            Cns::CONTROLLER => {
                let Some(mut identify) = IdentifyController::parse(data).cloned() else { return };
                identify.cqt = (plan.cqt.as_millis() as u16).into();
                identify.vwc = if plan.write_cache == WriteCache::None { 0 } else { identify.vwc };
                identify.crdt = plan.crdt.map(Into::into);
                identify.ccrl = if plan.cross_reset.offered { identify.ccrl } else { 0 };
                let groups = 2 * plan.namespaces.len() as u32 + plan.ana.others;
                identify.nanagrpid = if plan.ana.is_unlisted { UNLISTED_GROUPS } else { groups }.into();
                if plan.tbkas {
                    identify.ctratt = (identify.ctratt.get() | IdentifyController::CTRATT_TBKAS).into();
                }
                data.copy_from_slice(identify.as_bytes());
            }
            Cns::NAMESPACE => {
                let Some(mut identify) = IdentifyNamespace::parse(data).cloned() else { return };
                identify.anagrpid = self.group_of(node, nsid).into();
                identify.noiob = plan.namespaces[nsid as usize - 1].noiob.into();
                if !matches!(self.nodes[node].odd_identity, None | Some(OddIdentity::NguidAlone)) {
                    identify.nguid = [0; 16];
                }
                data.copy_from_slice(identify.as_bytes());
            }
            Cns::DESCRIPTORS => {
                let Ok(mut descriptors) = NamespaceDescriptors::parse(data) else { return };
                let odd = self.nodes[node].odd_identity;
                descriptors.uuid = descriptors.uuid.filter(|_| matches!(odd, None | Some(OddIdentity::UuidAlone)));
                descriptors.nguid = descriptors.nguid.filter(|_| matches!(odd, None | Some(OddIdentity::NguidAlone)));
                data.copy_from_slice(&descriptors.emit());
            }
            Cns::ACTIVE_LIST => {
                let mut list = ActiveList::parse(data);
                list.0.retain(|nsid| !self.absent.contains(&(node, *nsid)));
                data.copy_from_slice(&list.emit());
            }
            _ => {}
        }
    }
}
