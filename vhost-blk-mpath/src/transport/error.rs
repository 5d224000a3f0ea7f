//! Why a connection of the control thread fails.

use std::io;
use std::net::IpAddr;

use monotonic::Duration;
use mpath_config::KeyFile;
use mpath_config::address::InterfaceName;
use nvme_tcp::host::{AdminError, ConfigError};
use nvme_tcp::wire::Nqn;
use nvme_tls::psk::DeriveError;
use nvme_tls::{SetupError, TlsError};

use super::host_secrets::HostSecretError;
use super::subsystem_key::TlsKeyError;

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransportError {
    #[error("{0}")]
    Connect(#[source] io::Error),
    #[error("cannot create an MPTCP socket: {0}; `mpathctl mptcp check` shows what this host lacks")]
    NoMptcp(#[source] io::Error),
    #[error("cannot connect from host-traddr {traddr}: {source}; `ip address` lists the addresses of this host")]
    HostTraddr { traddr: IpAddr, source: io::Error },
    #[error("cannot connect over host-iface {}: {source}; `ip link` lists the interfaces of this host", iface.as_str())]
    HostIface { iface: InterfaceName, source: io::Error },
    #[error("cannot connect from host-traddr {traddr} to {peer}: use IPv4 or IPv6 for both")]
    Family { traddr: IpAddr, peer: IpAddr },
    #[error("the host name has no address")]
    NoAddress,
    #[error("connection lost: {0}")]
    Socket(#[source] io::Error),
    #[error("connection closed by the controller")]
    Closed,
    #[error(
        "no answer to the first message: {0}; if this port of the controller requires TLS, set tls-key-file, and for a discovery \
         controller discovery-tls-key-file"
    )]
    Unanswered(#[source] Box<TransportError>),
    #[error("TLS handshake failed: {0}")]
    Handshake(#[source] TlsError),
    #[error("connection lost: {0}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    HostSecret(#[from] HostSecretError),
    #[error(transparent)]
    TlsKey(#[from] TlsKeyError),
    #[error(transparent)]
    TlsRefused(#[from] TlsRefused),
    #[error("cannot set up TLS: {0}")]
    OpenSsl(#[source] SetupError),
    #[error("secure channel concatenation: {0}")]
    Concatenation(#[from] ConcatenationError),
    #[error("secure channel concatenation: there is no key for this connection; report this as an error of the daemon")]
    NoGeneratedKey,
    #[error(
        "no TLS connection with the key that the authentication has generated: {0}; check that this port of the controller uses TLS, \
         see the log of the target, and docs/operating/tls.md"
    )]
    GeneratedKeyRefused(#[source] Box<TransportError>),
}

/// Why host and controller generate no key for TLS, over a connection that exists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConcatenationError {
    #[error("{0}; check that this port of the controller takes clear text too, because the authentication needs it")]
    NoClearText(#[source] Box<TransportError>),
    #[error(transparent)]
    Connection(Box<TransportError>),
    #[error("no answer within {after:?}; see the log of the target, and the network")]
    Timeout { after: Duration },
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Key(#[from] DeriveError),
}

/// A controller accepts no identity of a key.
#[derive(Debug, thiserror::Error)]
#[error(
    "the controller accepts none of the {count} TLS identities of {setting} {file} for host {hostnqn} and subsystem {subnqn}: \
     {last}; give both sides the same key for these two names, and check that this port of the controller uses TLS"
)]
pub(crate) struct TlsRefused {
    pub(super) count: usize,
    pub(super) setting: &'static str,
    pub(super) file: KeyFile,
    pub(super) hostnqn: Nqn,
    pub(super) subnqn: Nqn,
    pub(super) last: Box<TransportError>,
}
