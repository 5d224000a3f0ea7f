//! Reports of I/O threads about a path.

use nvme_tcp::wire::Status;

/// A report of an I/O thread about its queue pair of an association. `L`: why it was lost; `S`: a half-closed socket.
#[derive(Debug)]
pub enum Report<L, S> {
    /// The connection has failed. [`Report::Closed`] follows when its socket is closed.
    Lost(L),
    /// The socket is closed, or passed on half-closed. The kernel holds no buffer of it, and every request is queued again
    /// or held. The fence time starts here.
    Closed {
        /// The socket, in blocking mode, if only its sending side is closed yet. `None` also if the controller closed the
        /// connection first: that does not confirm this side's close.
        half_closed: Option<S>,
        /// Whether commands that change data are unanswered. They may be executed until the fence is lifted.
        in_doubt: bool,
    },
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
}

impl<L, S> Report<L, S> {
    /// The same report with another reason or socket.
    pub fn map<M, T>(self, lost: impl FnOnce(L) -> M, half_closed: impl FnOnce(S) -> T) -> Report<M, T> {
        match self {
            Self::Lost(reason) => Report::Lost(lost(reason)),
            Self::Closed { half_closed: socket, in_doubt } => {
                Report::Closed { half_closed: socket.map(half_closed), in_doubt }
            }
            Self::Suspect => Report::Suspect,
            Self::Recovered => Report::Recovered,
            Self::AnaError => Report::AnaError,
            Self::InvalidNamespace => Report::InvalidNamespace,
            Self::DigestError => Report::DigestError,
            Self::CommandError(status) => Report::CommandError(status),
            Self::SmallerTransfer { bytes } => Report::SmallerTransfer { bytes },
        }
    }
}
