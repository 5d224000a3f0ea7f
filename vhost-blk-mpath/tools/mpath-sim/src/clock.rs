//! The events of the whole stack.

use crate::net::{ConnId, Side};
use crate::timeline::Timeline;

/// Something that happens at a moment. The order of variants is the order within one moment only where the order of
/// scheduling does not decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// Bytes are due at this end.
    Deliver(ConnId, Side),
    /// The handshake of TCP is over, or refused.
    Established(ConnId),
    /// A reset arrives at this end.
    Reset(ConnId, Side),
    /// The kernel closes a socket of a daemon that was killed.
    Exit(ConnId),
    /// The daemon may serve.
    Serve,
    /// A look at the fences is due.
    Fences,
    /// A turn of an I/O thread.
    Thread(usize),
    /// The task of discovery has something to do.
    Discovery,
    /// The task of a path has something to do.
    Path(usize),
    /// The target executes a command.
    Execute(u64),
    /// A Cross-Controller Reset is done.
    CrossReset(u64),
    /// The target looks at a controller's keep-alive timer.
    KeepAlive(ConnId),
    /// The n-th fault begins.
    Begin(usize),
    /// The n-th fault ends.
    End(usize),
    /// A user of a disk has thought enough.
    Guest { disk: usize, user: usize },
    /// Every fault has ended.
    Quiet,
}

/// Time and the events to come.
pub(crate) type Clock = Timeline<Event>;
