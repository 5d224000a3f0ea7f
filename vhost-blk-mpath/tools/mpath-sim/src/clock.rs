//! The events of the whole stack.

use monotonic::Instant;

use crate::connection::{ConnId, Side};
use crate::timeline::Timeline;

/// An event of the simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Bytes are due at this end.
    Deliver(ConnId, Side),
    /// The handshake of TCP is over, or refused.
    Established(ConnId),
    /// A reset arrives at this end.
    Reset(ConnId, Side),
    /// The kernel closes a socket of a killed daemon.
    CloseSocket(ConnId),
    /// The fences of disks that were removed from this socket are over.
    ExpireFences { socket: usize },
    /// Fences are due.
    Fences,
    /// A turn of an I/O thread.
    IoThread(usize),
    /// The file of a disk is written, or the opening, the hold or the removal of a disk is due.
    Disks,
    /// A turn of the task of discovery.
    Discovery,
    /// A turn of the task of a path.
    Path(usize),
    /// The target executes a command.
    Execute(u64),
    /// A Cross-Controller Reset is done.
    CrossReset(u64),
    /// The target looks at a controller's keep-alive timer.
    KeepAlive(ConnId),
    /// The n-th fault begins.
    BeginFault(usize),
    /// The n-th fault ends.
    EndFault(usize),
    /// A user in a guest submits its next request.
    Guest { disk: usize, user: usize },
    /// Every fault has ended.
    Quiet,
}

/// Time and the events to come.
pub(crate) type Clock = Timeline<Event>;

/// The earliest of the times that are set.
pub(crate) fn earliest(times: impl IntoIterator<Item = Option<Instant>>) -> Option<Instant> {
    times.into_iter().flatten().min()
}
