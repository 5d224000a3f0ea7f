//! The input PSK: what TLS PSKs are derived from.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nvme_tcp::wire::Nqn;

use super::error::DeriveError;
use super::hkdf::{Context, Derivation, extract_and_expand, hmac};
use super::interchange::{ConfiguredPsk, RetainedHash};
use super::secret::Secret;
use super::suite::Suite;

const RETAINED_LABEL: &str = "tls13 HostNQN";

/// Where an input PSK comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A configured PSK: `R` in identities.
    Retained,
    /// DH-HMAC-CHAP authentication: `G` in identities.
    Generated,
}

impl Origin {
    /// The letter in PSK identities: `R` or `G`.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Self::Retained => 'R',
            Self::Generated => 'G',
        }
    }
}

/// A retained or generated PSK: 32 or 48 bytes, by the suite.
///
/// Source: NVM Express TCP Transport Specification 3.6.1.3 ("Input PSK").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputPsk {
    origin: Origin,
    suite: Suite,
    secret: Secret,
}

impl InputPsk {
    /// The PSK that DH-HMAC-CHAP authentication with secure channel concatenation has generated: 32 or 48 bytes, by the hash
    /// function of the authentication.
    ///
    /// Source: Base Specification "Generated PSK for TLS" (8.13.5.9 in 2.0, 8.3.4.5.9 in 2.1).
    ///
    /// Fails with [`DeriveError::GeneratedLength`].
    pub fn generated(psk: &[u8]) -> Result<Self, DeriveError> {
        let suite = Suite::of_psk_len(psk.len()).ok_or(DeriveError::GeneratedLength { bytes: psk.len() })?;
        Ok(Self { origin: Origin::Generated, suite, secret: Secret::copy_of(psk) })
    }

    /// Where the PSK comes from.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The only cipher suite for the PSK.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    /// The secret bytes.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    /// The PSK digest of identities of version 1: 44 or 64 characters of base64. The digest is not secret.
    ///
    /// Base64 of HMAC with the PSK as key over `<hostnqn> <subnqn> NVMe-over-Fabrics`.
    ///
    /// Source: TP8018 3.6.1.3, as Linux quotes it (`nvme_auth_generate_digest`).
    pub fn digest(&self, hostnqn: &Nqn, subnqn: &Nqn) -> Result<String, DeriveError> {
        let text = format!("{hostnqn} {subnqn} NVMe-over-Fabrics");
        let digest = hmac(self.suite, self.secret.expose(), &[text.as_bytes()])?;
        Ok(STANDARD.encode(digest.expose()))
    }
}

impl ConfiguredPsk {
    /// The retained PSK of the host `hostnqn`. With [`RetainedHash::None`] the retained PSK is the configured PSK.
    ///
    /// Source: NVM Express TCP Transport Specification 3.6.1.2, as libnvme quotes it (`derive_retained_key`):
    /// HKDF-Expand-Label(HKDF-Extract(0, configured PSK), `HostNQN`, host's NQN, length of the configured PSK).
    ///
    /// Fails only if OpenSSL does.
    pub fn retained(&self, hostnqn: &Nqn, derivation: Derivation) -> Result<InputPsk, DeriveError> {
        let secret = match self.hash() {
            RetainedHash::None => self.key().clone(),
            RetainedHash::Sha256 | RetainedHash::Sha384 => {
                let context = Context { head: "", tail: hostnqn.as_str() };
                extract_and_expand(self.suite(), derivation, self.key(), RETAINED_LABEL, context)?
            }
        };
        Ok(InputPsk { origin: Origin::Retained, suite: self.suite(), secret })
    }
}
