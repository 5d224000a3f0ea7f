//! A queue pair that an I/O thread takes over, and how its connection is closed.

use std::os::fd::OwnedFd;

use monotonic::Duration;
use nvme_tcp::host::HostQueue;
use nvme_tls::Session;

/// A connected queue pair of a path, for an I/O thread.
pub struct ConnectedQueuePair<S = OwnedFd> {
    /// A connected socket, in blocking mode as `io_uring` needs it, and with `TCP_NODELAY`.
    pub socket: S,
    /// The queue pair. Its Connect command has succeeded.
    pub queue: HostQueue,
    /// The TLS session over the socket, if the path uses TLS. Its handshake is over.
    pub tls: Option<Session>,
    /// Delays before a retry that the controller asks for: `CRDT1` to `CRDT3` (Identify Controller, bytes 128–133).
    pub retry_delays: [Duration; 3],
    /// How to close a connection that works and answers too late. A failed one is closed with [`CloseMode::Reset`].
    pub close_mode: CloseMode,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// With RST: the kernel discards undelivered data.
    Reset,
    /// First only the sending side. The new owner of the socket waits for the controller to close the other side. The
    /// controller may have promised to do that only after it has executed everything it received.
    HalfClose,
}

impl CloseMode {
    /// [`Self::HalfClose`] or not.
    #[must_use]
    pub fn with_half_close(half_close: bool) -> Self {
        if half_close { Self::HalfClose } else { Self::Reset }
    }
}
