//! Addresses of paths and of discovery controllers: `tcp://HOST:PORT` or `mptcp://HOST:PORT`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use mpath_core::json_schema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

pub use self::error::AddressError;
pub use self::local::{InterfaceName, LocalEnd};
use crate::text::text_serde;

mod error;
mod local;

/// The IANA port of NVMe/TCP I/O controllers: the default port of paths.
pub const DEFAULT_PORT: u16 = 4420;
/// The IANA port of NVMe/TCP discovery controllers: their default port.
pub const DEFAULT_DISCOVERY_PORT: u16 = 8009;

/// Longest host name accepted, in bytes (RFC 1035 section 2.3.4, without the root's dot).
const MAX_NAME_BYTES: usize = 253;
/// Longest label of a host name, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// The transport of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// Multipath TCP (RFC 8684): each connection has any number of subflows. If the peer or the network does not support MPTCP, the
    /// connection is plain TCP.
    Mptcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Mptcp => f.write_str("mptcp"),
        }
    }
}

/// The host of an address: an IP address, or a name that is resolved at each connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, written in brackets: `[::1]`.
    V6(Ipv6Addr),
    /// A host name in lower case, at most 253 bytes of letters, digits, `-`, `_` and `.`.
    Name(HostName),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => ip.fmt(f),
            Self::V6(ip) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(&name.0),
        }
    }
}

/// A valid host name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

impl HostName {
    /// The name, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let label_ok = |label: &str| {
            !label.is_empty()
                && label.len() <= MAX_LABEL_BYTES
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // A name whose last label is a number is a mistyped IPv4 address (RFC 1123 section 2.1).
        let last = text.rsplit('.').next()?;
        let numeric = last.bytes().all(|b| b.is_ascii_digit());
        (text.len() <= MAX_NAME_BYTES && !numeric && text.split('.').all(label_ok))
            .then(|| Self(text.to_ascii_lowercase()))
    }
}

/// The address of a path: transport, host (nvme-cli's traddr), port (trsvcid), and local end.
///
/// Written `tcp://HOST:PORT` or `mptcp://HOST:PORT`. HOST is an IPv4 address, an IPv6 address in brackets or a name. The default
/// port is 4420, and [`fmt::Display`] always writes the port. A [`LocalEnd`] follows after `?`, as in
/// `tcp://192.0.2.1:4420?host-traddr=192.0.2.7`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathAddress {
    transport: Transport,
    host: Host,
    port: u16,
    local: LocalEnd,
}

impl PathAddress {
    /// The transport.
    #[must_use]
    pub fn transport(&self) -> Transport {
        self.transport
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The TCP port, 1 to 65535.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The local end.
    #[must_use]
    pub fn local(&self) -> &LocalEnd {
        &self.local
    }

    /// The same transport and local end with another peer. Drops the scope of an IPv6 address.
    #[must_use]
    pub fn with_peer(&self, address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => Host::V4(ip),
            IpAddr::V6(ip) => Host::V6(ip),
        };
        Self { host, port: address.port(), ..self.clone() }
    }

    fn parse(text: &str, default_port: u16) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let Some((scheme, authority)) = text.split_once("://") else {
            return Err(AddressError::NoTransport { text: text.into(), meant: with_transport(text) });
        };
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "tcp" => Transport::Tcp,
            "mptcp" => Transport::Mptcp,
            _ => {
                return Err(AddressError::UnknownTransport { text: text.into(), transport: scheme.into() });
            }
        };
        let (authority, options) = authority.split_once('?').unwrap_or((authority, ""));
        let (host, port) = split_port(authority);
        if host.is_empty() {
            return Err(AddressError::NoHost { text: text.into() });
        }
        let local = LocalEnd::parse(text, options)?;
        if let Some(meant) = with_interface(transport, host, port, &local) {
            return Err(AddressError::LinkLocal { text: text.into(), meant });
        }
        let host = parse_host(host).ok_or_else(|| AddressError::BadHost { text: text.into(), host: host.into() })?;
        let bad = |port: &str| AddressError::BadPort { text: text.into(), port: port.into(), default_port };
        let port = port.map_or(Ok(default_port), |port| parse_port(port).ok_or_else(|| bad(port)))?;
        let ipv4 = local.traddr().map(IpAddr::is_ipv4);
        match (&host, ipv4) {
            (Host::V4(_), Some(false)) | (Host::V6(_), Some(true)) => Err(AddressError::Family { text: text.into() }),
            _ => Ok(Self { transport, host, port, local }),
        }
    }
}

/// The address of a discovery controller: a [`PathAddress`] with default port 8009.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiscoveryAddress(PathAddress);

impl DiscoveryAddress {
    /// The address to connect to.
    #[must_use]
    pub fn address(&self) -> &PathAddress {
        &self.0
    }
}

impl FromStr for DiscoveryAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        PathAddress::parse(text, DEFAULT_DISCOVERY_PORT).map(Self)
    }
}

impl fmt::Display for DiscoveryAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

text_serde!(DiscoveryAddress, "the address of a discovery controller, tcp://HOST:PORT or mptcp://HOST:PORT");

/// The address that a text without `://` probably stands for.
fn with_transport(text: &str) -> String {
    let scheme = text.split_once(':').filter(|(scheme, rest)| {
        // With a port, it is a host with the name of a transport.
        ["tcp", "mptcp"].iter().any(|known| known.eq_ignore_ascii_case(scheme)) && parse_port(rest).is_none()
    });
    let meant = match scheme {
        Some((scheme, rest)) => format!("{}://{}", scheme.to_ascii_lowercase(), rest.trim_start_matches('/')),
        None => format!("tcp://{text}"),
    };
    if meant.parse::<PathAddress>().is_ok() { meant } else { "tcp://HOST or tcp://HOST:PORT".into() }
}

/// How to write a link-local address whose interface `host-iface` does not name.
fn with_interface(transport: Transport, host: &str, port: Option<&str>, local: &LocalEnd) -> Option<String> {
    let inner = host.strip_prefix('[')?.strip_suffix(']')?;
    let (ip, zone) = inner.split_once('%').map_or((inner, None), |(ip, zone)| (ip, Some(zone)));
    let is_link_local = ip.parse().is_ok_and(|ip: Ipv6Addr| ip.is_unicast_link_local());
    if !is_link_local || (zone.is_none() && local.iface().is_some()) {
        return None;
    }
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Some(format!(
        "{transport}://[{ip}]{port}?host-iface={}",
        zone.map_or("INTERFACE", |zone| zone.strip_prefix("25").unwrap_or(zone))
    ))
}

/// Splits `HOST`, `HOST:PORT` or `[HOST]:PORT`. The brackets stay with the host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_end = if authority.starts_with('[') {
        authority.find(']').map_or(authority.len(), |at| at + 1)
    } else if authority.matches(':').count() > 1 {
        // An IPv6 address without brackets is refused as a whole.
        authority.len()
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.strip_prefix(':') {
        Some(port) => (host, Some(port)),
        None if rest.is_empty() => (host, None),
        // Text after the bracket that is no port is refused with the host.
        None => (authority, None),
    }
}

fn parse_host(text: &str) -> Option<Host> {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.strip_suffix(']')?.parse().ok().map(Host::V6);
    }
    match text.parse() {
        Ok(ip) => Some(Host::V4(ip)),
        Err(_) => HostName::parse(text).map(Host::Name),
    }
}

fn parse_port(text: &str) -> Option<u16> {
    // `u16::from_str` alone accepts "+4420".
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|&port| digits && port != 0)
}

impl FromStr for PathAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text, DEFAULT_PORT)
    }
}

impl fmt::Display for PathAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}{}", self.transport, self.host, self.port, self.local)
    }
}

text_serde!(PathAddress, "a path address, tcp://HOST:PORT or mptcp://HOST:PORT");
json_schema!(PathAddress, "PathAddress", address_schema("The address of a path", DEFAULT_PORT));
json_schema!(
    DiscoveryAddress,
    "DiscoveryAddress",
    address_schema("The address of a discovery controller", DEFAULT_DISCOVERY_PORT)
);

/// The part after the transport, as far as a pattern can describe it.
pub const PEER_PATTERN: &str = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?(\?\S*)?";

fn address_schema(what: &str, default_port: u16) -> Value {
    json!({
        "type": "string",
        "description": format!(
            "{what}: `tcp://HOST:PORT` or `mptcp://HOST:PORT`, with `:{default_port}` as the default. HOST is an IPv4 address, an IPv6 address \
             in brackets or a name. `?host-traddr=ADDRESS` and `?host-iface=NAME` may follow, joined by `&`."
        ),
        "pattern": format!("^([Mm][Pp])?[Tt][Cc][Pp]://{PEER_PATTERN}$"),
        "examples": ["tcp://192.0.2.1:4420?host-traddr=192.0.2.7", "mptcp://[2001:db8::1]", "tcp://storage"],
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> PathAddress {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn refuse(text: &str) -> String {
        text.parse::<PathAddress>().expect_err(text).to_string()
    }

    #[test]
    fn addresses_are_written_in_full() {
        for (text, shown) in [
            ("tcp://127.0.0.1:4421", "tcp://127.0.0.1:4421"),
            ("tcp://127.0.0.1", "tcp://127.0.0.1:4420"),
            ("tcp://[::1]", "tcp://[::1]:4420"),
            ("tcp://[fe80:0::1]:1?host-iface=eth0", "tcp://[fe80::1]:1?host-iface=eth0"),
            ("TCP://Store-1.Example.ORG:65535", "tcp://store-1.example.org:65535"),
            ("tcp://localhost", "tcp://localhost:4420"),
            ("tcp://1host", "tcp://1host:4420"),
            ("MPTCP://127.0.0.1", "mptcp://127.0.0.1:4420"),
            ("tcp://h?host-iface=eth0&host-traddr=::2", "tcp://h:4420?host-traddr=::2&host-iface=eth0"),
            ("mptcp://[::1]:1?host-traddr=::2", "mptcp://[::1]:1?host-traddr=::2"),
        ] {
            assert_eq!(parse(text).to_string(), shown);
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_to_write() {
        for (text, message) in [
            ("", "an empty text is no address; write tcp://HOST or tcp://HOST:PORT"),
            ("tcp://", "`tcp://`: the host is missing; write tcp://HOST or tcp://HOST:PORT"),
            ("tcp://:4420", "`tcp://:4420`: the host is missing; write tcp://HOST or tcp://HOST:PORT"),
            ("127.0.0.1:4420", "`127.0.0.1:4420` has no transport; write tcp://127.0.0.1:4420"),
            ("mptcp:127.0.0.1:4420", "`mptcp:127.0.0.1:4420` has no transport; write mptcp://127.0.0.1:4420"),
            ("MPTCP:storage", "`MPTCP:storage` has no transport; write mptcp://storage"),
            ("tcp:", "`tcp:` has no transport; write tcp://HOST or tcp://HOST:PORT"),
            ("tcp:/storage", "`tcp:/storage` has no transport; write tcp://storage"),
            ("tcp:4420", "`tcp:4420` has no transport; write tcp://tcp:4420"),
            ("rdma://h", "`rdma://h`: unknown transport `rdma`; write tcp:// or mptcp://"),
            (
                "tcp://h?port=1",
                "`tcp://h?port=1`: unknown option `port`; write ?host-traddr=ADDRESS, ?host-iface=NAME, or both joined by &",
            ),
            ("tcp://h?host-iface=a&host-iface=b", "`tcp://h?host-iface=a&host-iface=b`: host-iface is given twice"),
            (
                "tcp://h?host-traddr=[::1]",
                "`tcp://h?host-traddr=[::1]`: host-traddr `[::1]` is no IPv4 or IPv6 address",
            ),
            (
                "tcp://h?host-iface=a/b",
                "`tcp://h?host-iface=a/b`: host-iface `a/b` is no interface name; `ip link` lists them",
            ),
            (
                "tcp://[::1]?host-traddr=127.0.0.1",
                "`tcp://[::1]?host-traddr=127.0.0.1`: host-traddr and host are not both IPv4 or both IPv6",
            ),
            (
                "tcp://[fe80::1]",
                "`tcp://[fe80::1]`: a link-local address needs an interface; write `tcp://[fe80::1]?host-iface=INTERFACE`",
            ),
            (
                "MPTCP://[FE80::1%eth0]:9?host-iface=eth1",
                "`MPTCP://[FE80::1%eth0]:9?host-iface=eth1`: a link-local address needs an interface; write \
                 `mptcp://[FE80::1]:9?host-iface=eth0`",
            ),
        ] {
            assert_eq!(refuse(text), message);
        }
        for text in [
            "tcp://::1",
            "tcp://::1:4420",
            "tcp://2001:db8::1",
            "tcp://[::1",
            "tcp://[::1]4420",
            "tcp://[127.0.0.1]",
            "tcp://[2001:db8::1%eth0]",
            "tcp://256.0.0.1",
            "tcp://1.2.3",
            "tcp://a..b",
            "tcp://-a",
            "tcp://a b",
            "tcp://user@host",
            "tcp://host/",
            "tcp://ho\u{e4}",
        ] {
            assert!(refuse(text).contains("no host name"), "{text}");
        }
        for text in ["tcp://h:", "tcp://h:0", "tcp://h:65536", "tcp://h:+1", "tcp://h:1/", "tcp://[::1]:x"] {
            assert!(refuse(text).contains("is no port"), "{text}");
        }
    }

    #[test]
    fn discovery_controllers_have_a_port_of_their_own() {
        for (text, shown) in [("tcp://127.0.0.1", "tcp://127.0.0.1:8009"), ("tcp://[::1]:9", "tcp://[::1]:9")] {
            let address: DiscoveryAddress = text.parse().unwrap();
            assert_eq!((address.to_string(), address.address().to_string()), (shown.into(), shown.into()));
        }
        let refused = "tcp://h:0".parse::<DiscoveryAddress>().unwrap_err().to_string();
        assert!(refused.ends_with("or leave the port out for 8009"), "{refused}");
    }

    #[test]
    fn another_peer_is_reached_in_the_same_way() {
        for (text, peer, other) in [
            ("tcp://h", "127.0.0.1:4421", "tcp://127.0.0.1:4421"),
            ("mptcp://[::1]:9?host-iface=eth0", "[2001:db8::1]:8009", "mptcp://[2001:db8::1]:8009?host-iface=eth0"),
        ] {
            assert_eq!(parse(text).with_peer(peer.parse().unwrap()), parse(other));
        }
    }

    #[test]
    fn name_limits() {
        let label = "a".repeat(63);
        let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
        assert_eq!(parse(&format!("tcp://{longest}:1")).host().to_string(), longest);
        assert!(refuse(&format!("tcp://{longest}a:1")).contains("no host name"));
        assert!(refuse(&format!("tcp://{label}a:1")).contains("no host name"));
    }

    proptest! {
        #[test]
        fn any_address_survives(host in hosts(), port in 1_u16.., mptcp in any::<bool>(), local in local::tests::local_ends()) {
            let transport = if mptcp { Transport::Mptcp } else { Transport::Tcp };
            let fits = match (&host, local.traddr()) {
                (Host::V4(_), Some(traddr)) => traddr.is_ipv4(),
                (Host::V6(_), Some(traddr)) => traddr.is_ipv6(),
                _ => true,
            };
            let leads_nowhere = matches!(&host, Host::V6(ip) if ip.is_unicast_link_local()) && local.iface().is_none();
            prop_assume!(fits && !leads_nowhere);
            let address = PathAddress { transport, host, port, local };
            prop_assert_eq!(&address, &parse(&address.to_string()));
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(&address, &serde_json::from_str::<PathAddress>(&json).unwrap());
        }

        #[test]
        fn no_text_panics_and_what_parses_is_stable(text in "(m?tcp://)?\\PC{0,40}(\\?host-(traddr|iface)=\\PC{0,20})?") {
            if let Ok(address) = text.parse::<PathAddress>() {
                prop_assert_eq!(&address, &parse(&address.to_string()));
            }
        }
    }

    pub(crate) fn hosts() -> impl Strategy<Value = Host> {
        prop_oneof![
            any::<Ipv4Addr>().prop_map(Host::V4),
            any::<Ipv6Addr>().prop_map(Host::V6),
            "[a-z0-9_]{1,20}(\\.[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?){0,3}\\.[a-z]{2,8}"
                .prop_map(|name| Host::Name(HostName::parse(&name).unwrap())),
        ]
    }
}
