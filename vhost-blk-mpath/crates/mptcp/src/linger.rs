//! The time for which closed MPTCP connections send.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt,
};

/// Linux's default of `net.mptcp.close_timeout`.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest wait for the end of a connection over loopback.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// How long a closed MPTCP socket with `SO_LINGER` of 0 seconds still sends data that were written to it.
///
/// TCP sends nothing more, and so does MPTCP since 2026. Before, `close` ends MPTCP connections in order within
/// `net.mptcp.close_timeout`, even if the process is killed. A connection over loopback shows which kernel this is. If
/// this test fails, an old kernel is assumed.
#[must_use]
pub fn lingers_for() -> Duration {
    if resets_on_close(ipproto::MPTCP, Some(Duration::ZERO)).unwrap_or(false) {
        Duration::ZERO
    } else {
        close_timeout()
    }
}

fn close_timeout() -> Duration {
    let sysctl = std::fs::read_to_string("/proc/sys/net/mptcp/close_timeout");
    sysctl.ok().and_then(|text| text.trim().parse().ok()).map_or(CLOSE_TIMEOUT, Duration::from_secs)
}

/// Whether the peer sees a reset when the connection is closed.
fn resets_on_close(protocol: Protocol, linger: Option<Duration>) -> io::Result<bool> {
    let new = || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(protocol));
    let listener = new()?;
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    listen(&listener, 1)?;
    let listener = TcpListener::from(listener);
    let ours = new()?;
    sockopt::set_socket_linger(&ours, linger)?;
    connect(&ours, &listener.local_addr()?)?;
    let (mut theirs, _): (TcpStream, _) = listener.accept()?;
    theirs.set_read_timeout(Some(ANSWER_MAX))?;
    drop(ours);
    match theirs.read(&mut [0]) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// TCP resets with `SO_LINGER` of 0 seconds, and ends in order without.
    #[test]
    fn a_reset_differs_from_an_orderly_end() {
        assert!(resets_on_close(ipproto::TCP, Some(Duration::ZERO)).unwrap());
        assert!(!resets_on_close(ipproto::TCP, None).unwrap());
    }

    #[test]
    fn the_time_is_zero_or_the_timeout() {
        let lingers = lingers_for();
        assert!(lingers.is_zero() || lingers == close_timeout(), "{lingers:?}");
    }
}
