//! Reads the state of this host from `/proc/sys` and `ip`.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;

use super::host::{Host, Interface, Link, Sysctls, Unsupported, Way};
use super::ip::{self, IpError};

/// Why the state of the host cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GatherError {
    #[error(transparent)]
    Ip(#[from] IpError),
    #[error("{target}: {source}")]
    Target { target: String, source: io::Error },
    #[error("there is no interface {dev}; `ip link` lists them")]
    NoInterface { dev: String },
}

/// Reads the state of this host and its routes to `targets`, which are names or addresses. Limited to the interfaces `devs` unless
/// that is empty.
pub(crate) fn gather(targets: &[String], devs: &[String]) -> Result<Host, GatherError> {
    let targets = resolve(targets)?;
    let unsupported = mptcp::supported().err();
    if let Some(why) = unsupported {
        let unsupported = match why {
            mptcp::Unsupported::SwitchedOff => Unsupported::SwitchedOff,
            why => Unsupported::Otherwise { reason: why.to_string() },
        };
        return Ok(Host { unsupported: Some(unsupported), ..Host::default() });
    }
    let interfaces = only(ip::interfaces()?, devs)?;
    let mut host = Host {
        unsupported: None,
        sysctls: sysctls(&interfaces),
        interfaces,
        endpoints: ip::endpoints()?,
        limits: ip::limits()?,
        rules: ip::rules()?,
        routes: ip::routes()?,
        targets,
        ways: Vec::new(),
    };
    for target in host.targets.clone() {
        for Link { address, .. } in host.links(target.is_ipv4()) {
            let from = address.addr();
            host.ways.push(Way { target, from, by: ip::way(target, from)? });
        }
    }
    Ok(host)
}

fn resolve(targets: &[String]) -> Result<Vec<IpAddr>, GatherError> {
    let mut addresses = Vec::new();
    for target in targets {
        let found = (&**target, 0).to_socket_addrs();
        let found = found.map_err(|source| GatherError::Target { target: target.clone(), source })?;
        addresses.extend(found.map(|address| address.ip()));
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}

/// Marks the interfaces asked for. The others stay in the list, so that their addresses do not count as missing.
pub(super) fn only(interfaces: Vec<Interface>, devs: &[String]) -> Result<Vec<Interface>, GatherError> {
    if let Some(dev) = devs.iter().find(|dev| interfaces.iter().all(|interface| interface.name != **dev)) {
        return Err(GatherError::NoInterface { dev: dev.clone() });
    }
    let is_checked = |interface: &Interface| devs.is_empty() || devs.contains(&interface.name);
    Ok(interfaces.into_iter().map(|interface| Interface { is_checked: is_checked(&interface), ..interface }).collect())
}

fn sysctls(interfaces: &[Interface]) -> Sysctls {
    let names = || interfaces.iter().map(|interface| &*interface.name).chain(["all"]);
    let of_each = |sysctl: &str| -> BTreeMap<String, u32> {
        let one = |name: &str| Some((name.to_owned(), number(&format!("net/ipv4/conf/{name}/{sysctl}"))?));
        names().filter_map(one).collect()
    };
    Sysctls {
        path_manager: text("net/mptcp/path_manager"),
        pm_type: number("net/mptcp/pm_type"),
        checksum_enabled: number("net/mptcp/checksum_enabled"),
        rp_filter: of_each("rp_filter"),
        arp_ignore: of_each("arp_ignore"),
        tcp_rmem: sizes("net/ipv4/tcp_rmem"),
        tcp_wmem: sizes("net/ipv4/tcp_wmem"),
    }
}

/// A sysctl. `None` if this kernel does not have it.
fn text(name: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(name)).ok().map(|text| text.trim().to_owned())
}

fn number(name: &str) -> Option<u32> {
    text(name)?.parse().ok()
}

fn sizes(name: &str) -> Option<[u64; 3]> {
    let sizes: Vec<u64> = text(name)?.split_whitespace().map_while(|size| size.parse().ok()).collect();
    sizes.try_into().ok()
}
