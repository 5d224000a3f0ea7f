//! Runs `ip` of iproute2 and reads its JSON. Fields may be missing, because versions differ.

use std::io;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::host::{By, Endpoint, Interface, Limits, Route, Rule};

/// Why `ip` gives no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IpError {
    #[error("there is no `ip`; install iproute2")]
    Missing,
    #[error("cannot run `ip`: {0}")]
    Run(#[source] io::Error),
    #[error("`ip {arguments}`: {message}")]
    Failed { arguments: String, message: String },
    #[error("cannot read the output of `ip {arguments}`: {reason}")]
    Unreadable { arguments: String, reason: String },
}

/// The output of `ip`.
fn ip(arguments: &str) -> Result<String, IpError> {
    let run = Command::new("ip").args(arguments.split(' ')).stdin(Stdio::null()).output();
    let output = run.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => IpError::Missing,
        _ => IpError::Run(error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(IpError::Failed { arguments: arguments.into(), message })
}

fn json<T: DeserializeOwned>(arguments: &str) -> Result<Vec<T>, IpError> {
    list(&ip(arguments)?)
        .map_err(|error| IpError::Unreadable { arguments: arguments.into(), reason: error.to_string() })
}

/// Some versions print nothing instead of an empty list.
fn list<T: DeserializeOwned>(text: &str) -> serde_json::Result<Vec<T>> {
    if text.trim().is_empty() { Ok(Vec::new()) } else { serde_json::from_str(text) }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawInterface {
    ifindex: u32,
    ifname: String,
    flags: Vec<String>,
    addr_info: Vec<RawAddress>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "as `ip` names them")]
struct RawAddress {
    local: Option<IpAddr>,
    prefixlen: u8,
    scope: String,
    deprecated: bool,
    temporary: bool,
    tentative: bool,
    dadfailed: bool,
}

impl RawInterface {
    fn interface(self) -> Interface {
        let has = |flag: &str| self.flags.iter().any(|has| has == flag);
        let usable = |address: &RawAddress| {
            let RawAddress { local, prefixlen, scope, deprecated, temporary, tentative, dadfailed } = address;
            let good = scope == "global" && !(*deprecated || *temporary || *tentative || *dadfailed);
            IpNet::new(local.filter(|_| good)?, *prefixlen).ok()
        };
        Interface {
            is_checked: true,
            loopback: has("LOOPBACK"),
            // `ip` does not show RUNNING, but NO-CARRIER if it is missing.
            up: has("UP") && has("LOWER_UP") && !has("NO-CARRIER"),
            addresses: self.addr_info.iter().filter_map(usable).collect(),
            all_addresses: self.addr_info.iter().filter_map(|address| address.local).collect(),
            tentative: self.addr_info.iter().filter(|each| each.tentative).filter_map(|each| each.local).collect(),
            name: self.ifname,
            index: self.ifindex,
        }
    }
}

/// Every interface.
pub(crate) fn interfaces() -> Result<Vec<Interface>, IpError> {
    let raw: Vec<RawInterface> = json("-j addr show")?;
    Ok(raw.into_iter().filter(|raw| !raw.ifname.is_empty()).map(RawInterface::interface).collect())
}

/// The MPTCP endpoints.
pub(crate) fn endpoints() -> Result<Vec<Endpoint>, IpError> {
    json("-j mptcp endpoint show")
}

/// Adds an endpoint with its id, or with an id that the kernel chooses.
pub(crate) fn add_endpoint(endpoint: &Endpoint, any_id: bool) -> Result<(), IpError> {
    let id = if any_id { String::new() } else { format!(" id {}", endpoint.id) };
    ip(&format!("mptcp endpoint add {endpoint}{id}")).map(drop)
}

/// Deletes the endpoint with this id.
pub(crate) fn delete_endpoint(id: u8) -> Result<(), IpError> {
    ip(&format!("mptcp endpoint delete id {id}")).map(drop)
}

/// Makes the kernel resolve unresolved neighbours on a link again. Requests without a carrier got no answer, and a connection that
/// waits for such an attempt fails with it.
pub(crate) fn forget_unresolved_neighbours(dev: &str) -> Result<(), IpError> {
    ip(&format!("neigh flush dev {dev} nud incomplete nud failed")).map(drop)
}

/// Whether this process may change endpoints. Found out by setting a limit to its present value.
pub(crate) fn may_change_endpoints() -> Result<bool, IpError> {
    match ip(&format!("mptcp limits set subflows {}", limits()?.subflows)) {
        Err(IpError::Failed { message, .. }) if message.contains("Operation not permitted") => Ok(false),
        other => other.map(|_| true),
    }
}

/// The MPTCP limits. Not read as JSON, which iproute2 of Debian 12 does not print here.
pub(crate) fn limits() -> Result<Limits, IpError> {
    let arguments = "mptcp limits show";
    let text = ip(arguments)?;
    parse_limits(&text).ok_or_else(|| IpError::Unreadable { arguments: arguments.into(), reason: text })
}

fn parse_limits(text: &str) -> Option<Limits> {
    let of = |name: &str| text.split_whitespace().skip_while(|word| *word != name).nth(1)?.parse().ok();
    Some(Limits { subflows: of("subflows")?, add_addr_accepted: of("add_addr_accepted")? })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawRule {
    src: String,
    srclen: Option<u8>,
    table: Option<String>,
}

/// The rules for packets from single addresses.
pub(crate) fn rules() -> Result<Vec<Rule>, IpError> {
    let mut raw: Vec<RawRule> = json("-4 -j rule show")?;
    raw.extend(json("-6 -j rule show")?);
    let rule = |raw: RawRule| match raw.srclen {
        None => Some(Rule { from: raw.src.parse().ok()?, table: raw.table? }),
        Some(_) => None,
    };
    Ok(raw.into_iter().filter_map(rule).collect())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawRoute {
    #[serde(rename = "type")]
    kind: Option<String>,
    dst: String,
    table: Option<String>,
    dev: Option<String>,
    gateway: Option<IpAddr>,
    nexthops: Vec<RawHop>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawHop {
    dev: Option<String>,
    gateway: Option<IpAddr>,
}

impl RawRoute {
    fn routes(self, ipv4: bool) -> Vec<Route> {
        if self.kind.is_some_and(|kind| kind != "unicast") {
            return Vec::new();
        }
        let Some(to) = network(&self.dst, ipv4) else { return Vec::new() };
        let hops = std::iter::once(RawHop { dev: self.dev, gateway: self.gateway }).chain(self.nexthops);
        let route = |hop: RawHop| Some(Route { table: self.table.clone(), to, gateway: hop.gateway, dev: hop.dev? });
        hops.filter_map(route).collect()
    }
}

/// `default`, a network, or an address.
fn network(text: &str, ipv4: bool) -> Option<IpNet> {
    match text {
        "default" if ipv4 => Some(Ipv4Net::default().into()),
        "default" => Some(Ipv6Net::default().into()),
        text if text.contains('/') => text.parse().ok(),
        address => address.parse().ok().map(|address: IpAddr| address.into()),
    }
}

/// The routes of all tables.
pub(crate) fn routes() -> Result<Vec<Route>, IpError> {
    let v4: Vec<RawRoute> = json("-4 -j route show table all")?;
    let v6: Vec<RawRoute> = json("-6 -j route show table all")?;
    let v4 = v4.into_iter().flat_map(|raw| raw.routes(true));
    Ok(v4.chain(v6.into_iter().flat_map(|raw| raw.routes(false))).collect())
}

/// The way of packets from one address to another.
pub(crate) fn way(target: IpAddr, from: IpAddr) -> Result<By, IpError> {
    let raw: Vec<RawRoute> = match json(&format!("-j route get {target} from {from}")) {
        // The kernel's answer: unreachable, prohibited, or a black hole.
        Err(IpError::Failed { message, .. }) if message.starts_with("RTNETLINK answers") => return Ok(By::Nowhere),
        raw => raw?,
    };
    Ok(raw.into_iter().next().map_or(By::Nowhere, by))
}

fn by(raw: RawRoute) -> By {
    match (raw.kind.as_deref(), raw.dev) {
        (Some("local"), _) => By::Local,
        (None | Some("unicast"), Some(dev)) => By::Dev(dev),
        _ => By::Nowhere,
    }
}

#[cfg(test)]
mod tests;
