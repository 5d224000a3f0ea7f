//! Decides: a text is a TLS key.
//!
//! The PSK interchange format: `NVMeTLSkey-1:<hash>:<base64 of the key and its checksum>:`.

use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine, alphabet};
use zeroize::Zeroizing;

use super::error::InterchangeError;
use super::secret::Secret;
use super::suite::Suite;

const NAME: &str = "NVMeTLSkey-";
const PREFIX: &str = "NVMeTLSkey-1:";
const HASH_DIGITS: usize = 2;
/// Bytes of the CRC-32 (IEEE 802.3), little-endian, after the key.
const CRC_BYTES: usize = 4;
/// The longest key and its checksum, rounded up to whole groups of base64.
const DECODED_MAX: usize = 54;
const ENCODED_MAX: usize = 72;

/// Standard alphabet, padding required (RFC 4648 4).
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// How the retained PSK comes from the configured PSK: the hash field of the interchange format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RetainedHash {
    /// `00`: the configured PSK is the retained PSK. Keys of 32 and of 48 bytes can have this value.
    None = 0,
    /// `01`: HKDF with SHA-256. The key has 32 bytes.
    Sha256 = 1,
    /// `02`: HKDF with SHA-384. The key has 48 bytes.
    Sha384 = 2,
}

impl RetainedHash {
    /// The two digits of the field.
    #[must_use]
    pub fn specifier(self) -> &'static str {
        match self {
            Self::None => "00",
            Self::Sha256 => "01",
            Self::Sha384 => "02",
        }
    }

    /// The only suite that the hash is used with. [`RetainedHash::None`] is used with both.
    fn suite(self) -> Option<Suite> {
        match self {
            Self::None => None,
            Self::Sha256 => Some(Suite::Aes128GcmSha256),
            Self::Sha384 => Some(Suite::Aes256GcmSha384),
        }
    }
}

impl std::fmt::Display for RetainedHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "no transform",
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
        })
    }
}

/// A key that an administrator gives to host and target: 32 or 48 bytes, and how the retained PSK is made of them.
///
/// Equality takes the same time wherever two keys differ. `Debug` prints no byte of the key.
///
/// Source: NVM Express TCP Transport Specification 3.6.1.5; libnvme `nvme_import_tls_key_versioned`. libnvme and SPDK accept
/// hash `01` only with 32 bytes and hash `02` only with 48 bytes, and so does this type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfiguredPsk {
    hash: RetainedHash,
    suite: Suite,
    key: Secret,
}

impl ConfiguredPsk {
    /// A key of 32 or 48 bytes.
    ///
    /// Fails with [`InterchangeError::KeyLength`] or [`InterchangeError::HashKeyLength`].
    pub fn new(hash: RetainedHash, key: &[u8]) -> Result<Self, InterchangeError> {
        let bytes = key.len();
        let suite = Suite::of_psk_len(bytes).ok_or(InterchangeError::KeyLength { bytes })?;
        if hash.suite().is_some_and(|required| required != suite) {
            return Err(InterchangeError::HashKeyLength { hash, bytes });
        }
        Ok(Self { hash, suite, key: Secret::copy_of(key) })
    }

    /// Parses the interchange format. The text must not have a line end or spaces around the key.
    ///
    /// Each mistake has its variant of [`InterchangeError`]. The first mistake found is reported.
    pub fn parse(text: &str) -> Result<Self, InterchangeError> {
        let rest = text.strip_prefix(PREFIX).ok_or_else(|| wrong_prefix(text))?;
        let (hash, rest) = rest.split_once(':').ok_or(InterchangeError::HashDigits)?;
        let hash = parse_hash(hash)?;
        let (field, after) = rest.split_once(':').ok_or(InterchangeError::NoEnd)?;
        check_field(field)?;
        let mut decoded = Zeroizing::new([0; DECODED_MAX]);
        let bytes = BASE64.decode_slice(field, &mut *decoded).map_err(|_| InterchangeError::UnusedBits)?;
        let (key, crc) =
            decoded[..bytes].split_last_chunk::<CRC_BYTES>().ok_or(InterchangeError::KeyLength { bytes: 0 })?;
        // The comparison is not in constant time: whoever supplies the text knows the key.
        if crc32fast::hash(key).to_le_bytes() != *crc {
            return Err(InterchangeError::Checksum);
        }
        if !after.is_empty() {
            return Err(InterchangeError::AfterEnd { bytes: after.len() });
        }
        Self::new(hash, key)
    }

    /// The key in the interchange format. The text is secret, and is overwritten when it is dropped.
    #[must_use]
    pub fn to_interchange(&self) -> Zeroizing<String> {
        let key = self.key.expose();
        let mut decoded = Zeroizing::new([0; DECODED_MAX]);
        decoded[..key.len()].copy_from_slice(key);
        let bytes = key.len() + CRC_BYTES;
        decoded[key.len()..bytes].copy_from_slice(&crc32fast::hash(key).to_le_bytes());
        let mut encoded = Zeroizing::new([0; ENCODED_MAX]);
        let characters = BASE64
            .encode_slice(&decoded[..bytes], &mut *encoded)
            .expect("the longest key fits: a constructor has checked its length");
        // A string that grew would leave a copy of the key behind.
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + HASH_DIGITS + ENCODED_MAX + 2));
        text.push_str(PREFIX);
        text.push_str(self.hash.specifier());
        text.push(':');
        text.extend(encoded[..characters].iter().map(|&byte| char::from(byte)));
        text.push(':');
        text
    }

    /// How the retained PSK is made.
    #[must_use]
    pub fn hash(&self) -> RetainedHash {
        self.hash
    }

    /// The only cipher suite for this key.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.suite
    }

    pub(super) fn key(&self) -> &Secret {
        &self.key
    }
}

impl std::str::FromStr for ConfiguredPsk {
    type Err = InterchangeError;

    fn from_str(text: &str) -> Result<Self, InterchangeError> {
        Self::parse(text)
    }
}

/// Another version only where the text has one that is a plain number: other text may be part of a secret.
fn wrong_prefix(text: &str) -> InterchangeError {
    let version = text.strip_prefix(NAME).and_then(|rest| rest.split_once(':')).map(|(version, _)| version);
    match version {
        Some("0") => InterchangeError::Version(0),
        Some(digits) if digits.len() <= 3 && !digits.starts_with(['0', '+']) => {
            digits.parse().map_or(InterchangeError::Prefix, InterchangeError::Version)
        }
        _ => InterchangeError::Prefix,
    }
}

fn parse_hash(field: &str) -> Result<RetainedHash, InterchangeError> {
    if field.len() != HASH_DIGITS || !field.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InterchangeError::HashDigits);
    }
    match field.parse() {
        Ok(0) => Ok(RetainedHash::None),
        Ok(1) => Ok(RetainedHash::Sha256),
        Ok(2) => Ok(RetainedHash::Sha384),
        Ok(other) => Err(InterchangeError::Hash(other)),
        Err(_) => Err(InterchangeError::HashDigits),
    }
}

/// Checks characters, length and padding of the key field.
fn check_field(field: &str) -> Result<(), InterchangeError> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    if let Some(index) = field.chars().position(|c| !is_base64(c)) {
        return Err(InterchangeError::Character { position: PREFIX.len() + HASH_DIGITS + 1 + index + 1 });
    }
    let data = field.trim_end_matches('=');
    match (field.len(), data.len()) {
        _ if data.contains('=') => Err(InterchangeError::Padding),
        (48, 48) | (72, 70) => Ok(()),
        (48 | 72, _) => Err(InterchangeError::Padding),
        (characters, _) => Err(InterchangeError::FieldLength { characters }),
    }
}
