//! Why a path has no association.

use nvme_tcp::host::{ConfigError, ControllerError, QueueError};

use crate::disks::AdmitError;
use crate::settings::CONNECT_MAX;

/// Why a path has no association. `E` is the error of the caller that carries out the path's actions.
#[derive(Debug, thiserror::Error)]
pub enum PathError<E: std::error::Error> {
    /// A socket could not be connected, or the admin socket has failed.
    #[error(transparent)]
    Socket(E),
    /// A queue pair of an I/O thread has failed.
    #[error(transparent)]
    Lost(E),
    /// The association could not be recorded.
    #[error(transparent)]
    Record(E),
    /// The host lacks something that every path needs.
    #[error(transparent)]
    Host(E),
    /// A socket was not connected, or a handshake not done, in time.
    #[error("no answer within {} s", CONNECT_MAX.as_secs())]
    ConnectTimeout,
    /// The controller broke the protocol, or failed.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The controller refused an I/O queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The settings do not fit the controller.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The controller grants too few I/O queues for the virtqueues that run.
    #[error(
        "the controller grants {granted} I/O queues, and virtqueues run on {needed} I/O threads, of which each needs one; the path is used once \
         they have started again, on fewer threads: reset the guest, or have its front-end reconnect; or set `io-threads` to {granted} and restart; or raise the target's limit"
    )]
    Queues {
        /// The number of queues granted.
        granted: u16,
        /// The number of I/O threads with virtqueues.
        needed: u16,
    },
    /// No disk can use the path.
    #[error(transparent)]
    Admit(AdmitError<E>),
    /// The namespace of the association has changed. The next association may find it as it was, or accept what it
    /// finds.
    #[error("disk {disk}: {error}")]
    Changed {
        /// The name of the disk.
        disk: String,
        /// What is wrong with its namespace.
        error: AdmitError<E>,
    },
    /// The operator has reset the path.
    #[error("reset by the operator")]
    Reset,
}

impl<E: std::error::Error> PathError<E> {
    /// Whether the path leads elsewhere. Another attempt would then fail the same way.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Admit(error) if error.is_refusal())
    }

    /// Whether the admin queue has failed.
    pub(super) fn is_of_admin(&self) -> bool {
        matches!(self, Self::Socket(_) | Self::Controller(_))
    }
}
