//! The state of a host that the check uses.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use serde::Deserialize;

/// The state of a host that matters for MPTCP connections to `targets`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Host {
    /// Why MPTCP sockets cannot be created. `None` if they can.
    pub(crate) unsupported: Option<Unsupported>,
    pub(crate) sysctls: Sysctls,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) endpoints: Vec<Endpoint>,
    pub(crate) limits: Limits,
    pub(crate) rules: Vec<Rule>,
    pub(crate) routes: Vec<Route>,
    pub(crate) targets: Vec<IpAddr>,
    /// The interface of packets from each link's address to each target.
    pub(crate) ways: Vec<Way>,
}

/// Why MPTCP sockets cannot be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsupported {
    SwitchedOff,
    Otherwise { reason: String },
}

/// Kernel settings. `None` if the kernel does not have a sysctl.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sysctls {
    /// `net.mptcp.path_manager`, since Linux 6.15.
    pub(crate) path_manager: Option<String>,
    /// `net.mptcp.pm_type`, since Linux 5.19.
    pub(crate) pm_type: Option<u32>,
    pub(crate) checksum_enabled: Option<u32>,
    /// `net.ipv4.conf.NAME.rp_filter`, including `all`.
    pub(crate) rp_filter: BTreeMap<String, u32>,
    /// `net.ipv4.conf.NAME.arp_ignore`, including `all`.
    pub(crate) arp_ignore: BTreeMap<String, u32>,
    /// Smallest, first and largest size in bytes.
    pub(crate) tcp_rmem: Option<[u64; 3]>,
    pub(crate) tcp_wmem: Option<[u64; 3]>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// Whether the check covers the interface.
    pub(crate) is_checked: bool,
    pub(crate) loopback: bool,
    /// Whether the interface is switched on and has a carrier.
    pub(crate) up: bool,
    /// Source addresses for connections: global, and neither tentative, deprecated nor temporary.
    pub(crate) addresses: Vec<IpNet>,
    /// All addresses.
    pub(crate) all_addresses: Vec<IpAddr>,
    /// Addresses whose duplicate address detection has not finished.
    pub(crate) tentative: Vec<IpAddr>,
}

/// An endpoint, as in `ip mptcp endpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "any of the kernel's flags may be there")]
pub(crate) struct Endpoint {
    pub(crate) address: IpAddr,
    pub(crate) id: u8,
    pub(crate) dev: Option<String>,
    /// The port announced with the address. The kernel listens on it.
    pub(crate) port: Option<u16>,
    #[serde(default)]
    pub(crate) subflow: bool,
    #[serde(default)]
    pub(crate) signal: bool,
    #[serde(default)]
    pub(crate) backup: bool,
    #[serde(default)]
    pub(crate) fullmesh: bool,
    /// Only for subflows to announced addresses, since Linux 6.18.
    #[serde(default)]
    pub(crate) laminar: bool,
    /// Created by the kernel. Opens no new subflows.
    #[serde(default)]
    pub(crate) implicit: bool,
}

impl Endpoint {
    /// Whether connections open subflows from this endpoint.
    pub(crate) fn opens_subflows(&self) -> bool {
        self.subflow || self.fullmesh
    }

    /// The flags of the endpoint.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static str> {
        let Self { signal, subflow, backup, fullmesh, laminar, .. } = *self;
        let all = [
            (signal, "signal"),
            (subflow, "subflow"),
            (laminar, "laminar"),
            (backup, "backup"),
            (fullmesh, "fullmesh"),
        ];
        all.into_iter().filter_map(|(set, flag)| set.then_some(flag))
    }
}

/// The arguments that add the endpoint, without the id.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if let Some(dev) = &self.dev {
            write!(f, " dev {dev}")?;
        }
        if let Some(port) = self.port {
            write!(f, " port {port}")?;
        }
        self.flags().try_for_each(|flag| write!(f, " {flag}"))
    }
}

/// The limits, as in `ip mptcp limits`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) subflows: u32,
    pub(crate) add_addr_accepted: u32,
}

/// A rule for packets from one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) from: IpAddr,
    pub(crate) table: String,
}

/// A route to another host or network. Each next hop of a multipath route is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Route {
    /// The routing table. `None` for the main table.
    pub(crate) table: Option<String>,
    pub(crate) to: IpNet,
    pub(crate) gateway: Option<IpAddr>,
    pub(crate) dev: String,
}

/// The way of packets from an address to a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) target: IpAddr,
    pub(crate) from: IpAddr,
    pub(crate) by: By,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    Dev(String),
    /// The target is an address of this host.
    Local,
    /// There is no route.
    Nowhere,
}

/// An interface that connections of one address family can use, with their source address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) dev: String,
    pub(crate) index: u32,
    pub(crate) address: IpNet,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.address.addr(), self.dev)
    }
}

impl Host {
    /// The links of a family. If a link has several addresses, the one with an endpoint counts, or else the first.
    pub(crate) fn links(&self, ipv4: bool) -> Vec<Link> {
        let usable = self.interfaces.iter().filter(|of| of.is_checked && of.up && !of.loopback);
        let link = |interface: &Interface| {
            let of_family = || interface.addresses.iter().filter(|net| net.addr().is_ipv4() == ipv4);
            let with_endpoint = of_family().find(|net| self.opens_subflows_from(net.addr()));
            let &address = with_endpoint.or_else(|| of_family().next())?;
            Some(Link { dev: interface.name.clone(), index: interface.index, address })
        };
        usable.filter_map(link).collect()
    }

    /// The families to check: those of the targets. Without targets: the family with more links.
    pub(crate) fn families(&self) -> Vec<bool> {
        if self.targets.is_empty() {
            return vec![self.links(true).len() >= self.links(false).len()];
        }
        [true, false].into_iter().filter(|ipv4| self.targets.iter().any(|target| target.is_ipv4() == *ipv4)).collect()
    }

    /// Whether connections open subflows from `address`.
    pub(crate) fn opens_subflows_from(&self, address: IpAddr) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.address == address && endpoint.opens_subflows())
    }
}
