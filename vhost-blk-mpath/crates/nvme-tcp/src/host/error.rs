//! Errors that end a connection.

use crate::wire::{ConnectField, Digests, FatalError, PduError, PduField, PduType, Status, TermReq};

/// Why a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// Connect failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The controller violated the protocol, or has terminated the connection because of a violation by this host.
    #[error("protocol violation: {0}")]
    Protocol(#[from] ProtocolError),
}

impl QueueError {
    /// The terminate request that reports this error (TCP Transport 3.6.2.3). `None` for a rejected Connect, which violates no
    /// protocol, and for a connection that the controller has terminated.
    pub(super) fn term_req(&self) -> Option<TermReq> {
        let (fes, fei) = match self {
            Self::Connect(ConnectError::Digests { .. }) => (FatalError::InvalidHeaderField, ICRESP_DGST_OFFSET),
            Self::Connect(_) => return None,
            Self::Protocol(error) => error.fatal()?,
        };
        Some(TermReq { fes, fei })
    }
}

/// Offset of DGST in `ICResp`.
const ICRESP_DGST_OFFSET: u32 = 11;
/// Offset of CID in a response capsule: bytes 12 and 13 of the completion.
const RESPONSE_CID_OFFSET: u32 = 20;

impl From<PduError> for QueueError {
    fn from(error: PduError) -> Self {
        Self::Protocol(ProtocolError::Pdu(error))
    }
}

/// An explanation for the field that users most often get wrong.
fn unknown_subsystem(field: ConnectField) -> &'static str {
    if field == ConnectField::Subnqn { ": the target has no subsystem of this NQN" } else { "" }
}

/// An explanation for the status that a missing permission on the target causes.
fn refused_host(status: Status) -> &'static str {
    if status.is(Status::CONNECT_INVALID_HOST) {
        ": the target does not allow this host NQN; allow it there, or correct `hostnqn`"
    } else {
        ""
    }
}

/// Why Connect, or the authentication that follows it, did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// A parameter is invalid, most often SUBNQN or HOSTNQN.
    #[error("Connect rejected: Connect Invalid Parameters ({field}){}", unknown_subsystem(*field))]
    InvalidParameters {
        /// The invalid field.
        field: ConnectField,
    },
    /// Any other status.
    #[error("Connect rejected: {status}{}", refused_host(*status))]
    Rejected {
        /// The status.
        status: Status,
    },
    /// ATR: the controller requires authentication, and this host has no secret.
    #[error(
        "the controller requires authentication (DH-HMAC-CHAP), and this host has no secret for it; set `dhchap-secret-file`, or \
         let this host NQN connect without authentication on the target"
    )]
    AuthenticationRequired,
    /// ASCR: the controller requires a secure channel, and the connection is in clear text.
    #[error(
        "the controller requires authentication with secure channel concatenation, and this connection is in clear text; set \
         `concat`, or let this host NQN connect without a secure channel on the target"
    )]
    SecureChannelRequired,
    /// This host has a secret of the controller, and the controller does not ask for authentication.
    #[error(
        "the controller does not authenticate: it asks for no authentication, so it does not prove itself; give the target the \
         secrets for this host NQN, or remove `dhchap-ctrl-secret-file`"
    )]
    ControllerNotAuthenticated,
    /// The authentication failed.
    #[error("authentication failed: {0}")]
    Authentication(Box<nvme_auth::HostError>),
    /// A command of the authentication failed.
    #[error(
        "authentication failed: the controller answered {command} with {status}; check that the target has the secret of this host \
         NQN, and see its log"
    )]
    AuthenticationCommand {
        /// The command.
        command: AuthenticationCommand,
        /// Its status.
        status: Status,
    },
    /// The configuration of the authentication cannot work.
    #[error(transparent)]
    AuthenticationConfig(#[from] nvme_auth::ConfigError),
    /// The connection leads to another controller.
    #[error("connected to controller {got:#06x} instead of {wanted:#06x}")]
    WrongController {
        /// The requested CNTLID.
        wanted: u16,
        /// The CNTLID that the controller reports.
        got: u16,
    },
    /// The controller enables other digests than requested.
    #[error("digests refused: requested {asked:?}, got {got:?}")]
    Digests {
        /// Requested in `ICReq`.
        asked: Digests,
        /// Enabled in `ICResp`.
        got: Digests,
    },
}

/// A command of the authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthenticationCommand {
    /// Authentication Send.
    Send,
    /// Authentication Receive.
    Receive,
}

impl std::fmt::Display for AuthenticationCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Send => "Authentication Send",
            Self::Receive => "Authentication Receive",
        })
    }
}

/// A protocol violation by the controller. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A malformed PDU or a header digest mismatch.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that is not allowed in this state, or not allowed to a host.
    #[error("unexpected {pdu:?}")]
    UnexpectedPdu {
        /// The PDU.
        pdu: PduType,
    },
    /// No command in flight has this CID: it was never issued, has completed, or has an earlier generation.
    #[error("{pdu:?}: no command with CID {cid:#06x} is in flight")]
    UnknownCid {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
    },
    /// `C2HData` for a command that does not read, or R2T for a command that does not write.
    #[error("{pdu:?}: command {cid:#06x} moves no data that way")]
    WrongDirection {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
    },
    /// A `C2HData` or R2T that does not start where the last one ended.
    #[error("{pdu:?}: command {cid:#06x} is at offset {expected}, not {got}")]
    Offset {
        /// The PDU.
        pdu: PduType,
        /// CCCID.
        cid: u16,
        /// The end of the last one.
        expected: u32,
        /// Its offset.
        got: u32,
    },
    /// A `C2HData` or R2T beyond the end of the command's data.
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
    /// An R2T of length 0.
    #[error("R2T: length 0 for command {cid:#06x}")]
    EmptyR2t {
        /// CCCID.
        cid: u16,
    },
    /// More outstanding R2Ts for one command than MAXR2T allows.
    #[error("R2T: more than {limit} outstanding for command {cid:#06x}")]
    R2tLimit {
        /// CCCID.
        cid: u16,
        /// The allowed number.
        limit: u8,
    },
    /// A command succeeded before all of its data were moved.
    #[error(
        "command {cid:#06x} was answered with success before all of its {total} bytes were moved ({moved} received or requested)"
    )]
    ShortData {
        /// CID.
        cid: u16,
        /// Bytes received or, for a write, requested.
        moved: u32,
        /// Bytes of the command's data.
        total: u32,
    },
    /// A response to a command whose capsule is not encoded completely. This includes an error status: a controller cannot judge
    /// a capsule that has not arrived, and it might execute the rest of the capsule.
    #[error("command {cid:#06x} was answered before its capsule was sent")]
    EarlyResponse {
        /// CID.
        cid: u16,
    },
    /// `C2HTermReq`: the controller reports a violation by this host.
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
