//! The messages of DH-HMAC-CHAP (Base 8.3.4).
//!
//! Parsers accept bytes after a message, because Authentication Receive pads a message to the length that the host asked for.
//! Reserved bytes are written as zero and not checked. No parser panics on any input.

mod challenge;
mod error;
mod fields;
mod kind;
mod negotiate;
mod refusal;
mod reply;
mod success;
#[cfg(test)]
mod tests;

pub use challenge::Challenge;
pub use error::MessageError;
pub use kind::MessageKind;
pub use negotiate::Negotiate;
pub use refusal::{Explanation, Reason, Refusal};
pub use reply::Reply;
pub use success::Success1;

use crate::MESSAGE_BYTES_MAX;
use fields::Fields;

/// A message of an authentication transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// `AUTH_Negotiate`, from the host.
    Negotiate(Negotiate),
    /// `DH-HMAC-CHAP_Challenge`, from the controller.
    Challenge(Challenge),
    /// `DH-HMAC-CHAP_Reply`, from the host.
    Reply(Reply),
    /// `DH-HMAC-CHAP_Success1`, from the controller.
    Success1(Success1),
    /// `DH-HMAC-CHAP_Success2`, from the host.
    Success2 {
        /// `T_ID`.
        transaction: u16,
    },
    /// `AUTH_Failure1`, from the controller.
    Failure1(Refusal),
    /// `AUTH_Failure2`, from the host.
    Failure2(Refusal),
}

impl Message {
    /// Parses a message and ignores padding after it.
    ///
    /// # Errors
    /// The rule that the bytes violate. More than [`MESSAGE_BYTES_MAX`] bytes are refused unread.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(MessageError::TooLong { bytes: bytes.len() });
        }
        let &code = bytes.first_chunk().ok_or(MessageError::NoHeader { bytes: bytes.len() })?;
        let [auth_type, auth_id] = code;
        let kind = MessageKind::from_code(code).ok_or(MessageError::UnknownKind { auth_type, auth_id })?;
        let fields = Fields::new(kind, bytes)?;
        Ok(match kind {
            MessageKind::Negotiate => Self::Negotiate(Negotiate::parse(&fields)?),
            MessageKind::Challenge => Self::Challenge(Challenge::parse(&fields)?),
            MessageKind::Reply => Self::Reply(Reply::parse(&fields)?),
            MessageKind::Success1 => Self::Success1(Success1::parse(&fields)?),
            MessageKind::Success2 => Self::Success2 { transaction: fields.transaction() },
            MessageKind::Failure1 => Self::Failure1(Refusal::parse(&fields)),
            MessageKind::Failure2 => Self::Failure2(Refusal::parse(&fields)),
        })
    }

    /// The message in wire format.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.kind().fixed_bytes()];
        [bytes[0], bytes[1]] = self.kind().code();
        bytes[4..6].copy_from_slice(&self.transaction().to_le_bytes());
        match self {
            Self::Negotiate(message) => message.emit(&mut bytes),
            Self::Challenge(message) => message.emit(&mut bytes),
            Self::Reply(message) => message.emit(&mut bytes),
            Self::Success1(message) => message.emit(&mut bytes),
            Self::Success2 { .. } => (),
            Self::Failure1(message) | Self::Failure2(message) => message.emit(&mut bytes),
        }
        bytes
    }

    /// The kind of the message.
    #[must_use]
    pub const fn kind(&self) -> MessageKind {
        match self {
            Self::Negotiate(_) => MessageKind::Negotiate,
            Self::Challenge(_) => MessageKind::Challenge,
            Self::Reply(_) => MessageKind::Reply,
            Self::Success1(_) => MessageKind::Success1,
            Self::Success2 { .. } => MessageKind::Success2,
            Self::Failure1(_) => MessageKind::Failure1,
            Self::Failure2(_) => MessageKind::Failure2,
        }
    }

    /// `T_ID`: the transaction of the message. The host chooses it.
    #[must_use]
    pub const fn transaction(&self) -> u16 {
        match self {
            Self::Negotiate(Negotiate { transaction, .. })
            | Self::Challenge(Challenge { transaction, .. })
            | Self::Reply(Reply { transaction, .. })
            | Self::Success1(Success1 { transaction, .. })
            | Self::Success2 { transaction }
            | Self::Failure1(Refusal { transaction, .. })
            | Self::Failure2(Refusal { transaction, .. }) => *transaction,
        }
    }
}
