//! Hash functions and their HMAC.

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::sign::Signer;
use zeroize::{Zeroize, Zeroizing};

use crate::CryptoError;

/// A hash function: `HashID` of messages, and the transformation of a [`Secret`](crate::Secret) (Base 8.3.4.5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256, 01h.
    Sha256,
    /// SHA-384, 02h.
    Sha384,
    /// SHA-512, 03h.
    Sha512,
}

impl Hash {
    /// Every hash function, the weakest first.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];
    /// The most bytes of a digest.
    pub const BYTES_MAX: usize = 64;

    /// The identifier on the wire and in the text of a secret.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha384 => 2,
            Self::Sha512 => 3,
        }
    }

    /// The hash function of an identifier. `None` for an unknown identifier.
    #[must_use]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha384),
            3 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Bytes of a digest: 32, 48 or 64. Challenges and responses have this length too.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn function(self) -> MessageDigest {
        match self {
            Self::Sha256 => MessageDigest::sha256(),
            Self::Sha384 => MessageDigest::sha384(),
            Self::Sha512 => MessageDigest::sha512(),
        }
    }

    /// The digest of `data`.
    pub(crate) fn digest(self, data: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let mut digest = openssl::hash::hash(self.function(), data).map_err(CryptoError::during("a digest"))?;
        let copy = Zeroizing::new(digest.to_vec());
        digest.zeroize();
        Ok(copy)
    }

    /// The HMAC of the concatenated `parts`.
    pub(crate) fn hmac(self, key: &[u8], parts: &[&[u8]]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        let hmac = || {
            let key = PKey::hmac(key)?;
            let mut signer = Signer::new(self.function(), &key)?;
            for part in parts {
                signer.update(part)?;
            }
            signer.sign_to_vec()
        };
        hmac().map(Zeroizing::new).map_err(CryptoError::during("an HMAC"))
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "SHA-256",
            Self::Sha384 => "SHA-384",
            Self::Sha512 => "SHA-512",
        })
    }
}

/// Compares two byte strings in a time that depends on their lengths only.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    // OpenSSL's comparison panics on different lengths. Lengths are no secret.
    a.len() == b.len() && openssl::memcmp::eq(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    #[test]
    fn hmac_matches_rfc_4231() {
        // Test case 2.
        let (key, parts): (&[u8], [&[u8]; 2]) = (b"Jefe", [b"what do ya want ", b"for nothing?"]);
        for (hash, expected) in [
            (Hash::Sha256, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (
                Hash::Sha384,
                "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e8e2240ca5e69e2c78b3239ecfab21649",
            ),
        ] {
            assert_eq!(hash.hmac(key, &parts).unwrap().to_vec(), hex(expected));
        }
    }

    #[test]
    fn ids_and_lengths() {
        for hash in Hash::ALL {
            assert_eq!(Hash::from_id(hash.id()), Some(hash));
            assert_eq!(hash.digest(b"x").unwrap().len(), hash.bytes());
        }
        assert_eq!((Hash::from_id(0), Hash::from_id(4)), (None, None));
    }

    #[test]
    fn comparison_of_different_lengths_is_false() {
        assert!(equal(b"ab", b"ab") && !equal(b"ab", b"aa") && !equal(b"ab", b"a"));
    }
}
