//! Errors that end a connection.

use nvme_tcp::wire::{FatalError, PduError, PduField, PduType, TermReq};

/// A protocol violation by the host. Each one except [`TargetError::HostTerminated`] queues a terminate request: send the
/// pending bytes, then close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A malformed PDU header.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that is not allowed in this state, or not allowed from a host.
    #[error("{0:?} out of sequence")]
    OutOfSequence(PduType),
    /// More commands outstanding than the queue has entries.
    #[error("more commands outstanding than the submission queue's {entries} entries")]
    TooManyCommands {
        /// Entries of the queue.
        entries: u16,
    },
    /// More data in a capsule or `H2CData` than the announced limit.
    #[error("{pdu:?} with {bytes} bytes of data; the limit is {limit}")]
    TooMuchData {
        /// The PDU.
        pdu: PduType,
        /// Bytes it carries.
        bytes: u32,
        /// The limit.
        limit: u32,
    },
    /// `H2CData` without a matching R2T.
    #[error("H2CData for unknown transfer tag {ttag:#06x} of command {cid:#06x}")]
    UnknownTransfer {
        /// CCCID.
        cid: u16,
        /// TTAG.
        ttag: u16,
    },
    /// `H2CData` outside the range that the R2T requested.
    #[error("H2CData of {length} bytes at offset {offset}; the R2T requested {expected} to {end}")]
    DataOutOfRange {
        /// Its offset.
        offset: u32,
        /// Its length.
        length: u32,
        /// The expected offset.
        expected: u32,
        /// The end of the R2T.
        end: u32,
    },
    /// `LAST_PDU` is set too early, or not set at the end of an R2T's data.
    #[error("H2CData with LAST_PDU {last} at the wrong place")]
    WrongLast {
        /// The received flag.
        last: bool,
    },
    /// The host has ended the connection.
    #[error("the host terminated the connection: {}, information {:#x}", .0.fes, .0.fei)]
    HostTerminated(TermReq),
    /// The host has not proven itself. [`TargetQueue::authentication_error`](super::TargetQueue::authentication_error) says why.
    #[error("the authentication of the host failed")]
    NotAuthenticated,
    /// More bytes after the end of the connection.
    #[error("the connection is already terminated")]
    Terminated,
}

impl TargetError {
    /// The terminate request that reports this error, if one does.
    pub(super) fn term_req(&self) -> Option<TermReq> {
        let (fes, fei) = match *self {
            Self::Pdu(error) => error.fatal(),
            Self::OutOfSequence(_) | Self::TooManyCommands { .. } => (FatalError::PduSequence, 0),
            Self::TooMuchData { .. } => (FatalError::LimitExceeded, 0),
            Self::UnknownTransfer { .. } => (FatalError::InvalidHeaderField, PduField::Ttag.offset()),
            Self::DataOutOfRange { .. } => (FatalError::DataOutOfRange, 0),
            Self::WrongLast { .. } => (FatalError::InvalidHeaderField, PduField::Flags.offset()),
            Self::HostTerminated(_) | Self::NotAuthenticated | Self::Terminated => return None,
        };
        Some(TermReq { fes, fei })
    }
}
