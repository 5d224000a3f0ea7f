//! Why a path has no association.

use nvme_tcp::host::{ConfigError, ControllerError, QueueError};

use crate::disks::AdmitError;
use crate::settings::CONNECT_MAX;

/// Why a path has no association. `E` is what those say that the path's actions are for.
#[derive(Debug, thiserror::Error)]
pub enum PathError<E: std::error::Error> {
    /// A socket could not be connected, or the admin socket has failed.
    #[error(transparent)]
    Socket(E),
    /// A queue pair of an I/O thread has failed.
    #[error(transparent)]
    Lost(E),
    /// The association could not be written down.
    #[error(transparent)]
    Record(E),
    /// The host cannot use any path.
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
    /// The settings do not fit what the controller says.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The controller has too few I/O queues.
    #[error(
        "the controller grants {granted} I/O queues, {wanted} are needed: one an I/O thread; lower io-threads or raise the target's limit"
    )]
    Queues {
        /// How many it grants.
        granted: u16,
        /// How many there are I/O threads.
        wanted: u16,
    },
    /// No disk can use the path.
    #[error(transparent)]
    Admit(AdmitError<E>),
    /// What an association was made for is no longer so: another one may find it as it was, or what is there now.
    #[error("for {disk}: {error}")]
    Changed {
        /// The disk's name.
        disk: String,
        /// What is wrong with its namespace.
        error: AdmitError<E>,
    },
    /// The operator has reset the path.
    #[error("reset by the operator")]
    Reset,
}

impl<E: std::error::Error> PathError<E> {
    /// The path leads elsewhere, and another attempt would find the same.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Admit(error) if error.is_refusal())
    }

    /// The admin queue has failed.
    pub(super) fn is_of_admin(&self) -> bool {
        matches!(self, Self::Socket(_) | Self::Controller(_))
    }
}
