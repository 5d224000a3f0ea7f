//! The target: the target side of `nvme-tcp` in front of one store for each namespace, with a node for every path. It does
//! everything that the specification permits.
//!
//! The nodes may belong to two processes that share no state: one subsystem name, and the same controller ids.
//!
//! A node that notices the loss of an association may execute its commands until its quiesce time has passed. It notices the
//! loss by a reset, or by its keep-alive timer, which it may check late.

mod admin;
mod ana;
mod drain;
mod execution;
mod namespaces;
mod nodes;
mod plan;
mod r2t_faults;
mod state;
mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use monotonic::Instant;
use nvme_tcp::wire::{AnaGroup, AnaState, ControllerInstance, PduError};
use nvme_tcp_target::{AnswerFaults, Namespace, QueueIdentity, Subsystem, SubsystemConfig, TargetError, TargetQueue};

pub(crate) use self::plan::{AnaPlan, CrossResetPlan, IoClose, NamespacePlan, TargetPlan, WriteCache};
pub(crate) use self::r2t_faults::R2tFault;
use self::state::{Connection, CrossReset, DrainCause, NodeState, PendingCommand, Role, UnseenLoss};
pub(crate) use self::state::{NamespaceReport, OddIdentity, StatusFault};
use self::store::Store;
use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;
use crate::rng::Rng;

#[derive(Debug)]
pub(crate) struct Target {
    plan: TargetPlan,
    rng: Rng,
    /// For spoilt R2Ts only.
    r2t_rng: Rng,
    /// For the pieces of commands only.
    pieces_rng: Rng,
    /// For flushes that fail only.
    statuses_rng: Rng,
    /// For ends of connections of a target that drains only.
    ends_rng: Rng,
    /// By node.
    answer_faults: Vec<Arc<AnswerFaults>>,
    /// By process.
    subsystems: Vec<Subsystem>,
    /// By NSID, from 1.
    namespaces: Vec<Namespace>,
    /// By NSID, from 1.
    stores: Vec<Store>,
    /// Nodes, and the NSIDs of namespaces that are absent there.
    absent: BTreeSet<(usize, u32)>,
    /// Nodes, and the NSIDs of namespaces that have all their blocks there.
    grown: BTreeSet<(usize, u32)>,
    /// By node and NSID: the group to which a namespace has moved last, and the one that it left, with its state.
    moved: BTreeMap<(usize, u32), (u32, AnaGroup)>,
    /// By admin connection: the change count of the ANA log when its first part was read.
    ana_begun: BTreeMap<ConnId, u64>,
    /// By node and NSID: a persistent loss that not every host has seen.
    unseen: BTreeMap<(usize, u32), UnseenLoss>,
    /// By node and NSID: since when the node reports another namespace.
    replaced_since: BTreeMap<(usize, u32), Instant>,
    pub(crate) nodes: Vec<NodeState>,
    conns: BTreeMap<ConnId, Connection>,
    pending: BTreeMap<u64, PendingCommand>,
    /// Cross-Controller Resets under way.
    resets: BTreeMap<u64, CrossReset>,
    /// The last number of a pending command or reset.
    last_number: u64,
}

impl Target {
    pub(crate) fn new(plan: TargetPlan, mut rng: Rng) -> Self {
        let namespaces: Vec<_> =
            (1..).zip(&plan.namespaces).map(|(nsid, namespace)| namespace.namespace(nsid)).collect();
        let stores = plan.namespaces.iter().map(|namespace| {
            Store::new(namespace.blocks, namespace.block_bytes(), plan.write_cache == WriteCache::Shared)
        });
        let config = SubsystemConfig {
            nqn: plan.nqn.clone(),
            serial: "SIM".into(),
            namespaces: namespaces.clone(),
            ports: vec![AnaState::Optimized; plan.nodes],
            limits: plan.limits,
            max_entries: plan.max_entries,
            keeps_flow_control: plan.keeps_flow_control,
            max_io_queues: 8,
            anatt_seconds: 10,
            seed: 0,
            authentication: None,
        };
        let process = |_| Subsystem::new(SubsystemConfig { seed: rng.next_u64(), ..config.clone() });
        let mut target = Self {
            subsystems: (0..plan.processes).map(process).collect(),
            namespaces,
            stores: stores.collect(),
            absent: BTreeSet::new(),
            grown: BTreeSet::new(),
            moved: BTreeMap::new(),
            ana_begun: BTreeMap::new(),
            unseen: BTreeMap::new(),
            replaced_since: BTreeMap::new(),
            nodes: vec![NodeState::default(); plan.nodes],
            answer_faults: (0..plan.nodes).map(|_| Arc::default()).collect(),
            conns: BTreeMap::new(),
            pending: BTreeMap::new(),
            resets: BTreeMap::new(),
            last_number: 0,
            plan,
            // Drawn from copies, so that the stream of the target stays the same.
            r2t_rng: Rng::new(rng.clone().next_u64(), 0x4057),
            pieces_rng: Rng::new(rng.clone().next_u64(), 0x91ec),
            statuses_rng: Rng::new(rng.clone().next_u64(), 0x57a7),
            ends_rng: Rng::new(rng.clone().next_u64(), 0xd7a1),
            rng,
        };
        target.report_sizes();
        target
    }

    fn process(&self, node: usize) -> usize {
        node % self.subsystems.len()
    }

    fn subsystem(&mut self, node: usize) -> &mut Subsystem {
        let process = self.process(node);
        &mut self.subsystems[process]
    }

    /// A host has connected to a node.
    pub(crate) fn on_accept(&mut self, since: Instant, conn: ConnId, node: usize) {
        let mut queue = TargetQueue::new(self.plan.limits);
        queue.set_answer_faults(Arc::clone(&self.answer_faults[node]));
        let (repeat, out) = (Vec::new(), VecDeque::new());
        let (role, instance, drain) = (Role::New, None, None);
        self.conns.insert(conn, Connection { node, since, queue, role, instance, repeat, out, is_deaf: false, drain });
    }

    /// There are bytes to read, or room to write.
    pub(crate) fn on_ready(&mut self, ctx: &mut Ctx, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if self.nodes[conn.node].paused {
            ctx.checker.counts.waits_for_paused_node += u64::from(ctx.net.has_received(id, Side::Target));
            return;
        }
        if conn.is_deaf {
            return;
        }
        while self.conns.get(&id).is_some_and(|conn| !conn.is_deaf && conn.drain != Some(DrainCause::Target)) {
            let bytes = ctx.net.receive(&mut ctx.clock, id, Side::Target, 16 * 1024);
            if bytes.is_empty() {
                break;
            }
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let parsed = conn.queue.receive(&bytes);
            if let Err(error) = parsed {
                ctx.checker.counts.digest_errors +=
                    u64::from(matches!(error, TargetError::Pdu(PduError::HeaderDigest { .. })));
                self.send(ctx, id);
                let now = ctx.clock.now();
                return self.close(ctx, id, now);
            }
            self.take_commands(ctx, id);
        }
        self.send(ctx, id);
        if ctx.net.has_tls_failed(id) {
            let now = ctx.clock.now();
            return self.close(ctx, id, now);
        }
        if ctx.net.has_ended(id, Side::Target) {
            self.drain(ctx, id, DrainCause::Host);
        }
    }

    /// The kernel reports a reset. A paused node sees it when it resumes.
    pub(crate) fn on_reset(&mut self, ctx: &mut Ctx, id: ConnId) {
        if let Some(conn) = self.conns.get(&id)
            && !self.nodes[conn.node].paused
        {
            let now = ctx.clock.now();
            self.close(ctx, id, now);
        }
    }

    fn send(&mut self, ctx: &mut Ctx, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let fault = self.nodes[conn.node].r2t_fault.filter(|_| matches!(conn.role, Role::Io(_)));
        let mut pdus = Vec::new();
        let spoilt = r2t_faults::copy_spoiling(conn.queue.pending(), fault, &mut self.r2t_rng, &mut pdus);
        if fault.is_some_and(|(_, fault)| fault == R2tFault::RefuseAndStopReading) {
            conn.is_deaf |= spoilt > 0;
            ctx.checker.counts.connections_deaf += u64::from(spoilt > 0);
        } else {
            ctx.checker.counts.spoilt_r2ts += spoilt;
        }
        conn.queue.sent(conn.queue.pending().len());
        conn.out.extend(pdus);
        while !conn.out.is_empty() {
            let sent = ctx.net.send(&mut ctx.clock, id, Side::Target, conn.out.make_contiguous());
            if sent == 0 {
                break;
            }
            conn.out.drain(..sent);
        }
    }

    fn take_commands(&mut self, ctx: &mut Ctx, id: ConnId) {
        while let Some(conn) = self.conns.get_mut(&id)
            && let Some(command) = conn.queue.poll_command()
        {
            match conn.role {
                Role::New => self.connect(ctx, id, command),
                Role::Admin(cntlid) => self.admin(ctx, id, cntlid, command),
                Role::Io(cntlid) => self.queue_command(ctx, id, cntlid, command),
            }
        }
    }

    /// Sets the next check of a keep-alive timer.
    fn watch(&mut self, ctx: &mut Ctx, id: ConnId, node: usize, cntlid: u16) {
        if let Some(deadline) = self.subsystem(node).next_timeout(cntlid) {
            ctx.clock.at(deadline + self.plan.timer_slack, Event::KeepAlive(id));
        }
    }

    /// [`Event::KeepAlive`] has come.
    pub(crate) fn on_keep_alive(&mut self, ctx: &mut Ctx, id: ConnId) {
        let Some(&Connection { node, role: Role::Admin(cntlid), .. }) = self.conns.get(&id) else { return };
        if self.nodes[node].paused {
            return;
        }
        let Some(deadline) = self.subsystem(node).next_timeout(cntlid) else { return };
        let noticed = deadline + self.plan.timer_slack;
        if noticed <= ctx.clock.now() {
            self.close(ctx, id, noticed);
        } else {
            self.watch(ctx, id, node, cntlid);
        }
    }

    /// Closes a connection. All connections of a controller end with its admin connection, or with any of them if
    /// `ends_with_any_connection`. Commands may be executed until the quiesce time has passed since `noticed`.
    fn close(&mut self, ctx: &mut Ctx, id: ConnId, noticed: Instant) {
        let Some(conn) = self.conns.remove(&id) else { return };
        self.ana_begun.remove(&id);
        let has_commands = self.has_commands(id);
        if self.ends_in_order(&conn, has_commands) {
            ctx.checker.counts.closed_with_commands += u64::from(has_commands);
            ctx.checker.counts.drains_cut += u64::from(has_commands && conn.drain == Some(DrainCause::Host));
            ctx.net.close_in_order(&mut ctx.clock, id);
        } else {
            ctx.net.close(&mut ctx.clock, id, Side::Target);
        }
        self.orphan(ctx, id, noticed);
        let Some(identity @ QueueIdentity { qid, .. }) = conn.queue.identity() else { return };
        self.subsystem(conn.node).disconnected(identity);
        if qid == 0 {
            self.has_seen_ana(ctx, conn.node, id);
        }
        if qid == 0 || self.plan.ends_with_any_connection {
            self.close_all(ctx, conn.node, conn.instance, noticed);
        }
    }

    /// Closes the connections of a controller instance.
    fn close_all(&mut self, ctx: &mut Ctx, node: usize, instance: Option<ControllerInstance>, noticed: Instant) {
        let process = self.process(node);
        let of_instance = |conn: &Connection| instance.is_some() && conn.instance == instance;
        let left = self.conns.iter().filter(|(_, conn)| of_instance(conn) && self.process(conn.node) == process);
        for id in left.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.close(ctx, id, noticed);
        }
    }

    /// Drops the commands of a closed connection, or has them executed later.
    fn orphan(&mut self, ctx: &mut Ctx, id: ConnId, noticed: Instant) {
        let (until, now) = (noticed + self.plan.quiesce, ctx.clock.now());
        for pending in self.pending.values().filter(|pending| pending.conn == id && pending.until.is_none()) {
            if let Some(writer) = self.writer_of(&pending.command) {
                ctx.checker.write_lost(writer, id);
            }
        }
        let rng = &mut self.rng;
        self.pending.retain(|&number, pending| {
            if pending.conn != id {
                return true;
            }
            if until <= now || rng.percent(30) {
                ctx.checker.counts.commands_cut += u64::from(pending.executed.is_some());
                return false;
            }
            pending.until = Some(until);
            // Commands are often executed late, because that finds fences that are too short.
            let left = until - now;
            let rest = if rng.percent(50) { rng.up_to(left) } else { rng.up_to(left / 50) };
            pending.due = if rng.percent(50) { until.checked_sub(rest).unwrap_or(now) } else { pending.due.min(until) };
            ctx.clock.at(pending.due, Event::Execute(number));
            true
        });
    }
}
