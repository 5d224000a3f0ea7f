//! What a successful transaction leaves: its parameters and keys.

use zeroize::Zeroizing;

use crate::{Concatenation, CryptoError, DhGroup, Hash};

/// The session key KS: H(g^xy mod p), as long as a digest of the hash (Base 8.3.4.5.9). Overwritten when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey(Zeroizing<Vec<u8>>);

impl SessionKey {
    /// The session key of a shared secret that has the length of the prime.
    pub(crate) fn new(hash: Hash, shared_secret: &[u8]) -> Result<Self, CryptoError> {
        hash.digest(shared_secret).map(Self)
    }

    /// The bytes of the key. They are secret.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionKey").finish_non_exhaustive()
    }
}

/// A pre-shared key for TLS, as long as a digest of the hash: 32 or 48 bytes. Overwritten when dropped.
#[derive(Clone)]
pub struct GeneratedPsk(Zeroizing<Vec<u8>>);

impl GeneratedPsk {
    /// The bytes of the key. They are secret.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for GeneratedPsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GeneratedPsk").finish_non_exhaustive()
    }
}

/// A successful transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// `T_ID` of the transaction.
    pub transaction: u16,
    /// The hash that the controller chose.
    pub hash: Hash,
    /// The group that the controller chose.
    pub group: DhGroup,
    /// The secure channel that the host asked for.
    pub concatenation: Concatenation,
    /// The controller proved itself too.
    pub bidirectional: bool,
    /// The session key. `None` for [`DhGroup::Null`].
    pub session_key: Option<SessionKey>,
    /// The challenge C1 of the controller, as sent.
    pub controller_challenge: Vec<u8>,
    /// The challenge C2 of the host, as sent. `None` if the host sent no challenge.
    pub host_challenge: Option<Vec<u8>>,
}

impl Session {
    /// The pre-shared key that the transaction generates for TLS: HMAC(KS, C1 ‖ C2) (Base 8.3.4.5.9).
    ///
    /// `None` unless the host asked for a secure channel.
    ///
    /// # Errors
    /// OpenSSL failed.
    pub fn generated_psk(&self) -> Result<Option<GeneratedPsk>, CryptoError> {
        match (self.concatenation, &self.session_key, &self.host_challenge) {
            (Concatenation::NewTlsPsk, Some(key), Some(c2)) => {
                self.hash.hmac(&key.0, &[&self.controller_challenge, c2]).map(|key| Some(GeneratedPsk(key)))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    /// Inputs and outputs of the Linux kernel's test `drivers/nvme/common/tests/auth_kunit.c`.
    #[test]
    fn generated_psk_is_that_of_the_linux_kernel() {
        for (hash, psk) in [
            (Hash::Sha256, "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a"),
            (
                Hash::Sha384,
                "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
            ),
            (
                Hash::Sha512,
                "9c9f089a618b47d2d75f4b6c28070424487b445dd96e70c4c09b55e8b6000152\
                 a3363c3454043f38f0b85036ded40655350aa87b8b6a282b5c1acae16233dd5b",
            ),
        ] {
            let bytes = |value: fn(u8) -> u8| (0..hash.bytes() as u8).map(value).collect::<Vec<u8>>();
            let session = Session {
                transaction: 0,
                hash,
                group: DhGroup::Ffdhe2048,
                concatenation: Concatenation::NewTlsPsk,
                bidirectional: false,
                session_key: Some(SessionKey(Zeroizing::new(bytes(|i| b'A' + i)))),
                controller_challenge: bytes(|i| i),
                host_challenge: Some(bytes(|i| 0xff - i)),
            };
            let psk = hex(psk);
            assert_eq!(session.generated_psk().unwrap().unwrap().as_bytes(), psk);
            let without = Session { concatenation: Concatenation::None, ..session };
            assert!(without.generated_psk().unwrap().is_none());
        }
    }

    #[test]
    fn debug_does_not_show_the_key() {
        let key = SessionKey(Zeroizing::new(vec![77; 32]));
        assert_eq!(format!("{key:?}"), "SessionKey { .. }");
        assert_eq!(format!("{:?}", GeneratedPsk(key.0)), "GeneratedPsk { .. }");
    }
}
