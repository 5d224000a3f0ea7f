//! The target: the shipping sans-IO target in front of one store a namespace, with a node for every path, and all the bad habits that
//! the specification leaves it.
//!
//! The nodes may belong to two processes that know nothing of each other: one subsystem by name, and the same controller ids.
//!
//! A node that notices the loss of an association may go on executing its commands for as long as its quiesce time. It
//! notices by a reset, or by its keep-alive timer, at which it may look late.

pub(crate) mod admin;
mod ana;
mod execute;
mod hostile;
mod namespaces;
pub(crate) mod store;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nvme_tcp::target::{
    AnswerFault, AnswerFaults, FaultyCommands, IoView, Namespace, QueueIdentity, QueueLimits, Subsystem,
    SubsystemConfig, TargetCommand, TargetQueue,
};
use nvme_tcp::wire::{AnaState, ControllerInstance, Nqn, Status};

use self::admin::{CrossReset, CrossResetPlan};
use self::ana::Unseen;
use self::execute::Begun;
pub(crate) use self::hostile::R2tFault;
pub(crate) use self::namespaces::{NamespacePlan, Shown};
use self::store::Store;
use crate::check::Checker;
use crate::clock::{Clock, Event};
use crate::net::{ConnId, Net, Side};
use crate::rng::Rng;

/// The volatile write caches of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteCache {
    None,
    OfEachNode,
    /// All nodes have one, which is lost only when all of them are down.
    Shared,
}

/// The plan of the target for the whole run.
#[derive(Debug, Clone)]
pub(crate) struct TargetPlan {
    pub(crate) nqn: Nqn,
    pub(crate) nodes: usize,
    /// The nodes belong to them in turn.
    pub(crate) processes: usize,
    pub(crate) cross_reset: CrossResetPlan,
    /// By NSID, from 1.
    pub(crate) namespaces: Vec<NamespacePlan>,
    pub(crate) limits: QueueLimits,
    pub(crate) max_entries: u16,
    pub(crate) write_cache: WriteCache,
    /// CQT as reported; zero for a target that does not know the field.
    pub(crate) cqt: Duration,
    pub(crate) tbkas: bool,
    /// CRDT1 to CRDT3 in units of 100 ms.
    pub(crate) crdt: [u16; 3],
    /// How long commands are executed after the loss was noticed, at most.
    pub(crate) quiesce: Duration,
    /// How late the keep-alive timer is looked at, at most.
    pub(crate) timer_slack: Duration,
    /// How long a command takes.
    pub(crate) service: Duration,
    /// Commands of several blocks may be executed piece by piece.
    pub(crate) piecemeal: bool,
}

/// The answer to a command in place of its execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failing {
    pub(crate) percent: u64,
    pub(crate) status: Status,
}

/// What a node is like now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeState {
    /// Its processor stands still; its kernel goes on acknowledging.
    pub(crate) paused: bool,
    /// It closes connections in order.
    pub(crate) finishes: bool,
    /// It has no power.
    pub(crate) is_down: bool,
    /// Percentage of commands that are held for seconds.
    pub(crate) held_percent: u64,
    pub(crate) failing: Option<Failing>,
    pub(crate) extra_service: Duration,
    /// Percentage of commands that are lost alone, with all others answered: some before they are executed, some after.
    pub(crate) lost_percent: u64,
    /// Percentage of responses that are sent twice.
    pub(crate) repeated_percent: u64,
    /// Percentage of R2Ts that are spoilt, and how.
    pub(crate) r2ts: Option<(u64, R2tFault)>,
}

#[derive(Debug, Clone, Copy)]
enum Role {
    New,
    Admin(u16),
    Io(u16),
}

#[derive(Debug)]
struct Connection {
    node: usize,
    since: Instant,
    queue: TargetQueue,
    role: Role,
    /// Set with the role.
    instance: Option<ControllerInstance>,
    /// A response to be sent once more.
    again: Vec<u8>,
    /// To be sent.
    out: VecDeque<u8>,
}

/// A command between its arrival and its execution.
#[derive(Debug)]
struct Pending {
    conn: ConnId,
    node: usize,
    instance: Option<ControllerInstance>,
    command: TargetCommand,
    view: IoView,
    due: Instant,
    /// Its connection is gone; it is not executed after this.
    until: Option<Instant>,
    /// Its answer is lost.
    is_lost: bool,
    begun: Option<Begun>,
}

/// What all parts of the simulation need.
pub(crate) struct Ctx<'a> {
    pub(crate) clock: &'a mut Clock,
    pub(crate) net: &'a mut Net,
    pub(crate) check: &'a mut Checker,
    pub(crate) verbose: bool,
}

impl Ctx<'_> {
    pub(crate) fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            println!("{:>13.6} {}", self.clock.elapsed().as_secs_f64(), what());
        }
    }
}

#[derive(Debug)]
pub(crate) struct Target {
    plan: TargetPlan,
    rng: Rng,
    /// For hostile nodes alone.
    hostile_rng: Rng,
    /// For the pieces of commands alone.
    pieces_rng: Rng,
    /// By node.
    answer_faults: Vec<Arc<AnswerFaults>>,
    /// By process.
    subsystems: Vec<Subsystem>,
    /// By NSID, from 1.
    namespaces: Vec<Namespace>,
    stores: Vec<Store>,
    /// Nodes, and the NSIDs of the namespaces that they do not have.
    gone: BTreeSet<(usize, u32)>,
    /// Nodes, and the NSIDs of namespaces that have all their blocks there.
    grown: BTreeSet<(usize, u32)>,
    /// By node and NSID, as the next.
    unseen: BTreeMap<(usize, u32), Unseen>,
    /// Since when a namespace is another one.
    others: BTreeMap<(usize, u32), Instant>,
    pub(crate) nodes: Vec<NodeState>,
    conns: BTreeMap<ConnId, Connection>,
    pending: BTreeMap<u64, Pending>,
    /// Cross-Controller Resets under way.
    resets: BTreeMap<u64, CrossReset>,
    next: u64,
}

impl Target {
    pub(crate) fn new(plan: TargetPlan, mut rng: Rng) -> Self {
        let namespaces: Vec<_> = (1..).zip(&plan.namespaces).map(|(nsid, of)| of.namespace(nsid)).collect();
        let stores = plan
            .namespaces
            .iter()
            .map(|of| Store::new(of.blocks, of.block_bytes(), plan.write_cache == WriteCache::Shared));
        let config = SubsystemConfig {
            nqn: plan.nqn.clone(),
            serial: "SIM".into(),
            namespaces: namespaces.clone(),
            ports: vec![AnaState::Optimized; plan.nodes],
            limits: plan.limits,
            max_entries: plan.max_entries,
            max_io_queues: 8,
            anatt_seconds: 10,
            seed: 0,
        };
        let process = |_| Subsystem::new(SubsystemConfig { seed: rng.next_u64(), ..config.clone() });
        let mut target = Self {
            subsystems: (0..plan.processes).map(process).collect(),
            namespaces,
            stores: stores.collect(),
            gone: BTreeSet::new(),
            grown: BTreeSet::new(),
            unseen: BTreeMap::new(),
            others: BTreeMap::new(),
            nodes: vec![NodeState::default(); plan.nodes],
            answer_faults: (0..plan.nodes).map(|_| Arc::default()).collect(),
            conns: BTreeMap::new(),
            pending: BTreeMap::new(),
            resets: BTreeMap::new(),
            next: 0,
            plan,
            // Not drawn from the stream, which stays the same.
            hostile_rng: Rng::new(rng.clone().next_u64(), 0x4057),
            pieces_rng: Rng::new(rng.clone().next_u64(), 0x91ec),
            rng,
        };
        target.show_sizes();
        target
    }

    /// A number of a node's next commands meet a fault.
    pub(crate) fn answer_wrongly(&self, node: usize, fault: AnswerFault, count: u32) {
        self.answer_faults[node].set(fault, FaultyCommands { count, opcode: None, nsid: None });
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
        let (again, out) = (Vec::new(), VecDeque::new());
        self.conns.insert(conn, Connection { node, since, queue, role: Role::New, instance: None, again, out });
    }

    /// There are bytes to read, or room to write.
    pub(crate) fn on_ready(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if self.nodes[conn.node].paused {
            return;
        }
        loop {
            let bytes = ctx.net.receive(ctx.clock, id, Side::Target, 16 * 1024);
            if bytes.is_empty() {
                break;
            }
            let Some(conn) = self.conns.get_mut(&id) else { return };
            let parsed = conn.queue.receive(&bytes);
            if parsed.is_err() {
                self.send(ctx, id);
                let now = ctx.clock.now();
                return self.close(ctx, id, now);
            }
            self.take_commands(ctx, id);
        }
        self.send(ctx, id);
    }

    /// The kernel reports a reset. A node that stands still sees it when it goes on.
    pub(crate) fn on_reset(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        if let Some(conn) = self.conns.get(&id)
            && !self.nodes[conn.node].paused
        {
            let now = ctx.clock.now();
            self.close(ctx, id, now);
        }
    }

    fn send(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let fault = self.nodes[conn.node].r2ts.filter(|_| matches!(conn.role, Role::Io(_)));
        let mut pdus = Vec::new();
        ctx.check.counts.spoilt_r2ts += hostile::copy(conn.queue.pending(), fault, &mut self.hostile_rng, &mut pdus);
        conn.queue.sent(conn.queue.pending().len());
        conn.out.extend(pdus);
        while !conn.out.is_empty() {
            let sent = ctx.net.send(ctx.clock, id, Side::Target, conn.out.make_contiguous());
            if sent == 0 {
                break;
            }
            conn.out.drain(..sent);
        }
    }

    fn take_commands(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
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

    /// Looks at the keep-alive timer when it should expire next.
    fn watch(&mut self, ctx: &mut Ctx<'_>, id: ConnId, node: usize, cntlid: u16) {
        if let Some(deadline) = self.subsystem(node).next_timeout(cntlid) {
            ctx.clock.at(deadline + self.plan.timer_slack, Event::KeepAlive(id));
        }
    }

    pub(crate) fn on_keep_alive(&mut self, ctx: &mut Ctx<'_>, id: ConnId) {
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

    /// A connection is over, and with its admin connection a whole controller. Commands not executed yet may still be, until
    /// the quiesce time from `noticed` on has passed.
    fn close(&mut self, ctx: &mut Ctx<'_>, id: ConnId, noticed: Instant) {
        let Some(conn) = self.conns.remove(&id) else { return };
        if self.nodes[conn.node].finishes {
            ctx.check.counts.finished += u64::from(self.pending.values().any(|pending| pending.conn == id));
            ctx.net.finish(ctx.clock, id);
        } else {
            ctx.net.close(ctx.clock, id, Side::Target);
        }
        self.orphan(ctx, id, noticed);
        let Some(identity @ QueueIdentity { qid, .. }) = conn.queue.identity() else { return };
        self.subsystem(conn.node).disconnected(identity);
        if qid == 0 {
            self.has_seen_ana(ctx, conn.node, id);
            self.close_all(ctx, conn.node, conn.instance, noticed);
        }
    }

    /// Closes the connections of a controller's life.
    fn close_all(&mut self, ctx: &mut Ctx<'_>, node: usize, instance: Option<ControllerInstance>, noticed: Instant) {
        let process = self.process(node);
        let of_instance = |conn: &Connection| instance.is_some() && conn.instance == instance;
        let left = self.conns.iter().filter(|(_, conn)| of_instance(conn) && self.process(conn.node) == process);
        for id in left.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.close(ctx, id, noticed);
        }
    }

    fn orphan(&mut self, ctx: &mut Ctx<'_>, id: ConnId, noticed: Instant) {
        let (until, now) = (noticed + self.plan.quiesce, ctx.clock.now());
        let rng = &mut self.rng;
        self.pending.retain(|&number, pending| {
            if pending.conn != id {
                return true;
            }
            if until <= now || rng.percent(30) {
                ctx.check.counts.cut += u64::from(pending.begun.is_some());
                return false;
            }
            pending.until = Some(until);
            // As late as can be is what finds out too short a fence.
            let left = until - now;
            let rest = if rng.percent(50) { rng.up_to(left) } else { rng.up_to(left / 50) };
            pending.due = if rng.percent(50) { until.checked_sub(rest).unwrap_or(now) } else { pending.due.min(until) };
            ctx.clock.at(pending.due, Event::Execute(number));
            true
        });
    }

    /// A node ends its admin connections, and its I/O connections with them, or those I/O connections alone, in order.
    pub(crate) fn finish(&mut self, ctx: &mut Ctx<'_>, node: usize, admin: bool) {
        let of_node = |conn: &Connection| conn.node == node && matches!(conn.role, Role::Admin(_)) == admin;
        let ids: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(&id, _)| id).collect();
        let now = ctx.clock.now();
        self.nodes[node].finishes = true;
        for id in ids {
            self.close(ctx, id, now);
        }
    }

    /// The node's processor goes on.
    pub(crate) fn resume(&mut self, ctx: &mut Ctx<'_>, node: usize) {
        self.nodes[node].paused = false;
        let of_node = |conn: &Connection| conn.node == node;
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| of_node(conn)).map(|(&id, _)| id).collect();
        // Time has gone on meanwhile: the keep-alive timers first.
        for &id in &conns {
            self.on_keep_alive(ctx, id);
        }
        for id in conns {
            if ctx.net.is_reset(id, Side::Target) {
                self.on_reset(ctx, id);
            } else {
                self.on_ready(ctx, id);
            }
        }
        for (&number, pending) in self.pending.iter_mut().filter(|(_, pending)| pending.node == node) {
            pending.due = pending.due.max(ctx.clock.now());
            ctx.clock.at(pending.due, Event::Execute(number));
        }
        self.tell_events(ctx);
    }

    /// The node loses power: its connections, its commands, its cache.
    pub(crate) fn crash(&mut self, ctx: &mut Ctx<'_>, node: usize) {
        let cut = |pending: &&Pending| pending.node == node && pending.begun.is_some();
        ctx.check.counts.cut += self.pending.values().filter(cut).count() as u64;
        self.pending.retain(|_, pending| pending.node != node);
        self.nodes[node].is_down = true;
        let loses_cache = self.plan.write_cache != WriteCache::Shared || self.nodes.iter().all(|node| node.is_down);
        for (store, plan) in self.stores.iter_mut().zip(&self.plan.namespaces) {
            if self.rng.percent(25) {
                // All of it had been written back just before.
                store.flush(node);
            }
            let losses = if loses_cache { store.crash(node) } else { Vec::new() };
            ctx.check.cache_lost(ctx.clock.elapsed(), node, plan.disk, &losses);
        }
        let conns: Vec<ConnId> = self.conns.iter().filter(|(_, conn)| conn.node == node).map(|(&id, _)| id).collect();
        let now = ctx.clock.now();
        for id in conns {
            self.close(ctx, id, now);
        }
    }
}
