//! What ends a connection.

use crate::wire::{FatalError, PduError, PduField, PduType, TermReq};

/// A fatal error of the host. All but [`TargetError::HostTerminated`] have queued a terminate request by the time
/// they are returned: send what is pending, then close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// A PDU header that cannot be.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that must not come now, or not from a host.
    #[error("{0:?} out of sequence")]
    OutOfSequence(PduType),
    /// More commands outstanding than the queue has entries.
    #[error("more commands outstanding than the submission queue's {entries} entries")]
    TooManyCommands {
        /// Entries of the queue.
        entries: u16,
    },
    /// More in-capsule data, or data in one `H2CData`, than was announced.
    #[error("{pdu:?} with {bytes} bytes of data, the limit is {limit}")]
    TooMuchData {
        /// The PDU.
        pdu: PduType,
        /// Bytes it carries.
        bytes: u32,
        /// The limit.
        limit: u32,
    },
    /// `H2CData` for a transfer that was never asked for.
    #[error("H2CData for unknown transfer tag {ttag:#06x} of command {cid:#06x}")]
    UnknownTransfer {
        /// CCCID.
        cid: u16,
        /// TTAG.
        ttag: u16,
    },
    /// `H2CData` outside what the R2T asked for.
    #[error("H2CData of {length} bytes at {offset} where {expected} to {end} was asked for")]
    DataOutOfRange {
        /// Its offset.
        offset: u32,
        /// Its length.
        length: u32,
        /// The offset that is due.
        expected: u32,
        /// The end of the R2T.
        end: u32,
    },
    /// `LAST_PDU` set too early, or not set at the end of an R2T's data.
    #[error("H2CData with LAST_PDU {last} at the wrong place")]
    WrongLast {
        /// The flag as it came.
        last: bool,
    },
    /// The host has ended the connection.
    #[error("the host terminated the connection: {}, information {:#x}", .0.fes, .0.fei)]
    HostTerminated(TermReq),
    /// Bytes after the end.
    #[error("the connection is terminated already")]
    Terminated,
}

impl TargetError {
    /// How a terminate request reports this, if it does.
    pub(super) fn term_req(&self) -> Option<TermReq> {
        let (fes, fei) = match *self {
            Self::Pdu(error) => error.fatal(),
            Self::OutOfSequence(_) | Self::TooManyCommands { .. } => (FatalError::PduSequence, 0),
            Self::TooMuchData { .. } => (FatalError::LimitExceeded, 0),
            Self::UnknownTransfer { .. } => (FatalError::InvalidHeaderField, PduField::Ttag.offset()),
            Self::DataOutOfRange { .. } => (FatalError::DataOutOfRange, 0),
            Self::WrongLast { .. } => (FatalError::InvalidHeaderField, PduField::Flags.offset()),
            Self::HostTerminated(_) | Self::Terminated => return None,
        };
        Some(TermReq { fes, fei })
    }
}
