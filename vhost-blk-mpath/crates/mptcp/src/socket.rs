//! Properties of single sockets.

use std::io;
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

/// Why MPTCP sockets cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum Unsupported {
    /// `EPROTONOSUPPORT`, or `EINVAL` of kernels that do not know the protocol's number.
    #[error("this kernel has no MPTCP (CONFIG_MPTCP; Linux 5.6 or later)")]
    NotBuiltIn,
    /// `ENOPROTOOPT`
    #[error("MPTCP is switched off in this network namespace (net.mptcp.enabled=0)")]
    SwitchedOff,
    /// Another error.
    #[error("cannot open an MPTCP socket: {0}")]
    Socket(#[source] io::Error),
}

/// Checks that MPTCP sockets can be opened.
pub fn supported() -> Result<(), Unsupported> {
    socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::MPTCP)).map(drop).map_err(
        |error| match error {
            Errno::PROTONOSUPPORT | Errno::INVAL => Unsupported::NotBuiltIn,
            Errno::NOPROTOOPT => Unsupported::SwitchedOff,
            error => Unsupported::Socket(error.into()),
        },
    )
}

/// `SO_COOKIE` of a socket, by which [`mptcp_connections`](crate::mptcp_connections) and
/// [`tcp_connections`](crate::tcp_connections) find it.
pub fn cookie_of(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_cookie(socket)?)
}
