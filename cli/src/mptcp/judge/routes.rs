//! Routes: the interface that packets from each link's address use.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::super::Finding;
use super::super::host::{By, Endpoint, Host, Link, Route};

const CHECK: &str = "routes";

/// How a link could reach a target that the routes do not send over it.
enum Reach<'a> {
    /// The target is in the network of the link.
    OnLink,
    /// The interface has a route, which packets from the address do not use.
    Route(&'a Route),
    /// Not at all, but another target address is in the network of the link.
    Other(IpAddr),
    Unknown,
}

/// The findings about routes, for two links or more. None without targets.
pub(super) fn judge(host: &Host, links: &[Link]) -> Vec<Finding> {
    let mut taken: BTreeSet<String> = host.rules.iter().map(|rule| rule.table.clone()).collect();
    taken.extend(host.routes.iter().filter_map(|route| route.table.clone()));
    let mut findings = Vec::new();
    for link in links {
        let astray = astray(host, link);
        let (mut to_mend, mut commands) = (Vec::new(), Vec::new());
        for (target, by) in &astray {
            match reach(host, link, *target) {
                Reach::OnLink => to_mend.push((*target, *by, None)),
                Reach::Route(route) => to_mend.push((*target, *by, Some(route))),
                Reach::Other(other) => findings.push(announced(link, *target, other)),
                Reach::Unknown => findings.push(unknown(link, *target, by)),
            }
        }
        if let [(_, by, _), ..] = to_mend[..] {
            let table = table(host, link, &mut taken);
            commands.extend(mended(host, link, &table, to_mend.iter().filter_map(|(.., route)| *route)));
            let targets: Vec<_> = to_mend.iter().map(|(target, ..)| target.to_string()).collect();
            let found = format!("packets from {link} to {} leave by {}", targets.join(", "), named(by));
            let finding = if bound(host, link) {
                let why = format!(
                    "its endpoint binds subflows to {}, but a connection that begins at {} does not use it unless it is \
                     bound to it too (host-iface)",
                    link.dev,
                    link.address.addr()
                );
                Finding::note(CHECK, found, why)
            } else {
                let why = format!("links that leave by one interface share it, and {} is not used", link.dev);
                Finding::problem(CHECK, found, why)
            };
            findings.push(finding.corrected_by(commands));
        }
    }
    let links_ways = || host.ways.iter().filter(|way| links.iter().any(|link| link.address.addr() == way.from));
    let mut here: Vec<_> = links_ways().filter(|way| way.by == By::Local).map(|way| way.target).collect();
    here.dedup();
    findings.extend(here.iter().map(|target| {
        Finding::note(CHECK, format!("{target} is an address of this host"), "connections to it use no link")
    }));
    if findings.is_empty() && links_ways().next().is_some() {
        findings.push(Finding::ok(CHECK, "packets from each link's address leave by that link"));
    }
    findings
}

/// Whether packets from the address of every link use that link. False without targets.
pub(super) fn all_good(host: &Host, links: &[Link]) -> bool {
    !host.ways.is_empty() && links.iter().all(|link| astray(host, link).is_empty())
}

/// Whether an endpoint binds subflows to the link, whatever the routes say.
fn bound(host: &Host, link: &Link) -> bool {
    let of_link = |endpoint: &&Endpoint| endpoint.address == link.address.addr() && endpoint.opens_subflows();
    host.endpoints.iter().filter(of_link).any(|endpoint| endpoint.dev.as_ref() == Some(&link.dev))
}

/// Whether the link is used only if targets announce an address.
pub(super) fn needs_announcement(host: &Host, link: &Link) -> bool {
    astray(host, link).iter().any(|(target, _)| matches!(reach(host, link, *target), Reach::Other(_)))
}

/// The targets for which packets from the link's address do not use the link.
fn astray<'a>(host: &'a Host, link: &Link) -> Vec<(IpAddr, &'a By)> {
    let from_link = host.ways.iter().filter(|way| way.from == link.address.addr());
    let elsewhere = from_link.filter(|way| match &way.by {
        By::Dev(dev) => *dev != link.dev,
        By::Nowhere => true,
        By::Local => false,
    });
    elsewhere.map(|way| (way.target, &way.by)).collect()
}

fn reach<'a>(host: &'a Host, link: &Link, target: IpAddr) -> Reach<'a> {
    if link.address.contains(&target) {
        return Reach::OnLink;
    }
    let on_link = |route: &&Route| route.table.is_none() && route.dev == link.dev && route.to.contains(&target);
    if let Some(route) = host.routes.iter().filter(on_link).max_by_key(|route| route.to.prefix_len()) {
        return Reach::Route(route);
    }
    let other = host.targets.iter().find(|other| link.address.contains(*other));
    other.map_or(Reach::Unknown, |other| Reach::Other(*other))
}

fn announced(link: &Link, target: IpAddr, other: IpAddr) -> Finding {
    let found = format!("{link} does not lead to {target}, but to {other}");
    let why = format!(
        "a connection to {target} uses {} only if the target announces {other}: there, `ip mptcp endpoint add {other} dev \
         DEV signal`",
        link.dev
    );
    Finding::note(CHECK, found, why)
}

fn unknown(link: &Link, target: IpAddr, by: &By) -> Finding {
    let found = format!("packets from {link} to {target} leave by {}", named(by));
    let why = format!(
        "{} is not used: {target} is not in {}, and no gateway is known there; add a route by {}, or give the target an \
         address in that network and let it announce it (`signal`)",
        link.dev,
        link.address.trunc(),
        link.dev
    );
    Finding::problem(CHECK, found, why)
}

fn named(by: &By) -> String {
    match by {
        By::Dev(dev) => dev.clone(),
        By::Local => "lo".into(),
        By::Nowhere => "no interface: there is no route".into(),
    }
}

/// The routing table of an existing rule for the link's address, or an unused one.
fn table(host: &Host, link: &Link, taken: &mut BTreeSet<String>) -> String {
    if let Some(rule) = host.rules.iter().find(|rule| rule.from == link.address.addr()) {
        return rule.table.clone();
    }
    let mut numbers = (100 + link.index..).map(|number| number.to_string());
    let free = numbers.find(|number| !taken.contains(number)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

fn mended<'a>(host: &Host, link: &Link, table: &str, routes: impl Iterator<Item = &'a Route>) -> Vec<String> {
    let Link { dev, address, .. } = link;
    let ip = if address.addr().is_ipv4() { "ip" } else { "ip -6" };
    let own = format!("{ip} route replace {} dev {dev} src {} table {table}", address.trunc(), address.addr());
    let mut commands = vec![own];
    for Route { to, gateway, .. } in routes {
        let via = gateway.map_or(String::new(), |gateway| format!(" via {gateway}"));
        let command = format!("{ip} route replace {}{via} dev {dev} table {table}", destination(*to));
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    if host.rules.iter().all(|rule| rule.from != address.addr()) {
        commands.push(format!("{ip} rule add from {} table {table}", address.addr()));
    }
    commands
}

fn destination(to: IpNet) -> String {
    if to.prefix_len() == 0 { "default".into() } else { to.to_string() }
}
