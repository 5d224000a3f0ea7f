//! MPTCP endpoints: the addresses from which the kernel opens subflows.

use super::super::Finding;
use super::super::host::{Endpoint, Host, Interface, Link};
use super::listed;

const CHECK: &str = "endpoints";

pub(super) fn judge(host: &Host, ipv4: bool, links: &[Link]) -> Vec<Finding> {
    let of_family = host.endpoints.iter().filter(|endpoint| endpoint.address.is_ipv4() == ipv4 && !endpoint.implicit);
    let mut findings: Vec<Finding> = of_family.filter_map(|endpoint| of_one(host, endpoint, links)).collect();
    if links.len() < 2 {
        return findings;
    }
    let lacking: Vec<&Link> = links.iter().filter(|link| !host.opens_subflows_from(link.address.addr())).collect();
    match &lacking[..] {
        [] => findings.push(Finding::ok(CHECK, format!("subflows from {}", listed(links)))),
        [link] => {
            let found = format!("{link} has no endpoint with `subflow`");
            let why = format!("only connections that begin at {} use {}", link.address.addr(), link.dev);
            findings.push(Finding::note(CHECK, found, why).corrected_by(added(host, link)));
        }
        several => findings.extend(several.iter().map(|link| {
            let found = format!("{link} has no endpoint with `subflow`");
            let why = format!("connections that begin elsewhere do not use {}", link.dev);
            Finding::problem(CHECK, found, why).corrected_by(added(host, link))
        })),
    }
    findings
}

/// The commands that add the endpoint of a link. An endpoint that is only announced gets the flag `subflow` too.
fn added(host: &Host, link: &Link) -> Vec<String> {
    let address = link.address.addr();
    match host.endpoints.iter().find(|endpoint| endpoint.address == address && !endpoint.implicit) {
        Some(announced) => added_anew(&Endpoint { subflow: true, ..announced.clone() }, &link.dev),
        None => vec![format!("ip mptcp endpoint add {address} dev {} subflow", link.dev)],
    }
}

/// The finding about an existing endpoint. `None` if nothing is wrong.
fn of_one(host: &Host, endpoint: &Endpoint, links: &[Link]) -> Option<Finding> {
    let &Endpoint { address, id, .. } = endpoint;
    let Some(owner) = host.interfaces.iter().find(|interface| interface.all_addresses.contains(&address)) else {
        let found = format!("endpoint {id} is {address}, which no interface has");
        let why = "no subflow can begin there";
        return Some(Finding::problem(CHECK, found, why).corrected_by([format!("ip mptcp endpoint delete id {id}")]));
    };
    let Interface { name, is_checked, up, .. } = owner;
    if !is_checked {
        return None;
    }
    if let Some(dev) = endpoint.dev.as_ref().filter(|dev| *dev != name) {
        let found = format!("endpoint {id}, {address}, is bound to {dev}, but the address is that of {name}");
        let why = format!("its subflow would leave by {dev}");
        return Some(Finding::problem(CHECK, found, why).corrected_by(added_anew(endpoint, name)));
    }
    if !up {
        let found = format!("endpoint {id}, {address}, is on {name}, which is down");
        return Some(Finding::note(CHECK, found, format!("no subflow can begin there while {name} is down")));
    }
    if endpoint.backup {
        let found = format!("endpoint {id}, {address} on {name}, is for backup");
        let why = format!("{name} is used only while no other subflow works, and adds nothing before that");
        let command = format!("ip mptcp endpoint change id {id} nobackup");
        return Some(Finding::note(CHECK, found, why).corrected_by([command]));
    }
    if !endpoint.opens_subflows() {
        let found = format!("endpoint {id}, {address} on {name}, is only announced (`signal`)");
        let why =
            "only hosts that accept connections use such an endpoint; a host that connects opens no subflow from it";
        return Some(Finding::note(CHECK, found, why));
    }
    if endpoint.dev.is_none() && links.len() > 1 {
        let found = format!("endpoint {id}, {address}, is not bound to its interface {name}");
        let why = "its subflow leaves by whatever interface the routes name first";
        return Some(Finding::note(CHECK, found, why).corrected_by(added_anew(endpoint, name)));
    }
    None
}

/// The commands that replace the endpoint of an address.
fn added_anew(endpoint: &Endpoint, dev: &str) -> Vec<String> {
    let Endpoint { address, id, subflow, signal, backup, fullmesh, .. } = endpoint;
    let flags = [("subflow", subflow), ("signal", signal), ("backup", backup), ("fullmesh", fullmesh)];
    let flags: String = flags.iter().filter(|(_, has)| **has).flat_map(|(flag, _)| [" ", flag]).collect();
    vec![format!("ip mptcp endpoint delete id {id}"), format!("ip mptcp endpoint add {address} dev {dev}{flags}")]
}
