//! Events of paths, which an I/O thread reports.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use nvme_tcp::host::QueueError;
use nvme_tcp::wire::Status;
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
#[derive(Debug)]
pub enum PathEventKind<S = OwnedFd> {
    /// The connection failed. [`PathEventKind::Closed`] follows when its socket is closed.
    Lost(LossReason),
    /// The path owes answers and has sent nothing for too long.
    Suspect,
    /// A suspect path has sent something, and is not suspect any more.
    Recovered,
    /// A command ended with an ANA error: the ANA state may have changed without a notice.
    AnaError,
    /// A command ended because the controller does not have the namespace: it may have changed without a notice.
    InvalidNamespace,
    /// The data digest of a command was wrong, on either side. The command is repeated.
    DigestError,
    /// A command ended with another error that has it repeated. Reported once a minute at most, with one of the errors.
    CommandError(Status),
    /// The controller reports no MDTS and has refused larger reads or writes. They were repeated in smaller commands.
    SmallerTransfer {
        /// The most data of one command.
        bytes: u32,
    },
    /// The socket is closed, or passed on to drain. The kernel holds no buffer of it, and every request is queued again
    /// or held. The fence time starts here.
    Closed {
        /// The socket of [`CloseMode::Drain`](crate::CloseMode::Drain), in blocking mode, with its sending side closed.
        /// `None` also if the controller closed the connection first: that does not confirm this side's close.
        draining: Option<S>,
        /// Whether commands that change data are unanswered. They may be executed until the fence is lifted.
        in_doubt: bool,
    },
}

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
    Abandoned,
}
