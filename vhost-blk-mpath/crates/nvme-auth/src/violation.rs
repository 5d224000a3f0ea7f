//! Violations of the protocol by the peer, for both sides.

use crate::{DhValueError, Explanation, Hash, MessageError, MessageKind};

/// A rule of the protocol that the peer violates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A message is malformed.
    #[error(transparent)]
    Malformed(#[from] MessageError),
    /// A public Diffie-Hellman value is unusable.
    #[error(transparent)]
    DhValue(#[from] DhValueError),
    /// A message came at the wrong time.
    #[error("{got} came when {expected} was due")]
    Unexpected {
        /// The message that was due.
        expected: MessageKind,
        /// The message that came.
        got: MessageKind,
    },
    /// A message belongs to another transaction.
    #[error("a message of transaction {got} came in transaction {expected}")]
    Transaction {
        /// `T_ID` of the transaction.
        expected: u16,
        /// `T_ID` of the message.
        got: u16,
    },
    /// HL does not match the hash of the transaction.
    #[error("a digest of {hash} has {} bytes, but HL is {got}", .hash.bytes())]
    HashLength {
        /// The hash of the transaction.
        hash: Hash,
        /// HL: bytes of a digest.
        got: usize,
    },
    /// The host asks for a secure channel and sends no challenge C2.
    #[error("a secure channel was asked for without the challenge C2 that its key needs")]
    NoChallenge,
    /// The host asks for a proof of the controller with sequence number 0, which only a secure channel allows.
    #[error("the challenge C2 came with sequence number 0 and without a secure channel")]
    SequenceNumber,
}

impl Violation {
    /// The explanation to send to the peer.
    pub(crate) const fn explanation(&self) -> Explanation {
        match self {
            Self::Malformed(MessageError::NoProtocol { .. }) => Explanation::ProtocolUnusable,
            Self::Malformed(MessageError::UnknownKind { .. }) | Self::Unexpected { .. } | Self::Transaction { .. } => {
                Explanation::IncorrectMessage
            }
            Self::Malformed(_)
            | Self::DhValue(_)
            | Self::HashLength { .. }
            | Self::NoChallenge
            | Self::SequenceNumber => Explanation::IncorrectPayload,
        }
    }
}
