//! The discovery service: a separate subsystem on a separate listener.

use std::net::SocketAddr;
use std::sync::Arc;

use mpath_config::address::Transport;
use nvme_tcp::wire::{AddressFamily, CNTLID_ANY, DiscoveryEntry, Nqn, SecurityType, SubsystemType, TransportType};
use nvme_tcp_target::{QueueLimits, Subsystem};

use super::listener::Listener;
use super::shared::{PortSecurity, Shared};

/// The most connections of the discovery service.
const MAX_CONNECTIONS: usize = 256;
/// ASQSZ: the most entries of an admin queue.
const ADMIN_ENTRIES: u16 = 32;

/// The discovery service of a target.
pub(super) struct Discovery {
    pub(super) shared: Arc<Shared>,
    pub(super) listener: Listener,
    nqn: Nqn,
    referrals: Vec<SocketAddr>,
}

impl Discovery {
    /// The service for the subsystem `nqn`. It does not listen, and its log is empty.
    pub(super) fn new(
        addr: SocketAddr,
        nqn: Nqn,
        referrals: Vec<SocketAddr>,
        seed: u64,
        security: PortSecurity,
    ) -> Self {
        let serial = crate::identity::serial_number(nqn.as_str());
        let subsystem = Subsystem::discovery(serial, QueueLimits::default(), seed);
        let shared = Arc::new(Shared::new(subsystem, Vec::new(), MAX_CONNECTIONS));
        // The discovery subsystem has this one port.
        Self { shared, listener: Listener::new((addr, Transport::Tcp), addr, 1, 0, security), nqn, referrals }
    }

    /// Sets the log: these ports of the subsystem with their IDs, the service itself, and the referrals.
    pub(super) fn update_log<'a>(&self, ports: impl Iterator<Item = &'a Listener>, own_port: u16) {
        let subsystem = ports.map(|port| {
            let entry = entry(SubsystemType::NVM, self.nqn.clone(), port.port.id, port.advertised);
            with_security(entry, port)
        });
        let own = (!self.listener.advertised.ip().is_unspecified()).then(|| {
            let kind = SubsystemType::CURRENT_DISCOVERY;
            with_security(entry(kind, Nqn::discovery(), own_port, self.listener.advertised), &self.listener)
        });
        // The target does not know whether another service requires TLS. So TREQ does not specify it.
        let referrals = self.referrals.iter().map(|&addr| DiscoveryEntry {
            treq: DiscoveryEntry::TREQ_FLOW_CONTROL_OFF,
            ..entry(SubsystemType::REFERRAL, Nqn::discovery(), 0, addr)
        });
        self.shared.control().set_discovery_entries(subsystem.chain(own).chain(referrals).collect());
    }

    /// GENCTR.
    pub(super) fn generation(&self) -> u64 {
        self.shared.control().discovery_generation().unwrap_or(0)
    }
}

/// The record of a port, which requires TLS if the port accepts nothing else. A port that generates keys takes connections in clear
/// text too, as nvmet does.
fn with_security(entry: DiscoveryEntry, port: &Listener) -> DiscoveryEntry {
    let treq = match &port.port.security {
        PortSecurity::ClearText => return entry,
        PortSecurity::Tls(_) => DiscoveryEntry::TREQ_REQUIRED | DiscoveryEntry::TREQ_FLOW_CONTROL_OFF,
        PortSecurity::Concatenation(_) => entry.treq,
    };
    DiscoveryEntry { treq, security: SecurityType::TLS_1_3, ..entry }
}

fn entry(subsystem: SubsystemType, subnqn: Nqn, port_id: u16, addr: SocketAddr) -> DiscoveryEntry {
    let persistent = subsystem == SubsystemType::CURRENT_DISCOVERY;
    DiscoveryEntry {
        transport: TransportType::TCP,
        family: if addr.is_ipv4() { AddressFamily::IPV4 } else { AddressFamily::IPV6 },
        subsystem,
        treq: DiscoveryEntry::TREQ_NOT_REQUIRED | DiscoveryEntry::TREQ_FLOW_CONTROL_OFF,
        port_id,
        cntlid: CNTLID_ANY,
        admin_queue_entries: ADMIN_ENTRIES,
        eflags: if persistent { DiscoveryEntry::EFLAGS_PERSISTENT } else { 0 },
        trsvcid: addr.port().to_string(),
        subnqn,
        traddr: addr.ip().to_string(),
        security: SecurityType::NONE,
    }
}
