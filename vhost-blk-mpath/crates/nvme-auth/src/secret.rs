//! Secrets of hosts and controllers, and their text `DHHC-1:<hash>:<Base64 of key and CRC32>:` (Base 8.3.4.5.8).

use openssl::base64;
use zeroize::Zeroizing;

use crate::{CryptoError, Hash, SecretError};

const PREFIX: &str = "DHHC-1:";
const CRC_BYTES: usize = 4;
/// The longest Base64 text of a key with its CRC32: 68 bytes.
const BASE64_CHARS_MAX: usize = 92;

/// A secret of a host or of a controller. Overwritten when dropped. `Debug` does not show the key.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    transformation: Option<Hash>,
    key: Zeroizing<Vec<u8>>,
}

impl Secret {
    /// Makes a secret of a random key.
    ///
    /// # Errors
    /// The key must have 32, 48 or 64 bytes. Every length goes with every transformation.
    pub fn new(transformation: Option<Hash>, key: &[u8]) -> Result<Self, SecretError> {
        match key.len() {
            32 | 48 | 64 => Ok(Self { transformation, key: Zeroizing::new(key.to_vec()) }),
            bytes => Err(SecretError::KeyLength { bytes: bytes + CRC_BYTES }),
        }
    }

    /// Parses the text of a secret. White space around the text is ignored, so the content of a file is accepted.
    ///
    /// # Errors
    /// The field that is wrong. The error shows no part of the key.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim_ascii().strip_prefix(PREFIX).ok_or(SecretError::Prefix)?;
        let (hash, rest) = rest.split_once(':').ok_or(SecretError::Hash)?;
        let transformation = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let (encoded, after) = rest.split_once(':').ok_or(SecretError::End)?;
        if !after.is_empty() {
            return Err(SecretError::End);
        }
        let bytes = decode(encoded)?;
        let (key, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(SecretError::KeyLength { bytes: bytes.len() })?;
        let secret = Self::new(transformation, key)?;
        if u32::from_le_bytes(*crc) != crc32(key) {
            return Err(SecretError::Crc);
        }
        Ok(secret)
    }

    /// The text of the secret. This is for tools and tests: the text is as secret as the key.
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(self.key.len() + CRC_BYTES));
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(&crc32(&self.key).to_le_bytes());
        let encoded = Zeroizing::new(base64::encode_block(&bytes));
        let hash = self.transformation.map_or(0, Hash::id);
        Zeroizing::new(format!("{PREFIX}{hash:02}:{}:", *encoded))
    }

    /// The hash of the transformation. `None` if the key is used as it is.
    #[must_use]
    pub const fn transformation(&self) -> Option<Hash> {
        self.transformation
    }

    /// The key that responses use: HMAC(key, NQN ‖ "NVMe-over-Fabrics"), or the key itself (Base 8.3.4.5.7).
    ///
    /// `nqn` is the NQN of the owner: HOSTNQN for a host's secret, SUBNQN for a controller's.
    pub(crate) fn transformed(&self, nqn: &str) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        match self.transformation {
            None => Ok(self.key.clone()),
            Some(hash) => hash.hmac(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").field("transformation", &self.transformation).finish_non_exhaustive()
    }
}

impl std::str::FromStr for Secret {
    type Err = SecretError;

    fn from_str(text: &str) -> Result<Self, SecretError> {
        Self::parse(text)
    }
}

/// Decodes canonical Base64 with padding.
fn decode(encoded: &str) -> Result<Zeroizing<Vec<u8>>, SecretError> {
    if encoded.len() > BASE64_CHARS_MAX {
        return Err(SecretError::KeyLength { bytes: encoded.len() / 4 * 3 });
    }
    let bytes = base64::decode_block(encoded).map(Zeroizing::new).map_err(|_| SecretError::Base64)?;
    // OpenSSL ignores white space and stray bits at the end. A second encoding finds both.
    let again = Zeroizing::new(base64::encode_block(&bytes));
    if *again == encoded { Ok(bytes) } else { Err(SecretError::Base64) }
}

/// CRC-32 of IEEE 802.3, bit by bit: a secret is short and read once.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Output of `nvme gen-dhchap-key` 2.3 with `--secret` 000102… and `--hmac=0`, for keys of 32, 48 and 64 bytes.
    const COUNTED: [&str; 3] = [
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ==:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P4zODhA=:",
    ];

    /// The same keys with `--hmac` 1, 2 and 3 and `--nqn` [`NQN`]. nvme-cli 2.3 prints the key after the transformation.
    const TRANSFORMED: [&str; 3] = [
        "DHHC-1:01:qE+prrGt/zV5rnMxchnG4qzr77Kg3npRhduU2QwQexO08C/a:",
        "DHHC-1:02:kiWA4RkyVnxJVWbFfiAndcIexrhnVznYERPhtrlQTDrajEtTzLOiK8H5+2bGUju/Me7FjA==:",
        "DHHC-1:03:BIgoJ9bttlbY3ru8NIa8Ygjwl8IOqdnku0LiWtA+vumT1Pa16OrAC3Ps8qdoCv+i8DgytYflXw4yaGHgSuoqRtptpLg=:",
    ];
    const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6e0e9d1c-2b3f-4b53-9a4a-3c0c6c0f5a11";

    /// The example of the specification, and secrets of nvme-stas, nvme-cli and Ceph tests.
    const PUBLISHED: [&str; 6] = [
        "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
        "DHHC-1:03:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:",
        "DHHC-1:00:9wCYVQqDvADjGIZo6q/v2SfmXZqqkNa9TcvYu97Ly3Q/gajh:",
        "DHHC-1:01:Ei7kUrD7iyrjzXDwIZ666sSPBswUk4wDjSQtodytVB5YiBru:",
        "DHHC-1:02:ULMaRuJ40ui58nK4Qk5b0J89G3unbGb8mBUbt/XSrf18PBPvyL3sivZOINNh2o/fPpXbGg==:",
        "DHHC-1:03:6EKZcEL86u4vzTE8sCETvskE3pLKE+qOorl9QxrRfLvfOEQ5GvqCzM41U8fFVAz1cs+T14PjSpd1J641rfeCC1x2VNg=:",
    ];

    fn counted(bytes: u8) -> Vec<u8> {
        (0..bytes).collect()
    }

    #[test]
    fn secrets_of_nvme_cli_parse_and_are_written_alike() {
        for text in COUNTED.iter().chain(&TRANSFORMED).chain(&PUBLISHED) {
            assert_eq!(*Secret::parse(text).unwrap().to_text(), *text);
        }
        for (text, bytes) in COUNTED.iter().zip([32, 48, 64]) {
            assert_eq!(*Secret::parse(text).unwrap().key, counted(bytes));
        }
    }

    #[test]
    fn the_transformation_is_that_of_nvme_cli() {
        for (text, hash) in TRANSFORMED.iter().zip(Hash::ALL) {
            let secret = Secret::new(Some(hash), &counted(hash.bytes() as u8)).unwrap();
            assert_eq!(secret.transformed(NQN).unwrap(), Secret::parse(text).unwrap().key);
        }
        let plain = Secret::new(None, &counted(32)).unwrap();
        assert_eq!(plain.transformed(NQN).unwrap(), plain.key);
    }

    #[test]
    fn crc_matches_the_check_value() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn every_fault_names_its_field() {
        let key = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n";
        for (text, error) in [
            (String::new(), SecretError::Prefix),
            (format!("NVMeTLSkey-1:01:{key}:"), SecretError::Prefix),
            (format!("DHHC-1:{key}"), SecretError::Hash),
            (format!("DHHC-1:{key}:"), SecretError::Hash),
            (format!("DHHC-1:04:{key}:"), SecretError::Hash),
            (format!("DHHC-1:1:{key}:"), SecretError::Hash),
            (format!("DHHC-1:01:{key}"), SecretError::End),
            (format!("DHHC-1:01:{key}:x"), SecretError::End),
            (format!("DHHC-1:01:{}:", key.replace('G', "*")), SecretError::Base64),
            (format!("DHHC-1:01:{} :", &key[..47]), SecretError::Base64),
            (format!("DHHC-1:01:{}:", &key[..46]), SecretError::Base64),
            (format!("DHHC-1:01:{}:", &key[..44]), SecretError::KeyLength { bytes: 33 }),
            ("DHHC-1:01::".to_owned(), SecretError::KeyLength { bytes: 0 }),
            (format!("DHHC-1:01:{}:", "A".repeat(96)), SecretError::KeyLength { bytes: 72 }),
            (format!("DHHC-1:01:{}:", key.replace('G', "H")), SecretError::Crc),
        ] {
            assert_eq!(Secret::parse(&text), Err(error), "{text}");
            assert!(!error.to_string().contains("ia6z"));
        }
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let secret = Secret::new(Some(Hash::Sha256), &[b'k'; 32]).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret { transformation: Some(Sha256), .. }");
    }

    #[test]
    fn a_file_may_end_with_a_new_line() {
        assert_eq!(format!("{}\n", COUNTED[0]).parse(), Secret::parse(COUNTED[0]));
    }

    proptest! {
        #[test]
        fn parse_inverts_to_text(key in proptest::collection::vec(any::<u8>(), 64), length in 0..3_usize, hash in 0..4_u8) {
            let secret = Secret::new(Hash::from_id(hash), &key[..[32, 48, 64][length]]).unwrap();
            prop_assert_eq!(Secret::parse(&secret.to_text()), Ok(secret));
        }

        #[test]
        fn any_text_parses_or_fails(text in ".{0,200}", key in "[A-Za-z0-9+/=: ]{0,120}") {
            let _ = Secret::parse(&text);
            let _ = Secret::parse(&format!("DHHC-1:01:{key}:"));
        }
    }
}
