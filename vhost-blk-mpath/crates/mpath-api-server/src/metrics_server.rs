//! Decides: a client of `metrics-address` is answered.
//!
//! The server of `metrics-address`: `GET /metrics` over TCP, and nothing else.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use mpath_config::MetricsAddress;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

use super::connections::Connections;
use super::metrics::metrics;
use super::{Control, Limits, accept, bounds};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// Connections at a time. Two Prometheus servers need two. Each connection keeps the state of all paths until its client has read
/// the answer.
const CONNECTIONS: usize = 16;
/// Time for a request and its answer. Prometheus waits 10 s unless it is told otherwise.
const CONNECTION_MAX: Duration = Duration::from_secs(30);

/// Why the daemon cannot listen on a [`MetricsAddress`].
#[derive(Debug, thiserror::Error)]
pub enum MetricsBindError {
    /// Another process listens there.
    #[error("metrics-address: another process listens on {address}; give another port, and each daemon its own")]
    InUse {
        /// The address.
        address: MetricsAddress,
    },
    /// This host does not have the IP address.
    #[error("metrics-address: {address} is no address of this host; give one that `ip address` lists, or 127.0.0.1")]
    NotLocal {
        /// The address.
        address: MetricsAddress,
    },
    /// The daemon's user may not listen on this port.
    #[error("metrics-address: the daemon may not listen on {address}: {source}; give a port from 1024 to 65535")]
    Forbidden {
        /// The address.
        address: MetricsAddress,
        /// The operating system's error.
        source: io::Error,
    },
    /// A system call failed for another reason.
    #[error("metrics-address: cannot listen on {address}: {source}; give another address")]
    System {
        /// The address.
        address: MetricsAddress,
        /// The operating system's error.
        source: io::Error,
    },
}

/// A TCP socket that listens for clients of the metrics.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    limits: Limits,
}

impl MetricsServer {
    /// Listens on the address. Connections that an earlier daemon has just closed do not matter.
    pub fn bind(address: MetricsAddress) -> Result<Self, MetricsBindError> {
        let listening = bound(address).and_then(|socket| listen(&socket, BACKLOG).map(|()| socket));
        let socket = listening.map_err(|errno| failed(address, errno))?;
        let limits = Limits { connections: CONNECTIONS, connection: CONNECTION_MAX, ..Limits::default() };
        Ok(Self { listener: socket.into(), limits })
    }

    /// Checks what [`bind`](Self::bind) needs of this host, and does not listen. If another process listens there, it may be the
    /// running daemon: the caller knows.
    pub fn check(address: MetricsAddress) -> Result<(), MetricsBindError> {
        bound(address).map(drop).map_err(|errno| failed(address, errno))
    }

    /// Answers `GET` and `HEAD` of `/metrics` until `shutdown` completes, then ends within about a second. Each other path is not
    /// found, and each other method is not allowed.
    ///
    /// Needs a tokio runtime with I/O and time. Fails only before the first request.
    pub async fn serve<C: Control>(self, control: Arc<C>, shutdown: impl Future<Output = ()>) -> io::Result<()> {
        let routes = Router::new().route("/metrics", get(metrics::<C>)).with_state(control);
        let connections = Connections::new(bounds::bounded(routes, self.limits, None, false), self.limits);
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        accept::serve(listener, connections, shutdown).await;
        Ok(())
    }
}

/// A socket with this address, which does not listen.
fn bound(address: MetricsAddress) -> Result<OwnedFd, Errno> {
    let address = address.get();
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}

fn failed(address: MetricsAddress, errno: Errno) -> MetricsBindError {
    match errno {
        Errno::ADDRINUSE => MetricsBindError::InUse { address },
        Errno::ADDRNOTAVAIL => MetricsBindError::NotLocal { address },
        Errno::ACCESS | Errno::PERM => MetricsBindError::Forbidden { address, source: errno.into() },
        _ => MetricsBindError::System { address, source: errno.into() },
    }
}

#[cfg(test)]
mod tests;
