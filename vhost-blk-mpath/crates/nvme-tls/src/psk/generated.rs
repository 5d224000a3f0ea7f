//! The generated PSK of DH-HMAC-CHAP authentication with secure channel concatenation.

use super::derive::{InputPsk, Origin};
use super::error::DeriveError;
use super::hkdf::hmac;
use super::suite::Suite;

impl InputPsk {
    /// The generated PSK: HMAC with the session key as key over C1 and C2.
    ///
    /// `suite` is the suite of the hash function that the challenge message chose. SHA-512 has no suite: Linux refuses to derive
    /// a TLS PSK for SHA-512.
    ///
    /// `session_key` is KS of the Base Specification: the hash of the Diffie-Hellman secret. Linux had the Diffie-Hellman secret
    /// itself there at first (6.15), and hashes the secret in later releases (`nvme_auth_gen_session_key`). So any length but zero
    /// is accepted. `c1` is the controller's challenge and `c2` the host's, both as sent, and as long as the hash.
    ///
    /// The TLS PSK follows from [`InputPsk::candidate`] with version 1 and the derivation of the specification.
    ///
    /// Source: Base Specification "Generated PSK for TLS" (8.13.5.9 in 2.0, 8.3.4.5.9 in 2.1), as Linux quotes it
    /// (`nvme_auth_generate_psk`).
    ///
    /// Fails with [`DeriveError::NoSessionKey`] or [`DeriveError::ChallengeLength`], or if OpenSSL fails.
    pub fn generated(suite: Suite, session_key: &[u8], c1: &[u8], c2: &[u8]) -> Result<Self, DeriveError> {
        if session_key.is_empty() {
            return Err(DeriveError::NoSessionKey);
        }
        for (name, challenge) in [("C1", c1), ("C2", c2)] {
            let (bytes, expected) = (challenge.len(), suite.psk_len());
            if bytes != expected {
                return Err(DeriveError::ChallengeLength { name, bytes, expected });
            }
        }
        let secret = hmac(suite, session_key, &[c1, c2])?;
        Ok(Self::new(Origin::Generated, suite, secret))
    }
}
