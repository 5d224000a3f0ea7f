//! MPTCP limits: the most subflows of a connection after its first one.

use super::super::host::{Endpoint, Host, Limits, Link};
use super::super::{Finding, Level};
use super::{MOST, routes};

/// The finding about the limits, for two links or more.
pub(super) fn judge(host: &Host, ipv4: bool, links: &[Link]) -> Finding {
    let Limits { subflows, add_addr_accepted } = host.limits;
    let has = |address| host.interfaces.iter().any(|interface| interface.all_addresses.contains(&address));
    let usable = |of: &&Endpoint| of.address.is_ipv4() == ipv4 && of.opens_subflows() && has(of.address);
    let endpoints = host.endpoints.iter().filter(usable).count();
    // The first subflow of a connection uses one of the links.
    let other_links = MOST.min(links.len() as u32 - 1);
    let own = MOST.min(links.len().max(endpoints) as u32 - 1);
    // Targets are taken to have as many links as this host.
    let accepted = add_addr_accepted.max(other_links);
    let wanted = subflows.max(MOST.min(own + accepted));

    let mut whys = Vec::new();
    let mut level = Level::Ok;
    if subflows < other_links {
        level = Level::Problem;
        whys.push(format!("{} links need {other_links} subflows in addition to the first", links.len()));
    } else if subflows < wanted {
        level = Level::Note;
        whys.push(format!(
            "endpoints here and addresses that targets announce could make {wanted} subflows in addition to the first"
        ));
    }
    if add_addr_accepted == 0 {
        let needed = links.iter().any(|link| routes::needs_announcement(host, link));
        level = if needed || level == Level::Problem { Level::Problem } else { Level::Note };
        whys.push("addresses that targets announce are ignored".into());
    }
    let found = format!("subflows {subflows}, add_addr_accepted {add_addr_accepted}");
    let finding = Finding { level, ..Finding::ok("limits", found) };
    if whys.is_empty() {
        return finding;
    }
    let command = format!("ip mptcp limits set subflows {wanted} add_addr_accepted {accepted}");
    Finding { why: Some(whys.join("; ")), ..finding }.corrected_by([command])
}
