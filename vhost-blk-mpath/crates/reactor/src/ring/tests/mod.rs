//! The ring and its slots on real sockets.

mod recv;
mod ring;
mod send;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use monotonic::{Duration, Instant};
use patience::PATIENCE as TIMEOUT;
use rustix::event::{EventfdFlags, eventfd};

use super::{Event, RecvSlot, Ring, SendPart, SendSlot, Sent, SimulatedRing, Uring};

const TOKEN: u64 = 42;

/// The next event.
fn event(ring: &mut Uring) -> Event {
    let (start, mut events) = (Instant::now(), Vec::new());
    while events.is_empty() {
        assert!(start.elapsed() < TIMEOUT.into(), "no event");
        ring.turn(Some(TIMEOUT.into()), &mut events).unwrap();
    }
    assert_eq!(events.len(), 1, "{events:?}");
    events[0]
}

fn no_event(ring: &mut Uring) {
    let mut events = Vec::new();
    ring.turn(Some(Duration::from_millis(1)), &mut events).unwrap();
    assert!(events.is_empty(), "{events:?}");
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i % 251) as u8).collect()
}

/// `bytes` as memory outside any slot.
fn outside(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// A connected socket and its other end.
fn pair() -> (OwnedFd, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    (here.into(), there)
}
