//! Decides: a discovery record requires TLS, and is left out (`tcp_address`).
//!
//! The TCP address of a discovery log record, if this host can use it.

use std::net::{IpAddr, SocketAddr};

use crate::wire::{AddressFamily, DiscoveryEntry, SecurityType, TransportType};

/// Why a record cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableEntry {
    /// TRTYPE is not TCP.
    #[error("{}", transport_name(*.0))]
    Transport(TransportType),
    /// TREQ or TSAS requires TLS, and the host would connect in clear text.
    #[error("the record requires TLS")]
    NeedsTls,
    /// TREQ or TSAS requires another version of TLS than 1.3.
    #[error("the record requires TLS 1.2, and this host has TLS 1.3 only")]
    TlsVersion,
    /// ADRFAM is neither IPv4 nor IPv6, or TRADDR is not an address of that family.
    #[error("TRADDR `{traddr}` is not an address of family {family}", family = family_name(*.family))]
    Address {
        /// TRADDR.
        traddr: String,
        /// ADRFAM.
        family: AddressFamily,
    },
    /// TRADDR is an unspecified or multicast address.
    #[error("TRADDR `{0}` is an unspecified or multicast address")]
    Unspecified(String),
    /// TRSVCID is not a port.
    #[error("TRSVCID `{0}` is not a TCP port")]
    Port(String),
}

fn transport_name(transport: TransportType) -> String {
    match transport {
        TransportType::RDMA => "transport RDMA is not supported".to_owned(),
        TransportType::FIBRE_CHANNEL => "transport Fibre Channel is not supported".to_owned(),
        TransportType(other) => format!("transport type {other} is not supported"),
    }
}

fn family_name(family: AddressFamily) -> String {
    match family {
        AddressFamily::IPV4 => "IPv4".to_owned(),
        AddressFamily::IPV6 => "IPv6".to_owned(),
        AddressFamily(other) => other.to_string(),
    }
}

/// The TCP address of a record. `has_tls` says whether the host would connect to it with TLS 1.3.
pub fn tcp_address(entry: &DiscoveryEntry, has_tls: bool) -> Result<SocketAddr, UnusableEntry> {
    if entry.transport != TransportType::TCP {
        return Err(UnusableEntry::Transport(entry.transport));
    }
    // A port that offers TLS, without saying that TLS is not required, is taken to require it.
    let secure = match entry.treq & DiscoveryEntry::TREQ_SECURE_CHANNEL {
        DiscoveryEntry::TREQ_REQUIRED => true,
        DiscoveryEntry::TREQ_NOT_REQUIRED => false,
        _ => entry.security != SecurityType::NONE,
    };
    if secure && entry.security == SecurityType::TLS_1_2 {
        return Err(UnusableEntry::TlsVersion);
    }
    if secure && !has_tls {
        return Err(UnusableEntry::NeedsTls);
    }
    let address: Option<IpAddr> = entry.traddr.trim().parse().ok();
    let of_family = |address: &IpAddr| match entry.family {
        AddressFamily::IPV4 => address.is_ipv4(),
        AddressFamily::IPV6 => address.is_ipv6(),
        _ => false,
    };
    let Some(address) = address.filter(of_family) else {
        return Err(UnusableEntry::Address { traddr: entry.traddr.clone(), family: entry.family });
    };
    if address.is_unspecified() || address.is_multicast() {
        return Err(UnusableEntry::Unspecified(entry.traddr.clone()));
    }
    let text = entry.trsvcid.trim();
    // `u16::from_str` alone would accept "+4420".
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port @ 1..) if digits => Ok(SocketAddr::new(address, port)),
        _ => Err(UnusableEntry::Port(entry.trsvcid.clone())),
    }
}
