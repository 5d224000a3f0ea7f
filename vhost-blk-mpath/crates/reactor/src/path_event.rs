//! Events of paths, which an I/O thread reports.

use std::io;
use std::os::fd::OwnedFd;

use monotonic::Duration;
use mpath_core::{Epoch, PathId};
use mpath_lifecycle::Report;
use nvme_tcp::host::QueueError;
use nvme_tls::TlsError;

/// An event of the queue pair of one path.
#[derive(Debug)]
pub struct PathEvent<S = OwnedFd> {
    /// The path.
    pub path: PathId,
    /// The epoch of its association.
    pub epoch: Epoch,
    /// The event.
    pub kind: PathEventKind<S>,
}

/// The kind of a [`PathEvent`].
pub type PathEventKind<S = OwnedFd> = Report<LossReason, S>;

/// Why a queue pair was lost.
#[derive(Debug, thiserror::Error)]
pub enum LossReason {
    /// The socket failed, or the controller closed it.
    #[error("connection lost: {0}")]
    Socket(#[source] io::Error),
    /// The controller broke the protocol.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// Reading failed: the controller closed the TLS connection, or a record is not authentic.
    #[error("connection lost: {0}")]
    Tls(#[from] TlsError),
    /// A command was not answered within the I/O timeout. The path may have answered others.
    #[error("a command was not answered within the io-timeout of {} s", _0.as_secs_f64())]
    TimedOut(Duration),
    /// A virtqueue had to stop, and this path held its requests for too long.
    #[error("requests did not complete within the time that a virtqueue has to drain")]
    GivenUp,
}
