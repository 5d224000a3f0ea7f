//! Why a TLS connection fails.

use std::os::raw::c_int;

use openssl::error::{Error, ErrorStack};

use crate::psk_callbacks::OfferedIdentity;

/// Why a TLS connection fails.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The peer has sent a fatal alert (RFC 8446, section 6).
    #[error("the peer refuses TLS with the alert {} ({number})", alert_name(*.number))]
    Alert {
        /// The number of the alert.
        number: u8,
    },
    /// The host has offered no identity of a key that the controller knows.
    #[error("no key is known for the identity {identity}: give both sides the same hostnqn, subsystem and key")]
    UnknownIdentity {
        /// The last identity that the host has offered.
        identity: String,
    },
    /// The two sides have different keys under this identity.
    #[error("the keys for the identity {identity} differ: give both sides the same key")]
    WrongKey {
        /// The identity.
        identity: String,
    },
    /// The peer has sent bytes that are not TLS.
    #[error("the peer sends clear text in place of TLS: switch TLS on, or off, on both sides")]
    ClearText,
    /// The peer has chosen certificates in place of the key.
    #[error("the peer does not use the pre-shared key")]
    NoPsk,
    /// The peer has ended the connection with `close_notify`.
    #[error("the peer closed the TLS connection")]
    Closed,
    /// The peer breaks the protocol, or a record was changed on its way.
    #[error("TLS protocol error: {0}")]
    Protocol(ErrorStack),
}

/// OpenSSL's reason code of a received alert is the alert's number plus this (`SSL_AD_REASON_OFFSET`).
const ALERT_REASONS: c_int = 1000;
/// `SSL_R_WRONG_VERSION_NUMBER` and `SSL_R_HTTP_REQUEST`: the first bytes are no record.
const NOT_TLS: [c_int; 2] = [267, 156];
/// `SSL_R_BINDER_DOES_NOT_VERIFY`.
const BINDER_DOES_NOT_VERIFY: c_int = 253;

impl TlsError {
    /// The error for a failure of OpenSSL. `offered` is what the host has offered, if this is the controller's handshake.
    pub(crate) fn of(stack: ErrorStack, offered: Option<OfferedIdentity>) -> Self {
        let reason = stack.errors().last().map_or(0, Error::reason_code);
        if let Ok(number) = u8::try_from(reason - ALERT_REASONS) {
            return Self::Alert { number };
        }
        if NOT_TLS.contains(&reason) {
            return Self::ClearText;
        }
        match offered {
            Some(OfferedIdentity { identity, is_known: true }) if reason == BINDER_DOES_NOT_VERIFY => {
                Self::WrongKey { identity }
            }
            Some(OfferedIdentity { identity, is_known: false }) => Self::UnknownIdentity { identity },
            _ => Self::Protocol(stack),
        }
    }
}

/// The name of an alert (RFC 8446, section 6.2).
fn alert_name(number: u8) -> &'static str {
    match number {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        109 => "missing_extension",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        _ => "of unknown name",
    }
}
