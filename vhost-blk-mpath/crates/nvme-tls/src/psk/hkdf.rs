//! Decides: an identity is derived like this.
//!
//! HKDF-Extract and HKDF-Expand-Label (RFC 5869, RFC 8446 7.1), and the two ways in which releases of libnvme before 1.16 differ.

use openssl::pkey::PKey;
use openssl::sign::Signer;

use super::error::DeriveError;
use super::secret::Secret;
use super::suite::Suite;

/// How HKDF-Expand-Label encodes length, label and context. Host and target must use the same encoding.
///
/// Two encodings of old releases are missing here: libnvme 1.4 to 1.6 without the fault of OpenSSL that
/// [`Derivation::OldLibnvmeOldOpenssl`] describes, and identities of version 1 by libnvme 1.7 to 1.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Derivation {
    /// As RFC 8446 7.1 says: length as 16 bits big-endian, then label and context with one byte for the length of each.
    ///
    /// libnvme since 1.16 (commit fde6b1f5), SPDK, and the generated PSKs of Linux use this encoding.
    Specification,
    /// Length as 16 bits little-endian, then label and context without their lengths.
    ///
    /// libnvme 1.7 to 1.15 (`src/nvme/linux.c`), so Debian 13 with libnvme 1.13, and the functions `…_compat` of later releases.
    /// The length is in the processor's byte order, so big-endian hosts write it as the specification does. Identities of
    /// version 1 are derived this way since libnvme 1.10 (commit 854a6dcb).
    OldLibnvme,
    /// The last part of the context alone: the NQN, the identity of version 0, or the PSK digest.
    ///
    /// The same releases of libnvme, and 1.4 to 1.6, with OpenSSL 3.0.0 to 3.0.13 and the first releases of 3.1, 3.2 and 3.3.
    /// `EVP_PKEY_CTX_add1_hkdf_info` of these releases replaces the earlier parts instead of appending to them (OpenSSL issue
    /// 23448). Ubuntu 24.04 has such a pair: libnvme 1.8 and OpenSSL 3.0.13.
    OldLibnvmeOldOpenssl,
}

/// Plain words for a log line, after "derived".
impl std::fmt::Display for Derivation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Specification => "as in the specification",
            Self::OldLibnvme => "as by libnvme before 1.16",
            Self::OldLibnvmeOldOpenssl => "as by libnvme before 1.16 with OpenSSL before 3.0.14",
        })
    }
}

/// The context of an expansion. libnvme passes the two parts to OpenSSL one by one.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) head: &'a str,
    pub(super) tail: &'a str,
}

/// HMAC with the suite's hash function over the concatenation of `parts`.
pub(super) fn hmac(suite: Suite, key: &[u8], parts: &[&[u8]]) -> Result<Secret, DeriveError> {
    let key = PKey::hmac(key)?;
    let mut signer = Signer::new(suite.hash(), &key)?;
    for part in parts {
        signer.update(part)?;
    }
    let mut output = Secret::zeroed(suite.psk_len());
    signer.sign(output.expose_mut())?;
    Ok(output)
}

/// HKDF-Extract without salt, then HKDF-Expand-Label with `label`, which includes `tls13 `.
///
/// The output is as long as that of the hash function. All keys of NVMe/TCP have this length, because the length of a
/// configured PSK selects the hash function.
pub(super) fn extract_and_expand(
    suite: Suite,
    derivation: Derivation,
    input: &Secret,
    label: &str,
    context: Context<'_>,
) -> Result<Secret, DeriveError> {
    let info = info(derivation, suite.psk_len() as u16, label, context)?;
    // RFC 5869 2.2: no salt is a salt of zeroes.
    let salt = vec![0; suite.psk_len()];
    let prk = hmac(suite, &salt, &[input.expose()])?;
    // RFC 5869 2.3: one block, with number 1.
    hmac(suite, prk.expose(), &[&info, &[1]])
}

fn info(derivation: Derivation, length: u16, label: &str, context: Context<'_>) -> Result<Vec<u8>, DeriveError> {
    let Context { head, tail } = context;
    let label = label.as_bytes();
    let (head, tail) = (head.as_bytes(), tail.as_bytes());
    let context_len = head.len() + tail.len();
    Ok(match derivation {
        Derivation::Specification => {
            let context_len =
                u8::try_from(context_len).map_err(|_| DeriveError::ContextLength { bytes: context_len })?;
            [&length.to_be_bytes(), &[label.len() as u8][..], label, &[context_len], head, tail].concat()
        }
        Derivation::OldLibnvme => [&length.to_le_bytes()[..], label, head, tail].concat(),
        Derivation::OldLibnvmeOldOpenssl => tail.to_vec(),
    })
}
