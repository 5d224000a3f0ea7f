//! Decides: the message about a failed connection with TLS says this.
//!
//! Why a TLS connection fails.

use std::os::raw::c_int;

use openssl::error::{Error, ErrorStack};

use crate::psk_callbacks::OfferedIdentity;

/// Why a TLS connection fails.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsError {
    /// The peer has sent a fatal alert (RFC 8446, section 6).
    #[error("the peer refuses TLS with the alert {} ({number})", alert_name(*.number))]
    Alert {
        /// The number of the alert.
        number: u8,
    },
    /// The host has offered no identity of a key that the controller knows.
    #[error("no key is known for the identity {identity:?}: give both sides the same hostnqn, subsystem and key")]
    UnknownIdentity {
        /// The last identity that the host has offered.
        identity: String,
    },
    /// The two sides have different keys under this identity.
    #[error("the keys for the identity {identity:?} differ: give both sides the same key")]
    WrongKey {
        /// The identity.
        identity: String,
    },
    /// The peer has sent bytes that are not TLS.
    #[error("the peer sends clear text in place of TLS: check that this port of the peer uses TLS")]
    ClearText,
    /// The peer has chosen certificates in place of the key.
    #[error(
        "the peer offers a certificate and does not use the pre-shared key: check that this port of the peer is for NVMe/TCP"
    )]
    NoPsk,
    /// The peer has ended the connection with `close_notify`.
    #[error("the peer closed the TLS connection")]
    Closed,
    /// The peer sends records without data, such as `KeyUpdate`, at a pace that only costs time.
    #[error("the peer sends too many TLS records without data")]
    TooManyRecords,
    /// The peer breaks the protocol, or a record was changed on its way.
    #[error("TLS protocol error: {0}")]
    Protocol(ErrorStack),
}

/// OpenSSL's reason code of a received alert is the alert's number plus this (`SSL_AD_REASON_OFFSET`).
const ALERT_REASONS: c_int = 1000;
/// `SSL_R_WRONG_VERSION_NUMBER`: the bytes are no record.
const CLEAR_TEXT_VERSION: c_int = 267;
/// `SSL_R_HTTP_REQUEST`: the bytes are text.
const CLEAR_TEXT_HTTP: c_int = 156;
/// `SSL_R_CERTIFICATE_VERIFY_FAILED`.
const CERTIFICATE_VERIFY_FAILED: c_int = 134;
/// `SSL_R_BINDER_DOES_NOT_VERIFY`.
const BINDER_DOES_NOT_VERIFY: c_int = 253;

impl TlsError {
    /// The error for a failure of OpenSSL after the handshake.
    pub(crate) fn of(stack: ErrorStack) -> Self {
        match u8::try_from(reason(&stack) - ALERT_REASONS) {
            Ok(number) => Self::Alert { number },
            Err(_) => Self::Protocol(stack),
        }
    }

    /// The error for a failure of OpenSSL in the handshake. `offered` is what the host has offered, if this is the controller.
    pub(crate) fn of_handshake(stack: ErrorStack, offered: Option<OfferedIdentity>) -> Self {
        match (reason(&stack), offered) {
            (CLEAR_TEXT_VERSION | CLEAR_TEXT_HTTP, _) => Self::ClearText,
            (CERTIFICATE_VERIFY_FAILED, _) => Self::NoPsk,
            (BINDER_DOES_NOT_VERIFY, Some(OfferedIdentity { identity, is_known: true })) => Self::WrongKey { identity },
            (reason, Some(OfferedIdentity { identity, is_known: false })) if !is_alert(reason) => {
                Self::UnknownIdentity { identity }
            }
            _ => Self::of(stack),
        }
    }
}

fn reason(stack: &ErrorStack) -> c_int {
    stack.errors().last().map_or(0, Error::reason_code)
}

fn is_alert(reason: c_int) -> bool {
    u8::try_from(reason - ALERT_REASONS).is_ok()
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
