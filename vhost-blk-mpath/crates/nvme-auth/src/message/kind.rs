//! The kinds of messages: `AUTH_TYPE` and `AUTH_ID`.

/// A kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageKind {
    /// `AUTH_Negotiate`.
    Negotiate,
    /// `DH-HMAC-CHAP_Challenge`.
    Challenge,
    /// `DH-HMAC-CHAP_Reply`.
    Reply,
    /// `DH-HMAC-CHAP_Success1`.
    Success1,
    /// `DH-HMAC-CHAP_Success2`.
    Success2,
    /// `AUTH_Failure1`.
    Failure1,
    /// `AUTH_Failure2`.
    Failure2,
}

impl MessageKind {
    pub(super) const ALL: [Self; 7] =
        [Self::Negotiate, Self::Challenge, Self::Reply, Self::Success1, Self::Success2, Self::Failure1, Self::Failure2];

    /// `AUTH_TYPE` (00h for common messages, 01h for DH-HMAC-CHAP) and `AUTH_ID`.
    pub(super) const fn code(self) -> [u8; 2] {
        match self {
            Self::Negotiate => [0, 0x00],
            Self::Challenge => [1, 0x01],
            Self::Reply => [1, 0x02],
            Self::Success1 => [1, 0x03],
            Self::Success2 => [1, 0x04],
            Self::Failure2 => [0, 0xf0],
            Self::Failure1 => [0, 0xf1],
        }
    }

    /// Bytes of the message without its variable part.
    pub(super) const fn fixed_bytes(self) -> usize {
        match self {
            Self::Negotiate | Self::Failure1 | Self::Failure2 => 8,
            Self::Challenge | Self::Reply | Self::Success1 | Self::Success2 => 16,
        }
    }

    /// The kind of a code. `None` for an unknown code.
    pub(super) fn from_code(code: [u8; 2]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

impl std::fmt::Display for MessageKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Negotiate => "AUTH_Negotiate",
            Self::Challenge => "DH-HMAC-CHAP_Challenge",
            Self::Reply => "DH-HMAC-CHAP_Reply",
            Self::Success1 => "DH-HMAC-CHAP_Success1",
            Self::Success2 => "DH-HMAC-CHAP_Success2",
            Self::Failure1 => "AUTH_Failure1",
            Self::Failure2 => "AUTH_Failure2",
        })
    }
}
