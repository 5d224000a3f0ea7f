//! Malformed messages.

use super::MessageKind;
use crate::MESSAGE_BYTES_MAX;

/// Why bytes are not a message. Lengths are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// More bytes than any message has.
    #[error("an authentication message of {bytes} bytes exceeds {MESSAGE_BYTES_MAX}")]
    TooLong {
        /// Bytes received.
        bytes: usize,
    },
    /// Too few bytes for `AUTH_TYPE` and `AUTH_ID`.
    #[error("an authentication message of {bytes} bytes has no type")]
    NoHeader {
        /// Bytes received.
        bytes: usize,
    },
    /// `AUTH_TYPE` and `AUTH_ID` belong to no message.
    #[error("no authentication message has type {auth_type:#04x} and identifier {auth_id:#04x}")]
    UnknownKind {
        /// `AUTH_TYPE`.
        auth_type: u8,
        /// `AUTH_ID`.
        auth_id: u8,
    },
    /// The message ends early.
    #[error("{kind} has {bytes} bytes and needs {needed}")]
    TooShort {
        /// The message.
        kind: MessageKind,
        /// Bytes received.
        bytes: usize,
        /// Bytes that its length fields ask for.
        needed: usize,
    },
    /// A field has a value that the specification does not allow.
    #[error("{kind}: field {field} has value {value}, allowed is {allowed}")]
    Field {
        /// The message.
        kind: MessageKind,
        /// Name of the field in the specification.
        field: &'static str,
        /// The value.
        value: u32,
        /// The allowed values.
        allowed: &'static str,
    },
    /// `AUTH_Negotiate` does not offer DH-HMAC-CHAP.
    #[error("AUTH_Negotiate offers {offered} protocols, and none is DH-HMAC-CHAP")]
    NoProtocol {
        /// NAPD: the number of protocols.
        offered: u8,
    },
}
