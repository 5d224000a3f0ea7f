//! `AUTH_Failure1` of a controller and `AUTH_Failure2` of a host (Base 8.3.4).

use super::fields::Fields;

/// The content of `AUTH_Failure1` and `AUTH_Failure2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// `T_ID`.
    pub transaction: u16,
    /// The reason code.
    pub reason: Reason,
    /// The reason code explanation.
    pub explanation: Explanation,
}

/// The reason code. The specification defines one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// 01h: the authentication failed.
    AuthenticationFailed,
    /// Another code.
    Other(u8),
}

impl Reason {
    /// The value on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::AuthenticationFailed => 1,
            Self::Other(code) => code,
        }
    }

    /// The reason of a value on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        if code == 1 { Self::AuthenticationFailed } else { Self::Other(code) }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AuthenticationFailed => f.write_str("authentication failed"),
            Self::Other(code) => write!(f, "unknown reason {code:#04x}"),
        }
    }
}

/// The reason code explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Explanation {
    /// 01h: a response is wrong.
    AuthenticationFailed,
    /// 02h: no offered protocol is usable.
    ProtocolUnusable,
    /// 03h: the two sides want different secure channels.
    ConcatenationMismatch,
    /// 04h: no hash is usable.
    HashUnusable,
    /// 05h: no Diffie-Hellman group is usable.
    GroupUnusable,
    /// 06h: a message is malformed.
    IncorrectPayload,
    /// 07h: a message came at the wrong time.
    IncorrectMessage,
    /// Another code.
    Other(u8),
}

impl Explanation {
    /// The value on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::AuthenticationFailed => 1,
            Self::ProtocolUnusable => 2,
            Self::ConcatenationMismatch => 3,
            Self::HashUnusable => 4,
            Self::GroupUnusable => 5,
            Self::IncorrectPayload => 6,
            Self::IncorrectMessage => 7,
            Self::Other(code) => code,
        }
    }

    /// The explanation of a value on the wire.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::AuthenticationFailed,
            2 => Self::ProtocolUnusable,
            3 => Self::ConcatenationMismatch,
            4 => Self::HashUnusable,
            5 => Self::GroupUnusable,
            6 => Self::IncorrectPayload,
            7 => Self::IncorrectMessage,
            _ => Self::Other(code),
        }
    }
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AuthenticationFailed => "the response is wrong",
            Self::ProtocolUnusable => "no offered authentication protocol is usable",
            Self::ConcatenationMismatch => "the two sides want different secure channels",
            Self::HashUnusable => "no hash is usable",
            Self::GroupUnusable => "no Diffie-Hellman group is usable",
            Self::IncorrectPayload => "a message is malformed",
            Self::IncorrectMessage => "a message came at the wrong time",
            Self::Other(code) => return write!(f, "unknown explanation {code:#04x}"),
        })
    }
}

impl Refusal {
    /// A refusal with [`Reason::AuthenticationFailed`].
    #[must_use]
    pub const fn new(transaction: u16, explanation: Explanation) -> Self {
        Self { transaction, reason: Reason::AuthenticationFailed, explanation }
    }

    pub(super) fn parse(fields: &Fields<'_>) -> Self {
        Self {
            transaction: fields.transaction(),
            reason: Reason::from_code(fields.u8(6)),
            explanation: Explanation::from_code(fields.u8(7)),
        }
    }

    pub(super) fn emit(self, bytes: &mut [u8]) {
        bytes[6] = self.reason.code();
        bytes[7] = self.explanation.code();
    }
}
