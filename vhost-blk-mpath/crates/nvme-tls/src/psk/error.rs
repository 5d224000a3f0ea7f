//! Errors of keys and of their derivation. No message contains bytes of a key, nor a value computed from them.

use openssl::error::ErrorStack;

use super::interchange::RetainedHash;

/// Why a text is not a configured PSK in the interchange format, or why bytes are not a configured PSK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InterchangeError {
    /// The text does not begin with the name and version of the format.
    #[error("the TLS key does not begin with `NVMeTLSkey-1:`; use the whole output of `nvme gen-tls-key`")]
    Prefix,
    /// The format has another version.
    #[error("the TLS key has format version {0} instead of 1; generate a key with `nvme gen-tls-key`")]
    Version(u16),
    /// The hash field is not two decimal digits with a colon after them.
    #[error("the hash field of the TLS key is not two digits; use `00`, `01` or `02`")]
    HashDigits,
    /// The hash field has an unknown value.
    #[error("the hash field of the TLS key is {0:02}; use 00 (no transform), 01 (SHA-256) or 02 (SHA-384)")]
    Hash(u8),
    /// No colon follows the key field.
    #[error("the key field of the TLS key has no colon at its end; use the whole output of `nvme gen-tls-key`")]
    NoEnd,
    /// More text follows the last colon.
    #[error("{bytes} bytes follow the last colon of the TLS key; remove them, including spaces and line ends")]
    AfterEnd {
        /// Their number.
        bytes: usize,
    },
    /// A character of the key field is outside the alphabet of base64.
    #[error("character {position} of the TLS key is not a base64 character; copy the key again")]
    Character {
        /// The position in the text, from 1.
        position: usize,
    },
    /// The key field is too short or too long.
    #[error("the key field of the TLS key has {characters} characters instead of 48 or 72; copy the whole key")]
    FieldLength {
        /// Its length.
        characters: usize,
    },
    /// The key field has too few or too many `=`, or has `=` before its end.
    #[error(
        "the `=` characters of the key field are misplaced; a field of 48 characters has none, one of 72 has two at its end"
    )]
    Padding,
    /// The last base64 character has bits that belong to no byte.
    #[error("the last base64 character of the TLS key is not valid there; copy the key again")]
    UnusedBits,
    /// The checksum in the key field is not that of the key.
    #[error("the checksum in the TLS key is not that of the key, so a character is wrong; copy the key again")]
    Checksum,
    /// The key is neither 32 nor 48 bytes long.
    #[error("the TLS key has {bytes} bytes; use 32 or 48 bytes")]
    KeyLength {
        /// Its length.
        bytes: usize,
    },
    /// The hash field requires a key of another length.
    #[error(
        "the TLS key has {bytes} bytes, and hash {} ({hash}) requires {}; generate a key with `nvme gen-tls-key --hmac={}`",
        .hash.specifier(), if *.bytes == 32 { 48 } else { 32 }, *.hash as u8
    )]
    HashKeyLength {
        /// The hash field.
        hash: RetainedHash,
        /// The length of the key.
        bytes: usize,
    },
}

/// Why a key cannot be derived.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DeriveError {
    /// The context of HKDF-Expand-Label has one byte for its length (RFC 8446 7.1).
    #[error(
        "no TLS PSK can be derived for a PSK identity of {bytes} bytes; the limit is 255, so use shorter NQNs or identity version 1"
    )]
    ContextLength {
        /// Bytes of the context.
        bytes: usize,
    },
    /// TLS has no suite for a generated PSK of this length.
    #[error(
        "the authentication has generated a key of {bytes} bytes for TLS; allow only the hashes SHA-256 and SHA-384"
    )]
    GeneratedLength {
        /// Bytes of the key.
        bytes: usize,
    },
    /// OpenSSL refused or failed.
    #[error("OpenSSL cannot compute an HMAC: {0}; check that OpenSSL's configuration allows SHA-256 and SHA-384")]
    Openssl(#[from] ErrorStack),
}
