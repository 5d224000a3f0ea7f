//! Reverse path filter and ARP, which decide on packets that arrive at another interface than expected: IPv4 only.

use std::collections::BTreeMap;

use super::super::Finding;
use super::super::host::{Host, Link};
use super::{listed, routes};

/// The findings about the reverse path filter and ARP, for two links or more.
pub(super) fn judge(host: &Host, links: &[Link]) -> Vec<Finding> {
    [reverse_path_filter(host, links), address_resolution(host, links)].into_iter().flatten().collect()
}

/// The value of a sysctl in force for an interface: the larger of its own and that of `all`.
fn in_force(sysctl: &BTreeMap<String, u32>, dev: &str) -> u32 {
    [dev, "all"].into_iter().filter_map(|name| sysctl.get(name)).copied().max().unwrap_or(0)
}

fn reverse_path_filter(host: &Host, links: &[Link]) -> Option<Finding> {
    const CHECK: &str = "reverse-path-filter";
    let strict: Vec<&Link> = links.iter().filter(|link| in_force(&host.sysctls.rp_filter, &link.dev) == 1).collect();
    if strict.is_empty() {
        return None;
    }
    let devs: Vec<_> = strict.iter().map(|link| &*link.dev).collect();
    let found = format!("the reverse path filter is strict on {}", devs.join(", "));
    if routes::all_good(host, links) {
        return Some(Finding::ok(CHECK, found + ", which the routes fit"));
    }
    let why = "it drops what arrives at one interface if the route back leads by another";
    let commands = devs.iter().map(|dev| sysctl(&["net", "ipv4", "conf", dev, "rp_filter"], "2"));
    let finding = if host.ways.is_empty() {
        Finding::note(CHECK, found, format!("{why}; name targets, and routes are looked at"))
    } else {
        Finding::problem(CHECK, found, why)
    };
    Some(finding.corrected_by(commands))
}

/// By default every interface answers ARP for the addresses of all interfaces.
fn address_resolution(host: &Host, links: &[Link]) -> Option<Finding> {
    let shares_network = |link: &&Link| {
        let network = link.address.trunc();
        links.iter().any(|other| other.dev != link.dev && other.address.trunc() == network)
    };
    let answers_for_all = |link: &&Link| in_force(&host.sysctls.arp_ignore, &link.dev) == 0;
    let together: Vec<Link> = links.iter().filter(shares_network).filter(answers_for_all).cloned().collect();
    if together.is_empty() {
        return None;
    }
    let found = format!("{} are in one network, and each answers ARP for the others", listed(&together));
    let why = "what targets send to all of these addresses may arrive by one interface";
    let commands = ["sysctl -w net.ipv4.conf.all.arp_ignore=1", "sysctl -w net.ipv4.conf.all.arp_announce=2"];
    Some(Finding::note("address-resolution", found, why).corrected_by(commands.map(String::from)))
}

/// The command that sets a sysctl. Slashes separate the names if an interface has a dot in its name.
fn sysctl(names: &[&str], value: &str) -> String {
    let parted_by = if names.iter().any(|name| name.contains('.')) { "/" } else { "." };
    format!("sysctl -w {}={value}", names.join(parted_by))
}
