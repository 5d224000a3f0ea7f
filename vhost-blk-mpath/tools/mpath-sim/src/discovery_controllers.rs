//! Discovery controllers that list the nodes of a run. Each is the discovery subsystem of `nvme-tcp` with a link of its own. The links
//! of discovery controllers come after the links of paths.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use monotonic::{Duration, Instant};
use nvme_tcp::host::DiscoveryLog;
use nvme_tcp::wire::{
    AddressFamily, AdminCommand, CNTLID_ANY, ConnectField, DiscoveryEntry, FabricsCommand, Nqn, SecurityType, Status,
    SubsystemType, TransportType,
};
use nvme_tcp_target::{AdminReply, QueueLimits, Subsystem, TargetCommand, TargetQueue};

use crate::clock::Event;
use crate::connection::{ConnId, Side};
use crate::context::Ctx;

/// How long a connection without a keep-alive timeout lasts. Every connection is first checked for that timeout after this time.
const IDLE_MAX: Duration = Duration::from_secs(10);

const FIRST_NODE_PORT: u16 = 4420;
const FIRST_CONTROLLER_PORT: u16 = 8009;

/// The plan of the discovery controllers for the whole run, and the paths that the configuration adds.
#[derive(Debug, Clone)]
pub(crate) struct DiscoveryPlan {
    /// By controller.
    pub(crate) controllers: Vec<DiscoveryControllerPlan>,
    /// The host knows the other controllers only by referrals of the first.
    pub(crate) sends_referrals: bool,
    /// By controller and node: the controller lists the node at the start.
    pub(crate) lists: Vec<Vec<bool>>,
    /// By path: the configuration of the host has it.
    pub(crate) configured: Vec<bool>,
}

/// The features of a discovery controller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DiscoveryControllerPlan {
    /// It accepts persistent connections.
    pub(crate) accepts_persistent: bool,
    /// It sends events of changed logs.
    pub(crate) sends_events: bool,
    /// It keeps a persistent connection that it has accepted.
    pub(crate) keeps_connections: bool,
}

#[derive(Debug)]
struct Connection {
    controller: usize,
    queue: TargetQueue,
}

/// All discovery controllers of a run.
#[derive(Debug)]
pub(crate) struct DiscoveryControllers {
    pub(crate) plan: DiscoveryPlan,
    subsystem: Nqn,
    limits: QueueLimits,
    /// By controller and node: the controller lists the node.
    lists: Vec<Vec<bool>>,
    /// By controller.
    subsystems: Vec<Subsystem>,
    conns: BTreeMap<ConnId, Connection>,
}

impl DiscoveryControllers {
    pub(crate) fn new(plan: DiscoveryPlan, subsystem: Nqn, limits: QueueLimits) -> Self {
        let discovery = |(seed, _)| Subsystem::discovery("SIM".into(), limits, seed);
        let mut controllers = Self {
            subsystems: (0..).zip(&plan.lists).map(discovery).collect(),
            lists: plan.lists.clone(),
            conns: BTreeMap::new(),
            plan,
            subsystem,
            limits,
        };
        (0..controllers.len()).for_each(|controller| controllers.set_entries(controller));
        controllers
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    /// Whether any controller lists a node.
    pub(crate) fn is_listed(&self, node: usize) -> bool {
        self.lists.iter().any(|nodes| nodes[node])
    }

    /// Sets whether a controller lists a node.
    pub(crate) fn list(&mut self, ctx: &mut Ctx, controller: usize, node: usize, is_listed: bool) {
        self.lists[controller][node] = is_listed;
        self.set_entries(controller);
        let of_controller = |(id, conn): (&ConnId, &Connection)| (conn.controller == controller).then_some(*id);
        for id in self.conns.iter().filter_map(of_controller).collect::<Vec<_>>() {
            self.send(ctx, id);
        }
    }

    fn set_entries(&mut self, controller: usize) {
        let nodes = (0..).zip(&self.lists[controller]).filter(|(_, is_listed)| **is_listed);
        let paths = nodes.map(|(node, _)| entry(SubsystemType::NVM, &self.subsystem, path_address(node)));
        let others = if controller == 0 && self.plan.sends_referrals { 1..self.len() } else { 0..0 };
        let referrals = others.map(|other| entry(SubsystemType::REFERRAL, &Nqn::discovery(), address(other)));
        self.subsystems[controller].set_discovery_entries(paths.chain(referrals).collect());
    }

    pub(crate) fn owns(&self, id: ConnId) -> bool {
        self.conns.contains_key(&id)
    }

    /// A host has connected to a controller.
    pub(crate) fn on_accept(&mut self, ctx: &mut Ctx, id: ConnId, controller: usize) {
        ctx.clock.after(IDLE_MAX, Event::KeepAlive(id));
        self.conns.insert(id, Connection { controller, queue: TargetQueue::new(self.limits) });
    }

    /// There are bytes to read, or room to write.
    pub(crate) fn on_ready(&mut self, ctx: &mut Ctx, id: ConnId) {
        loop {
            let bytes = ctx.net.receive(&mut ctx.clock, id, Side::Target, 16 * 1024);
            if bytes.is_empty() {
                break;
            }
            let Some(conn) = self.conns.get_mut(&id) else { return };
            if conn.queue.receive(&bytes).is_err() {
                return self.close(ctx, id);
            }
            while let Some(command) = self.conns.get_mut(&id).and_then(|conn| conn.queue.poll_command()) {
                self.command(ctx, id, command);
            }
        }
        self.send(ctx, id);
    }

    fn command(&mut self, ctx: &mut Ctx, id: ConnId, command: TargetCommand) {
        let now = ctx.clock.now();
        let Some(Connection { controller, queue }) = self.conns.get_mut(&id) else { return };
        let (plan, subsystem) = (self.plan.controllers[*controller], &mut self.subsystems[*controller]);
        let Some(identity) = queue.identity() else {
            let is_persistent = FabricsCommand::parse(&command.sqe)
                .is_ok_and(|command| matches!(command, FabricsCommand::Connect(connect) if connect.kato_ms > 0));
            let refused = (is_persistent && !plan.accepts_persistent).then(|| ConnectField::Kato.invalid());
            match refused.map_or_else(|| subsystem.connect(now, 1, &command), Err) {
                Ok(identity) => queue.accept(command.token, identity, None),
                Err((status, result)) => queue.complete(command.token, status, result),
            }
            return;
        };
        if !plan.sends_events && AdminCommand::parse(&command.sqe) == Ok(AdminCommand::AsyncEventRequest) {
            return queue.complete(command.token, Status::INVALID_OPCODE, 0);
        }
        match subsystem.admin(now, identity.cntlid, command) {
            AdminReply::Done { token, status, result } => queue.complete(token, status, result),
            AdminReply::Data { token, data } => {
                queue.complete_with_data(token, data.len() as u32, |part, out| {
                    out.extend_from_slice(&data[part]);
                    Ok(())
                });
            }
            AdminReply::Shutdown { token } => queue.complete(token, Status::SUCCESS, 0),
            AdminReply::Deferred | AdminReply::ResetController { .. } => {}
        }
    }

    fn send(&mut self, ctx: &mut Ctx, id: ConnId) {
        let Some(Connection { controller, queue }) = self.conns.get_mut(&id) else { return };
        if let Some(identity) = queue.identity() {
            while let Some((token, status, result)) = self.subsystems[*controller].poll_event(identity.cntlid) {
                queue.complete(token, status, result);
            }
        }
        while !queue.pending().is_empty() {
            let sent = ctx.net.send(&mut ctx.clock, id, Side::Target, queue.pending());
            queue.sent(sent);
            if sent == 0 {
                break;
            }
        }
    }

    /// Sets the next check of a keep-alive timer.
    fn watch(&self, ctx: &mut Ctx, id: ConnId) {
        if let Some(deadline) = self.keep_alive_deadline(id) {
            ctx.clock.at(deadline, Event::KeepAlive(id));
        }
    }

    fn keep_alive_deadline(&self, id: ConnId) -> Option<Instant> {
        let Connection { controller, queue } = self.conns.get(&id)?;
        if !self.plan.controllers[*controller].keeps_connections {
            return None;
        }
        self.subsystems[*controller].next_timeout(queue.identity()?.cntlid)
    }

    /// [`Event::KeepAlive`] has come. A connection without a keep-alive timeout ends.
    pub(crate) fn on_keep_alive(&mut self, ctx: &mut Ctx, id: ConnId) {
        if self.keep_alive_deadline(id).is_none_or(|deadline| deadline <= ctx.clock.now()) {
            self.close(ctx, id);
        } else {
            self.watch(ctx, id);
        }
    }

    /// Closes a connection.
    pub(crate) fn close(&mut self, ctx: &mut Ctx, id: ConnId) {
        ctx.net.close(&mut ctx.clock, id, Side::Target);
        if let Some(Connection { controller, queue }) = self.conns.remove(&id)
            && let Some(identity) = queue.identity()
        {
            self.subsystems[controller].disconnected(identity);
        }
    }
}

/// The address of a node. A path has the number of its node.
pub(crate) fn path_address(node: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, FIRST_NODE_PORT + node as u16).into()
}

/// The node at this address.
pub(crate) fn node_at(address: SocketAddr) -> usize {
    usize::from(address.port() - FIRST_NODE_PORT)
}

/// Whether a log lists a node.
pub(crate) fn lists(log: &DiscoveryLog, node: usize) -> bool {
    log.entries.iter().any(|entry| entry.trsvcid == path_address(node).port().to_string())
}

/// The address of a discovery controller.
pub(crate) fn address(controller: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, FIRST_CONTROLLER_PORT + controller as u16).into()
}

/// The discovery controller at this address.
pub(crate) fn controller_at(address: SocketAddr) -> usize {
    usize::from(address.port() - FIRST_CONTROLLER_PORT)
}

fn entry(subsystem: SubsystemType, subnqn: &Nqn, address: SocketAddr) -> DiscoveryEntry {
    DiscoveryEntry {
        transport: TransportType::TCP,
        family: AddressFamily::IPV4,
        subsystem,
        treq: 0,
        port_id: 1,
        cntlid: CNTLID_ANY,
        admin_queue_entries: 32,
        eflags: 0,
        trsvcid: address.port().to_string(),
        subnqn: subnqn.clone(),
        traddr: address.ip().to_string(),
        security: SecurityType::NONE,
    }
}
