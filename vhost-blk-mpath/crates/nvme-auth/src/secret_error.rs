//! Errors in the text of a secret.

/// Why a text is not a secret. No variant holds a part of the text beyond the hash number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The text does not start with `DHHC-1:`.
    #[error("the secret does not start with \"DHHC-1:\"; generate one with `nvme gen-dhchap-key`")]
    Prefix,
    /// The hash field is not a number of two digits from 00 to 03.
    #[error(
        "the hash field of the secret is not 00, 01, 02 or 03 (no transformation, SHA-256, SHA-384, SHA-512); \
         generate a secret with `nvme gen-dhchap-key --hmac=1`"
    )]
    Hash,
    /// The final colon is missing, or text follows it.
    #[error("the secret does not end with its third ':'; copy the whole secret, with the final ':'")]
    End,
    /// The key field is not Base64 with padding.
    #[error("the key field of the secret is not valid Base64; copy the whole secret again")]
    Base64,
    /// The key has another length than 32, 48 or 64 bytes.
    #[error(
        "the key field of the secret holds {bytes} bytes instead of 36, 52 or 68 (a key and its CRC32); \
         generate a secret with `nvme gen-dhchap-key --key-length=32`"
    )]
    KeyLength {
        /// Bytes of the field, with the CRC32.
        bytes: usize,
    },
    /// The CRC32 at the end of the key field is not that of the key.
    #[error(
        "the CRC32 in the key field of the secret does not match the key; a character was changed, so copy the secret again"
    )]
    Crc,
}
