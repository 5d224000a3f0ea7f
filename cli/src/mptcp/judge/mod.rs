//! Decides: a host keeps MPTCP from using all cards.
//!
//! Makes findings from the state of a host, without reading the host itself.

mod endpoints;
mod limits;
mod neighbours;
mod routes;

use super::Finding;
use super::host::{Host, Link, Sysctls, Unsupported};

/// The kernel's own limit of subflows, announced addresses and endpoints (`MPTCP_PM_ADDR_MAX`).
const MOST: u32 = 8;

/// A window that is enough for 10 Gbit/s over 12 ms, or 40 Gbit/s over 3 ms.
const WINDOW_BYTES: u64 = 16 << 20;

/// All findings, in the order in which to correct them.
pub(crate) fn judge(host: &Host) -> Vec<Finding> {
    if let Some(why) = &host.unsupported {
        return vec![unsupported(why)];
    }
    let mut findings = vec![Finding::ok("kernel", "MPTCP sockets can be made"), path_manager(&host.sysctls)];
    for ipv4 in host.families() {
        let links = host.links(ipv4);
        findings.push(addresses(host, ipv4, &links));
        findings.extend(endpoints::judge(host, ipv4, &links));
        if links.len() > 1 {
            findings.push(limits::judge(host, ipv4, &links));
            findings.extend(routes::judge(host, &links));
            if ipv4 {
                findings.extend(neighbours::judge(host, &links));
            }
        }
    }
    findings.extend(checksum(&host.sysctls));
    findings.extend(windows(&host.sysctls));
    findings
}

fn unsupported(why: &Unsupported) -> Finding {
    match why {
        Unsupported::SwitchedOff => {
            let finding =
                Finding::problem("kernel", "MPTCP is switched off", "paths with mptcp:// cannot be connected");
            finding.corrected_by(["sysctl -w net.mptcp.enabled=1".into()])
        }
        Unsupported::Otherwise { reason } => {
            Finding::problem("kernel", reason, "paths with mptcp:// cannot be connected")
        }
    }
}

fn path_manager(sysctls: &Sysctls) -> Finding {
    let (manager, command) = match (sysctls.path_manager.as_deref(), sysctls.pm_type) {
        (Some("kernel"), _) | (None, None | Some(0)) => {
            return Finding::ok("path-manager", "the kernel opens subflows");
        }
        (Some(other), _) => (other, "sysctl -w net.mptcp.path_manager=kernel"),
        (None, Some(_)) => ("userspace", "sysctl -w net.mptcp.pm_type=0"),
    };
    let why = "endpoints and limits count for nothing; only a program such as mptcpd opens subflows";
    Finding::problem("path-manager", format!("the path manager is {manager}"), why).corrected_by([command.into()])
}

fn addresses(host: &Host, ipv4: bool, links: &[Link]) -> Finding {
    let family = if ipv4 { "IPv4" } else { "IPv6" };
    if links.len() > 1 {
        return Finding::ok("addresses", format!("{} {family} links: {}", links.len(), listed(links)));
    }
    let found = match links {
        [] => format!("no interface has an {family} address that can be used"),
        links => format!("only one interface has an {family} address that can be used: {}", listed(links)),
    };
    let down = host.interfaces.iter().filter(|of| of.is_checked && !of.up && !of.loopback);
    let down: Vec<_> = down
        .filter_map(|of| Some((of.addresses.iter().find(|net| net.addr().is_ipv4() == ipv4)?, of)))
        .map(|(net, of)| format!("; {} ({}) is down", net.addr(), of.name))
        .collect();
    let why = "MPTCP uses several links by opening a subflow from an address of each; with fewer than two such links it does no more than TCP";
    Finding::problem("addresses", found + &down.concat(), why)
}

fn checksum(sysctls: &Sysctls) -> Option<Finding> {
    let enabled = sysctls.checksum_enabled.is_some_and(|enabled| enabled != 0);
    let why = "it costs CPU for every byte; TCP has checksums of its own, and NVMe/TCP has digests";
    enabled.then(|| {
        let finding = Finding::note("checksum", "MPTCP's checksum is on", why);
        finding.corrected_by(["sysctl -w net.mptcp.checksum_enabled=0".into()])
    })
}

fn windows(sysctls: &Sysctls) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, sizes) in [("tcp_rmem", sysctls.tcp_rmem), ("tcp_wmem", sysctls.tcp_wmem)] {
        let Some([smallest, first, largest]) = sizes.filter(|[.., largest]| *largest < WINDOW_BYTES) else { continue };
        let found = format!("net.ipv4.{name} ends at {largest} bytes, less than {WINDOW_BYTES}");
        let why = "one window serves all subflows of a connection: it should hold the summed rates times twice the longest \
                   round trip";
        let command = format!("sysctl -w net.ipv4.{name}=\"{smallest} {first} {WINDOW_BYTES}\"");
        findings.push(Finding::note("windows", found, why).corrected_by([command]));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("windows", format!("TCP's windows may grow to {WINDOW_BYTES} bytes and more")));
    }
    findings
}

fn listed(links: &[Link]) -> String {
    links.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
