//! News of a path, for those who watch it.

use monotonic::Duration;
use mpath_core::Epoch;
use nvme_tcp::host::ControllerInfo;
use nvme_tcp::wire::Status;

use super::PathError;
use crate::disks::NamespaceUpdate;

/// A change of a path. The I/O threads have heard of it.
#[derive(Debug)]
pub enum PathNews<E: std::error::Error> {
    /// The path has an association, and the I/O threads have their queue pairs.
    Live {
        /// The controller.
        info: Box<ControllerInfo>,
        /// The state of each disk's namespace.
        namespaces: Vec<NamespaceUpdate>,
    },
    /// A disk's namespace has changed.
    Namespace(NamespaceUpdate),
    /// The path owes answers and is silent.
    Suspect,
    /// The path answers again.
    Recovered,
    /// The data digest of a command was wrong, on either side. The command is repeated.
    DigestError,
    /// A command ended with another error that has it repeated.
    CommandError(Status),
    /// The controller was found to accept no larger transfer than this.
    SmallerTransfer {
        /// The limit of one command.
        bytes: u32,
    },
    /// The path is being connected after it was disabled, refused or given up.
    Connecting,
    /// The path was lost, or an attempt to connect it failed. It reconnects by itself.
    Failed(PathError<E>),
    /// The path leads elsewhere. It reconnects only after an order.
    Refused(PathError<E>),
    /// The path had no connection for `ctrl-loss-tmo`. It reconnects only after an order.
    GaveUp {
        /// The value of `ctrl-loss-tmo`.
        after: Duration,
    },
    /// The path has no association, as ordered.
    Disabled,
    /// The path has no association and gets none: its removal has begun.
    RemovalBegun,
    /// The path is removed: forget it.
    Gone {
        /// The number of its last association.
        epoch: Epoch,
    },
}
