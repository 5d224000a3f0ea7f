//! Dumps of the kernel's socket diagnostics: lists of all sockets of a protocol.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{DecodeError, NLM_F_DUMP_INTR, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{AF_INET, AF_INET6};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, send, socket_with,
};

use crate::message::messages;
use crate::record::{Record, request};

/// Longest datagram of an answer. The kernel sends up to 32 KiB.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Most sockets in a list: more than a host has ports, and seconds of work.
const MAX_SOCKETS: usize = 1 << 18;
/// How often a list is requested if it changes during the dump, or overruns the socket's buffer.
const ATTEMPTS: u32 = 5;
/// Longest wait for a datagram. The kernel makes the list while it is received, so a wait is a fault.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why there is no list of sockets.
#[derive(Debug, thiserror::Error)]
pub enum DiagError {
    /// The netlink socket cannot be opened.
    #[error("cannot open a netlink socket for socket diagnostics: {0}")]
    Open(#[source] io::Error),
    /// The netlink socket failed.
    #[error("socket diagnostics: {0}")]
    Io(#[source] io::Error),
    /// `ENOENT`
    #[error("this kernel cannot list {protocol} sockets; is there a module {protocol}_diag?")]
    NoDiag {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// The kernel refused the request.
    #[error("the kernel does not list {protocol} sockets: {source}")]
    Refused {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The list changed during each dump, or overran the socket's buffer.
    #[error("no complete list of {protocol} sockets in {ATTEMPTS} attempts")]
    Incomplete {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// The list is too long.
    #[error("more than {MAX_SOCKETS} {protocol} sockets")]
    TooMany {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// A datagram of the answer is too long.
    #[error("an answer of {length} bytes, longer than {DATAGRAM_BYTES}")]
    TooLong {
        /// Its length.
        length: usize,
    },
    /// The answer cannot be read.
    #[error("socket diagnostics: malformed answer: {0}")]
    Malformed(#[from] DecodeError),
}

/// The protocol whose sockets are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Protocol {
    Mptcp,
    Tcp,
}

impl Protocol {
    fn ip_protocol(self) -> rustix::net::Protocol {
        match self {
            Self::Mptcp => ipproto::MPTCP,
            Self::Tcp => ipproto::TCP,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mptcp => "mptcp",
            Self::Tcp => "tcp",
        }
    }
}

/// The sockets of `protocol`, IPv4 and IPv6, that are `wanted`. `most` is the largest possible number of them, if that is known.
/// With a remote port the kernel lists only sockets that lead there.
pub(crate) fn dump(
    protocol: Protocol,
    remote_port: Option<u16>,
    most: Option<usize>,
    wanted: impl Fn(&Record) -> bool,
) -> Result<Vec<Record>, DiagError> {
    let mut found = Vec::new();
    for family in [AF_INET, AF_INET6] {
        // The kernel walks its whole table for each list. It may list a socket twice.
        let cookies: BTreeSet<u64> = found.iter().map(|record: &Record| record.cookie).collect();
        if most == Some(cookies.len()) {
            break;
        }
        // Each attempt has a socket of its own, so that it cannot receive the rest of an earlier answer.
        let mut attempts = (0..ATTEMPTS).map(|_| attempt(family, protocol, remote_port, &wanted));
        let complete = attempts.find_map(Result::transpose);
        found.extend(complete.ok_or(DiagError::Incomplete { protocol: protocol.name() })??);
    }
    Ok(found)
}

/// A list. `None` if another attempt is due.
fn attempt(
    family: u8,
    protocol: Protocol,
    remote_port: Option<u16>,
    wanted: &impl Fn(&Record) -> bool,
) -> Result<Option<Vec<Record>>, DiagError> {
    let socket = open().map_err(|error| DiagError::Open(error.into()))?;
    let request = request(family, protocol.ip_protocol(), remote_port);
    send(&socket, &request, SendFlags::empty()).map_err(|error| DiagError::Io(error.into()))?;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    let mut dump = Dump::new(protocol);
    loop {
        // TRUNC: the length is that of the datagram, even if it is longer than the buffer.
        let length = match recv(&socket, &mut buffer[..], RecvFlags::TRUNC) {
            Ok((_, length)) => length,
            Err(Errno::INTR) => continue,
            Err(Errno::NOBUFS) => return Ok(None),
            Err(error) => return Err(DiagError::Io(error.into())),
        };
        let datagram = buffer.get(..length).ok_or(DiagError::TooLong { length })?;
        match dump.receive(datagram, wanted)? {
            Progress::More => {}
            Progress::Interrupted => return Ok(None),
            Progress::Complete => return Ok(Some(dump.found)),
        }
    }
}

fn open() -> Result<OwnedFd, Errno> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    // Connected to the kernel, the socket receives from no other process.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    Ok(socket)
}

/// How far a dump is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    /// Sockets came or went during the dump. The list may lack sockets that were there all the time.
    Interrupted,
    Complete,
}

/// A dump while its datagrams arrive.
#[derive(Debug)]
struct Dump {
    protocol: Protocol,
    found: Vec<Record>,
    listed: usize,
}

impl Dump {
    fn new(protocol: Protocol) -> Self {
        Self { protocol, found: Vec::new(), listed: 0 }
    }

    fn receive(&mut self, datagram: &[u8], wanted: impl Fn(&Record) -> bool) -> Result<Progress, DiagError> {
        for message in messages::<Record>(datagram) {
            let NetlinkMessage { header, payload, .. } = message?;
            if header.flags & NLM_F_DUMP_INTR != 0 {
                return Ok(Progress::Interrupted);
            }
            match payload {
                NetlinkPayload::Done(done) => return self.end(done.code),
                NetlinkPayload::Error(error) => return self.end(error.raw_code()),
                NetlinkPayload::InnerMessage(record) => {
                    self.listed += 1;
                    if self.listed > MAX_SOCKETS {
                        return Err(DiagError::TooMany { protocol: self.protocol.name() });
                    }
                    self.found.extend(Some(record).filter(&wanted));
                }
                _ => {}
            }
        }
        Ok(Progress::More)
    }

    /// The result of the last message: 0, or a negative error.
    fn end(&self, result: i32) -> Result<Progress, DiagError> {
        let protocol = self.protocol.name();
        match result.saturating_neg() {
            0 => Ok(Progress::Complete),
            error if error == Errno::NOENT.raw_os_error() => Err(DiagError::NoDiag { protocol }),
            error => Err(DiagError::Refused { protocol, source: io::Error::from_raw_os_error(error) }),
        }
    }
}

#[cfg(test)]
mod tests;
