//! Discovery controllers that list the nodes of a run. Sessions with them do not go over the simulated network.

use std::net::{Ipv4Addr, SocketAddr};

use nvme_tcp::host::DiscoveryLog;
use nvme_tcp::wire::{AddressFamily, CNTLID_ANY, DiscoveryEntry, Nqn, SecurityType, SubsystemType, TransportType};

const FIRST_NODE_PORT: u16 = 4420;
const FIRST_CONTROLLER_PORT: u16 = 8009;

/// Discovery controllers as they are for the whole run, and the paths that the host has besides those they list.
#[derive(Debug, Clone)]
pub(crate) struct ControllersPlan {
    /// By controller: whether it keeps connections and tells of changes.
    pub(crate) keeps: Vec<bool>,
    /// The host knows the others only from the first.
    pub(crate) refers: bool,
    /// By controller, and node: what it lists at first.
    pub(crate) lists: Vec<Vec<bool>>,
    /// By path: the host is configured with it.
    pub(crate) configured: Vec<bool>,
    /// How often news take long.
    pub(crate) late_percent: u64,
}

/// Why a controller does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Refuses,
    IsSilent,
}

#[derive(Debug)]
pub(crate) struct Controllers {
    pub(crate) plan: ControllersPlan,
    subsystem: Nqn,
    /// By controller, and node.
    lists: Vec<Vec<bool>>,
    /// By controller.
    lost: Vec<Option<Lost>>,
    generation: u64,
}

impl Controllers {
    pub(crate) fn new(plan: ControllersPlan, subsystem: Nqn) -> Self {
        let (lists, lost) = (plan.lists.clone(), vec![None; plan.lists.len()]);
        Self { plan, subsystem, lists, lost, generation: 1 }
    }

    pub(crate) fn len(&self) -> usize {
        self.lists.len()
    }

    pub(crate) fn lost(&self, controller: usize) -> Option<Lost> {
        self.lost[controller]
    }

    pub(crate) fn set_lost(&mut self, controller: usize, lost: Option<Lost>) {
        self.lost[controller] = lost;
    }

    /// A controller lists a node, or does not.
    pub(crate) fn list(&mut self, controller: usize, node: usize, is_listed: bool) {
        self.generation += 1;
        self.lists[controller][node] = is_listed;
    }

    /// Whether any controller lists a node.
    pub(crate) fn is_listed(&self, node: usize) -> bool {
        self.lists.iter().any(|nodes| nodes[node])
    }

    /// What a controller answers.
    pub(crate) fn log(&self, controller: usize) -> DiscoveryLog {
        let nodes = (0..).zip(&self.lists[controller]).filter(|(_, is_listed)| **is_listed);
        let paths = nodes.map(|(node, _)| entry(SubsystemType::NVM, &self.subsystem, node_address(node)));
        let others = if controller == 0 && self.plan.refers { 1..self.len() } else { 0..0 };
        let referrals = others.map(|other| entry(SubsystemType::REFERRAL, &Nqn::discovery(), address(other)));
        DiscoveryLog { generation: self.generation, entries: paths.chain(referrals).collect(), unreadable: Vec::new() }
    }
}

fn node_address(node: usize) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, FIRST_NODE_PORT + node as u16).into()
}

/// The node of a path that is at this address.
pub(crate) fn node_at(address: SocketAddr) -> usize {
    usize::from(address.port() - FIRST_NODE_PORT)
}

/// Where a path leads.
pub(crate) fn path_address(path: usize) -> SocketAddr {
    node_address(path)
}

/// Where a discovery controller is.
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
