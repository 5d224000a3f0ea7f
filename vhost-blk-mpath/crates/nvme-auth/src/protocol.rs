//! The sizes of messages, and the secure channel that a host asks for.

/// The most bytes of a message: 4 KiB and the largest public value. Parsers refuse longer messages.
///
/// Hosts pass 4096 as the allocation length of Authentication Receive, as Linux does. The longest valid message, a
/// `DH-HMAC-CHAP_Reply`, has 1168 bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096 + DH_VALUE_BYTES_MAX;

/// The most bytes of a public Diffie-Hellman value: those of FFDHE8192.
pub(crate) const DH_VALUE_BYTES_MAX: usize = 1024;

/// `SC_C`: the secure channel concatenation that a host asks for in `AUTH_Negotiate` (Base 8.3.4). This crate does not support
/// 03h (`REPLACETLSPSK`), which replaces the pre-shared key of a queue with TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Concatenation {
    /// 00h: no secure channel follows.
    #[default]
    None,
    /// 02h, `NEWTLSPSK`: the transaction generates a pre-shared key for TLS. The queue has no TLS yet.
    NewTlsPsk,
}

impl Concatenation {
    /// The value on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::NewTlsPsk => 2,
        }
    }

    /// A secure channel is asked for.
    #[must_use]
    pub const fn is_requested(self) -> bool {
        !matches!(self, Self::None)
    }
}

impl std::fmt::Display for Concatenation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::NewTlsPsk => "new TLS PSK",
        })
    }
}
