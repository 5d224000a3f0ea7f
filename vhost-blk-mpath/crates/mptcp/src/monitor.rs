//! Waits for events of links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, connect, recv, socket_with};

use crate::link::{LinkEvent, events};

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV6_IFADDR`
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Longest datagram that is read. A link with many virtual functions takes some KiB.
const DATAGRAM_BYTES: usize = 64 << 10;
/// Most datagrams of one wait. The events of the first datagram must not wait for the last datagram of a flood.
const DATAGRAMS_MAX: usize = 64;

/// A socket that receives every change of the links, and of their addresses, of its network namespace.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// The reason why a wait ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// The descriptor `stop` can be read from.
    Stopped,
    /// Events arrived. The list is empty after a timeout, or if no event is of interest.
    Events(Vec<LinkEvent>),
}

impl LinkMonitor {
    /// Opens the socket. [`wait`](Self::wait) reports all changes from now on.
    pub fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Protocol 0 is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        // Connected to the kernel, the socket receives from no other process.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, buffer: vec![0; DATAGRAM_BYTES] })
    }

    /// Waits until there is an event, `stop` can be read from or `timeout` has passed.
    pub fn wait(&mut self, stop: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Woken> {
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut both =
            [PollFd::new(&stop, PollFlags::IN), PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut both, timeout.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Woken::Events(Vec::new())),
            Err(error) => return Err(error.into()),
        }
        if !both[0].revents().is_empty() {
            return Ok(Woken::Stopped);
        }
        let mut all = Vec::new();
        for _ in 0..DATAGRAMS_MAX {
            // TRUNC: the length is that of the datagram, even if it is longer than the buffer.
            match recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok((_, length)) => match self.buffer.get(..length) {
                    Some(datagram) => all.extend(events(datagram)),
                    None => all.push(LinkEvent::Missed),
                },
                Err(Errno::AGAIN) => break,
                Err(Errno::NOBUFS) => all.push(LinkEvent::Missed),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Woken::Events(all))
    }
}
