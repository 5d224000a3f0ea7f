//! How connections end.

use std::io::{self, ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, bind, connect, ipproto, listen, socket_with, sockopt,
};

/// How long Linux goes on with a closed MPTCP socket if nothing says otherwise.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The end of a connection on this very host is there at once.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// For how long a closed MPTCP socket goes on sending what was written to it, though it was told to forget that (`SO_LINGER` with 0
/// seconds): zero with kernels that do as they are told, as with TCP.
///
/// Linux learned it in 2026; before that `close`, also that of a process that is killed, ends MPTCP connections in order, within
/// `net.mptcp.close_timeout`. It is tried out with a connection over loopback; where that is not possible the answer is that of an
/// old kernel.
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

    /// TCP has always done as it is told, which shows that the trial tells the two apart.
    #[test]
    fn a_reset_is_told_from_an_orderly_end() {
        assert!(resets_on_close(ipproto::TCP, Some(Duration::ZERO)).unwrap());
        assert!(!resets_on_close(ipproto::TCP, None).unwrap());
    }

    #[test]
    fn it_is_all_or_nothing() {
        let lingers = lingers_for();
        assert!(lingers.is_zero() || lingers == close_timeout(), "{lingers:?}");
    }
}
