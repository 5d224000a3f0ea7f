//! What can end a connection.

use crate::wire::{ConnectField, Digests, FatalError, PduError, PduField, PduType, Status, TermReq};

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The controller does not want this queue.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The controller broke the protocol, or says that we did.
    #[error("protocol violation: {0}")]
    Protocol(#[from] ProtocolError),
}

impl QueueError {
    /// How a terminate request reports this, if it does (TCP Transport 3.6.2.3): a refused Connect breaks no protocol, and a
    /// controller that has terminated the connection itself is told nothing.
    pub(super) fn term_req(&self) -> Option<TermReq> {
        let (fes, fei) = match *self {
            Self::Connect(ConnectError::Digests { .. }) => (FatalError::InvalidHeaderField, ICRESP_DGST_OFFSET),
            Self::Connect(_) => return None,
            Self::Protocol(error) => error.fatal()?,
        };
        Some(TermReq { fes, fei })
    }
}

/// Where DGST lies in `ICResp`.
const ICRESP_DGST_OFFSET: u32 = 11;
/// Where CID lies in a response capsule: in bytes 12 and 13 of the completion.
const RESPONSE_CID_OFFSET: u32 = 20;

impl From<PduError> for QueueError {
    fn from(error: PduError) -> Self {
        Self::Protocol(ProtocolError::Pdu(error))
    }
}

/// What the one field that users get wrong means.
fn unknown_subsystem(field: ConnectField) -> &'static str {
    if field == ConnectField::Subnqn { ": the target has no subsystem of this NQN" } else { "" }
}

/// Why Connect did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A parameter is wrong, most often SUBNQN or HOSTNQN.
    #[error("Connect rejected: Connect Invalid Parameters ({field}){}", unknown_subsystem(*field))]
    InvalidParameters {
        /// Which one.
        field: ConnectField,
    },
    /// Any other status.
    #[error("Connect rejected: {status}")]
    Rejected {
        /// The status.
        status: Status,
    },
    /// ATR or ASCR: the controller asks for authentication.
    #[error("the controller requires authentication, which is not configured")]
    AuthenticationRequired,
    /// An I/O queue found itself at another controller.
    #[error("connected to controller {got:#06x} instead of {wanted:#06x}")]
    WrongController {
        /// CNTLID asked for.
        wanted: u16,
        /// CNTLID in the result.
        got: u16,
    },
    /// Header and data digests are not the ones asked for.
    #[error("digests refused: asked for {asked:?}, got {got:?}")]
    Digests {
        /// Asked for in `ICReq`.
        asked: Digests,
        /// Enabled in `ICResp`.
        got: Digests,
    },
}

/// How the controller broke the protocol. All of these end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A malformed PDU, or a header digest mismatch.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that must not come now, or never to a host.
    #[error("unexpected {pdu:?}")]
    UnexpectedPdu {
        /// The PDU.
        pdu: PduType,
    },
    /// A CID that names no command in flight: never issued, completed already, or of an earlier generation.
    #[error("{pdu:?}: no command with CID {cid:#06x} is in flight")]
    UnknownCid {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
    },
    /// `C2HData` for a command that reads nothing, or R2T for one that writes nothing.
    #[error("{pdu:?}: command {cid:#06x} moves no data that way")]
    WrongDirection {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
    },
    /// `C2HData` or R2T that does not go on where the last one ended.
    #[error("{pdu:?}: command {cid:#06x} is at offset {expected}, not {got}")]
    Offset {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
        /// Where the last one ended.
        expected: u32,
        /// Its offset.
        got: u32,
    },
    /// `C2HData` or R2T beyond the command's data.
    #[error("{pdu:?}: {length} bytes at {offset} exceed the {total} of command {cid:#06x}")]
    Overrun {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
        /// Its offset.
        offset: u32,
        /// Its length.
        length: u32,
        /// Bytes of the command's data.
        total: u32,
    },
    /// An R2T that asks for nothing.
    #[error("R2T: length 0 for command {cid:#06x}")]
    EmptyR2t {
        /// CCCID.
        cid: u16,
    },
    /// More R2Ts outstanding for one command than MAXR2T allows.
    #[error("R2T: more than {limit} outstanding for command {cid:#06x}")]
    R2tLimit {
        /// CCCID.
        cid: u16,
        /// How many are allowed.
        limit: u8,
    },
    /// A command that succeeded although not all of its data were moved.
    #[error(
        "command {cid:#06x} was answered with success before all of its {total} bytes were moved ({moved} received or asked for)"
    )]
    ShortData {
        /// CID.
        cid: u16,
        /// Bytes moved or, for a write, asked for.
        moved: u32,
        /// Bytes of the command's data.
        total: u32,
    },
    /// A response to a command whose capsule has not been laid out to its end. An error is no better than success: nobody can judge a
    /// capsule that has not come, and what would go out in place of the rest might be executed.
    #[error("command {cid:#06x} was answered before its capsule was sent")]
    EarlyResponse {
        /// CID.
        cid: u16,
    },
    /// `C2HTermReq`: the controller says that we broke the protocol.
    #[error("the controller terminated the connection: {fes} (information {fei:#x})")]
    Terminated {
        /// Fatal Error Status.
        fes: FatalError,
        /// Fatal Error Information.
        fei: u32,
    },
}

impl ProtocolError {
    /// Fatal Error Status and Fatal Error Information.
    fn fatal(&self) -> Option<(FatalError, u32)> {
        let cid_of = |pdu| if pdu == PduType::CapsuleResp { RESPONSE_CID_OFFSET } else { PduField::Cid.offset() };
        Some(match *self {
            Self::Pdu(error) => error.fatal(),
            Self::UnexpectedPdu { .. } | Self::ShortData { .. } | Self::EarlyResponse { .. } => {
                (FatalError::PduSequence, 0)
            }
            Self::UnknownCid { pdu, .. } | Self::WrongDirection { pdu, .. } => {
                (FatalError::InvalidHeaderField, cid_of(pdu))
            }
            Self::Offset { .. } => (FatalError::InvalidHeaderField, PduField::DataOffset.offset()),
            Self::EmptyR2t { .. } => (FatalError::InvalidHeaderField, PduField::DataLength.offset()),
            Self::Overrun { .. } => (FatalError::DataOutOfRange, 0),
            Self::R2tLimit { .. } => (FatalError::LimitExceeded, 0),
            Self::Terminated { .. } => return None,
        })
    }
}
