//! Asks the kernel for lists of sockets.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with};
use zerocopy::FromBytes;

use crate::netlink::{DONE, DUMP, DUMP_INTERRUPTED, ERROR, Malformed, Message, REQUEST, emit, messages};
use crate::record::{BY_FAMILY, INET, INET6, Record, request};

/// Largest piece of an answer; the kernel makes them of up to 32 KiB.
const PIECE_BYTES: usize = 64 << 10;
/// Most sockets that a list may have: more than a host has ports for, and seconds of work.
const MAX_SOCKETS: usize = 1 << 18;
/// How often a list is asked for that changed while it was made, or did not fit the socket's buffer.
const ATTEMPTS: u32 = 5;
/// The kernel makes a list while it is received: waiting means that something is wrong.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Why the kernel's lists of sockets cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DiagError {
    /// There can be no socket for asking.
    #[error("cannot open a netlink socket for socket diagnostics: {0}")]
    Open(#[source] io::Error),
    /// The socket for asking failed.
    #[error("socket diagnostics: {0}")]
    Io(#[source] io::Error),
    /// `ENOENT`: no such list.
    #[error("this kernel cannot list {protocol} sockets; is there a module {protocol}_diag?")]
    NoDiag {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// The kernel does not list them.
    #[error("the kernel does not list {protocol} sockets: {source}")]
    Refused {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
        /// Its reason.
        source: io::Error,
    },
    /// It kept changing, or did not fit the buffer.
    #[error("no complete list of {protocol} sockets in {ATTEMPTS} attempts")]
    Incomplete {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// Too long to read.
    #[error("more than {MAX_SOCKETS} {protocol} sockets")]
    TooMany {
        /// `mptcp` or `tcp`.
        protocol: &'static str,
    },
    /// A piece of an answer that is larger than any should be.
    #[error("an answer of {length} bytes, where there are at most {PIECE_BYTES}")]
    TooLarge {
        /// Its size.
        length: usize,
    },
    /// The kernel's answer cannot be read.
    #[error("socket diagnostics: malformed answer: {0}")]
    Malformed(#[from] Malformed),
}

/// The protocol whose sockets are listed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Protocol {
    Mptcp,
    Tcp,
}

impl Protocol {
    fn number(self) -> u32 {
        match self {
            Self::Mptcp => 262,
            Self::Tcp => 6,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mptcp => "mptcp",
            Self::Tcp => "tcp",
        }
    }
}

/// The sockets of `protocol`, IPv4 and IPv6, that are `wanted`.
pub(crate) fn list(protocol: Protocol, wanted: impl Fn(&Record) -> bool) -> Result<Vec<Record>, DiagError> {
    let mut found = Vec::new();
    for family in [INET, INET6] {
        // A new socket each time: the rest of an answer that is given up must not be taken for the next one.
        let mut attempts = (0..ATTEMPTS).map(|_| attempt(family, protocol, &wanted));
        let complete = attempts.find_map(Result::transpose);
        found.extend(complete.ok_or(DiagError::Incomplete { protocol: protocol.name() })??);
    }
    Ok(found)
}

/// A list, or none if it is to be asked for again.
fn attempt(
    family: u8,
    protocol: Protocol,
    wanted: &impl Fn(&Record) -> bool,
) -> Result<Option<Vec<Record>>, DiagError> {
    let socket = open().map_err(|error| DiagError::Open(error.into()))?;
    let request = emit(BY_FAMILY, REQUEST | DUMP, &request(family, protocol.number()));
    send(&socket, &request, SendFlags::empty()).map_err(|error| DiagError::Io(error.into()))?;
    let mut buffer = vec![0; PIECE_BYTES];
    let mut answer = Answer::new(protocol);
    loop {
        // TRUNC: the length is that of the piece, also if that is larger than the buffer.
        let length = match recv(&socket, &mut buffer[..], RecvFlags::TRUNC) {
            Ok((_, length)) => length,
            Err(Errno::INTR) => continue,
            Err(Errno::NOBUFS) => return Ok(None),
            Err(error) => return Err(DiagError::Io(error.into())),
        };
        let piece = buffer.get(..length).ok_or(DiagError::TooLarge { length })?;
        match answer.take(piece, wanted)? {
            Progress::More => {}
            Progress::Changed => return Ok(None),
            Progress::Complete => return Ok(Some(answer.found)),
        }
    }
}

fn open() -> Result<OwnedFd, Errno> {
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?;
    // To the kernel, and so from no one else.
    connect(&socket, &SocketAddrNetlink::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
    Ok(socket)
}

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    More,
    /// Sockets came or went while the list was made: it may lack some that were there all the time.
    Changed,
    Complete,
}

/// An answer that comes in pieces.
#[derive(Debug)]
struct Answer {
    protocol: Protocol,
    found: Vec<Record>,
    listed: usize,
}

impl Answer {
    fn new(protocol: Protocol) -> Self {
        Self { protocol, found: Vec::new(), listed: 0 }
    }

    fn take(&mut self, piece: &[u8], wanted: impl Fn(&Record) -> bool) -> Result<Progress, DiagError> {
        let protocol = self.protocol.name();
        for message in messages(piece) {
            let message = message?;
            if message.flags & DUMP_INTERRUPTED != 0 {
                return Ok(Progress::Changed);
            }
            match message.kind {
                ERROR | DONE => return self.end(&message),
                BY_FAMILY => {
                    self.listed += 1;
                    if self.listed > MAX_SOCKETS {
                        return Err(DiagError::TooMany { protocol });
                    }
                    self.found.extend(Record::parse(&message)?.filter(&wanted));
                }
                _ => {}
            }
        }
        Ok(Progress::More)
    }

    /// The last message begins with 0, or an error that is negative.
    fn end(&self, message: &Message<'_>) -> Result<Progress, DiagError> {
        let protocol = self.protocol.name();
        let &Message { kind, payload, .. } = message;
        let (result, _) =
            i32::read_from_prefix(payload).map_err(|_| Malformed::ShortMessage { kind, length: payload.len() })?;
        if result == 0 {
            return Ok(Progress::Complete);
        }
        if result == -Errno::NOENT.raw_os_error() {
            return Err(DiagError::NoDiag { protocol });
        }
        Err(DiagError::Refused { protocol, source: io::Error::from_raw_os_error(result.saturating_neg()) })
    }
}

#[cfg(test)]
#[path = "dump_tests.rs"]
mod tests;
