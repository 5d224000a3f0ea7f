//! Failures of OpenSSL.

use openssl::error::ErrorStack;

/// OpenSSL could not compute something. Lack of memory and a restricted provider are the usual reasons.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "OpenSSL failed in {operation}: {reason}; check that the OpenSSL of this machine allows the hash and has memory"
)]
pub struct CryptoError {
    operation: &'static str,
    reason: String,
}

impl CryptoError {
    /// Names the operation of an OpenSSL error. The reason never holds key material.
    pub(crate) fn during(operation: &'static str) -> impl FnOnce(ErrorStack) -> Self {
        move |stack| Self { operation, reason: stack.to_string() }
    }
}
