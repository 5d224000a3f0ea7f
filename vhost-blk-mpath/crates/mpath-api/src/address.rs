//! `tcp://HOST:PORT`: where one path leads, or where a discovery controller is, as users write it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::text::text_serde;

/// The IANA port of NVMe/TCP I/O controllers, used when an address names none.
pub const DEFAULT_PORT: u16 = 4420;
/// The IANA port of NVMe/TCP discovery controllers.
pub const DEFAULT_DISCOVERY_PORT: u16 = 8009;

/// Longest host name accepted, in bytes (RFC 1035 section 2.3.4, without the root's dot).
const MAX_NAME_BYTES: usize = 253;
/// Longest label of a host name, in bytes (RFC 1035 section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// What carries the NVMe/TCP connections of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Transport {
    /// Plain TCP.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
        }
    }
}

/// The host of a path: an address, or a name that is resolved when the path connects.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, in brackets when written: `[::1]`.
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

/// A host name that has passed the checks of [`PathAddress`].
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

/// The address of one path: transport, host (nvme-cli's traddr) and port (trsvcid).
///
/// Written `tcp://HOST:PORT`; HOST is an IPv4 address, an IPv6 address in brackets or a name, and
/// `:PORT` may be left out for 4420. [`fmt::Display`] always writes the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathAddress {
    transport: Transport,
    host: Host,
    port: u16,
}

impl PathAddress {
    /// What carries the connections.
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

    fn parse(text: &str, default_port: u16) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let Some((scheme, authority)) = text.split_once("://") else {
            return Err(AddressError::NoTransport { text: text.into() });
        };
        let transport = match scheme.to_ascii_lowercase().as_str() {
            "tcp" => Transport::Tcp,
            "mptcp" => return Err(AddressError::MptcpUnsupported { text: text.into() }),
            _ => {
                return Err(AddressError::UnknownTransport { text: text.into(), transport: scheme.into() });
            }
        };
        let (host, port) = split_port(authority);
        if host.is_empty() {
            return Err(AddressError::NoHost { text: text.into() });
        }
        let host = parse_host(host).ok_or_else(|| AddressError::BadHost { text: text.into(), host: host.into() })?;
        let bad = |port: &str| AddressError::BadPort { text: text.into(), port: port.into(), default_port };
        let port = port.map_or(Ok(default_port), |port| parse_port(port).ok_or_else(|| bad(port)))?;
        Ok(Self { transport, host, port })
    }
}

impl From<SocketAddr> for PathAddress {
    /// By TCP. A scope is not kept.
    fn from(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => Host::V4(ip),
            IpAddr::V6(ip) => Host::V6(ip),
        };
        Self { transport: Transport::Tcp, host, port: address.port() }
    }
}

/// Where a discovery controller is: like a [`PathAddress`], but the port that may be left out is 8009.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiscoveryAddress(PathAddress);

impl DiscoveryAddress {
    /// What to connect to.
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

text_serde!(DiscoveryAddress, "the address of a discovery controller, tcp://HOST:PORT");

/// Why a text is not a [`PathAddress`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is nothing.
    #[error("an empty text is no address; write tcp://HOST or tcp://HOST:PORT")]
    Empty,
    /// There is a transport, and no host.
    #[error("`{text}`: the host is missing; write tcp://HOST or tcp://HOST:PORT")]
    NoHost {
        /// The whole text.
        text: String,
    },
    /// There is no `SCHEME://` in front.
    #[error("`{text}` names no transport; write tcp://{text}")]
    NoTransport {
        /// The whole text.
        text: String,
    },
    /// The transport is planned, and this version does not have it.
    #[error("`{text}`: MPTCP is not supported yet; write tcp://")]
    MptcpUnsupported {
        /// The whole text.
        text: String,
    },
    /// The transport is none that NVMe over Fabrics on this host knows.
    #[error("`{text}`: unknown transport `{transport}`; the only one is tcp://")]
    UnknownTransport {
        /// The whole text.
        text: String,
        /// What stood in front of `://`.
        transport: String,
    },
    /// The host is neither an IPv4 address, an IPv6 address in brackets nor a name.
    #[error("`{text}`: `{host}` is no IPv4 address, no [IPv6 address] and no host name")]
    BadHost {
        /// The whole text.
        text: String,
        /// What stands where the host belongs.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("`{text}`: `{port}` is no port; give a number from 1 to 65535, or none for {default_port}")]
    BadPort {
        /// The whole text.
        text: String,
        /// What stands where the port belongs.
        port: String,
        /// What it is if none is given.
        default_port: u16,
    },
}

/// Splits `HOST`, `HOST:PORT` or `[HOST]:PORT`. The brackets stay with the host.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    let host_end = if authority.starts_with('[') {
        authority.find(']').map_or(authority.len(), |at| at + 1)
    } else if authority.matches(':').count() > 1 {
        // An IPv6 address without its brackets: let it be refused as a whole.
        authority.len()
    } else {
        authority.find(':').unwrap_or(authority.len())
    };
    let (host, rest) = authority.split_at(host_end);
    match rest.strip_prefix(':') {
        Some(port) => (host, Some(port)),
        None if rest.is_empty() => (host, None),
        // Something follows the bracket that is no port: let the host be refused with it.
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
    // `u16::from_str` alone would take "+4420".
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
        write!(f, "{}://{}:{}", self.transport, self.host, self.port)
    }
}

text_serde!(PathAddress, "a path address, tcp://HOST:PORT");

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
    fn writes_back_in_full() {
        for (text, shown) in [
            ("tcp://127.0.0.1:4421", "tcp://127.0.0.1:4421"),
            ("tcp://127.0.0.1", "tcp://127.0.0.1:4420"),
            ("tcp://[::1]", "tcp://[::1]:4420"),
            ("tcp://[fe80:0::1]:1", "tcp://[fe80::1]:1"),
            ("TCP://Store-1.Example.ORG:65535", "tcp://store-1.example.org:65535"),
            ("tcp://localhost", "tcp://localhost:4420"),
            ("tcp://1host", "tcp://1host:4420"),
        ] {
            assert_eq!(parse(text).to_string(), shown);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, message) in [
            ("", "an empty text is no address; write tcp://HOST or tcp://HOST:PORT"),
            ("tcp://", "`tcp://`: the host is missing; write tcp://HOST or tcp://HOST:PORT"),
            ("tcp://:4420", "`tcp://:4420`: the host is missing; write tcp://HOST or tcp://HOST:PORT"),
            ("127.0.0.1:4420", "`127.0.0.1:4420` names no transport; write tcp://127.0.0.1:4420"),
            ("mptcp://127.0.0.1", "`mptcp://127.0.0.1`: MPTCP is not supported yet; write tcp://"),
            ("rdma://h", "`rdma://h`: unknown transport `rdma`; the only one is tcp://"),
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
            "tcp://[fe80::1%eth0]",
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
        assert!(refused.ends_with("or none for 8009"), "{refused}");
    }

    #[test]
    fn socket_addresses_are_addresses() {
        for text in ["127.0.0.1:4421", "[2001:db8::1]:8009"] {
            let address = PathAddress::from(text.parse::<SocketAddr>().unwrap());
            assert_eq!(address, parse(&format!("tcp://{text}")));
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
        fn any_address_survives(host in hosts(), port in 1_u16..) {
            let address = PathAddress { transport: Transport::Tcp, host, port };
            prop_assert_eq!(&address, &parse(&address.to_string()));
            let json = serde_json::to_string(&address).unwrap();
            prop_assert_eq!(&address, &serde_json::from_str::<PathAddress>(&json).unwrap());
        }

        #[test]
        fn no_text_panics_and_what_parses_is_stable(text in "(tcp://)?\\PC{0,40}") {
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
