//! The Diffie-Hellman exchange in a group of RFC 7919.

use openssl::bn::{BigNum, BigNumContext};
use openssl::error::ErrorStack;
use zeroize::Zeroizing;

use crate::session::SessionKey;
use crate::{CryptoError, DhGroup, Hash};

/// Bytes of a private exponent: 512 bits. RFC 7919 asks for at least 400 bits in its largest group.
pub(crate) const EXPONENT_BYTES: usize = 64;
const EXPONENT_TOP_BIT: i32 = 511;

/// Why a public value of the peer is unusable. `got` and `allowed` are lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DhValueError {
    /// The value has no bytes, or more than the prime of the group.
    #[error("the public value has {got} bytes, but group {group} allows 1 to {allowed}")]
    Length {
        /// The group.
        group: DhGroup,
        /// Bytes of the value.
        got: usize,
        /// Bytes of the prime.
        allowed: usize,
    },
    /// The value is not between 2 and p - 2. Such a value would make the shared secret known.
    #[error("the public value is outside 2 to p-2 of group {group}, so the shared secret would be known")]
    Range {
        /// The group.
        group: DhGroup,
    },
    /// The group is [`DhGroup::Null`], yet a value came.
    #[error("a public value of {got} bytes came although group null has none")]
    NotExpected {
        /// Bytes of the value.
        got: usize,
    },
}

/// Why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ExchangeError {
    Value(DhValueError),
    Crypto(CryptoError),
}

/// A number that is overwritten when dropped.
struct SecretNumber(BigNum);

impl Drop for SecretNumber {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// A private exponent and the public value of one side, for one transaction.
pub(crate) struct KeyPair {
    group: DhGroup,
    prime: BigNum,
    exponent: SecretNumber,
    public: Vec<u8>,
}

impl KeyPair {
    /// Makes the key pair of an exponent. `None` for [`DhGroup::Null`].
    pub(crate) fn new(group: DhGroup, exponent: &[u8; EXPONENT_BYTES]) -> Result<Option<Self>, CryptoError> {
        let generate = || -> Result<Self, ErrorStack> {
            let prime = group.prime()?;
            let mut exponent = SecretNumber(BigNum::from_slice(exponent)?);
            // The top bit keeps the exponent long, whatever the random bytes are.
            exponent.0.set_bit(EXPONENT_TOP_BIT)?;
            exponent.0.set_const_time();
            let (generator, mut public) = (BigNum::from_u32(2)?, BigNum::new()?);
            public.mod_exp(&generator, &exponent.0, &prime, &mut *BigNumContext::new()?)?;
            // A constant length, as the Linux kernel sends it.
            let public = public.to_vec_padded(i32::from(group.bits() / 8))?;
            Ok(Self { group, prime, exponent, public })
        };
        if group == DhGroup::Null {
            return Ok(None);
        }
        generate().map(Some).map_err(CryptoError::during("the generation of a key pair"))
    }

    /// The public value, as long as the prime of the group.
    pub(crate) fn public(&self) -> &[u8] {
        &self.public
    }

    /// The shared secret with the owner of the public value `peer`, as long as the prime of the group.
    ///
    /// SPDK sends public values without leading zeros, so shorter values are valid.
    pub(crate) fn shared_secret(&self, peer: &[u8]) -> Result<Zeroizing<Vec<u8>>, ExchangeError> {
        let group = self.group;
        if !(1..=group.bytes()).contains(&peer.len()) {
            let (got, allowed) = (peer.len(), group.bytes());
            return Err(ExchangeError::Value(DhValueError::Length { group, got, allowed }));
        }
        let crypto = |stack| ExchangeError::Crypto(CryptoError::during("the Diffie-Hellman exchange")(stack));
        let peer = BigNum::from_slice(peer).map_err(crypto)?;
        if !self.in_range(&peer).map_err(crypto)? {
            return Err(ExchangeError::Value(DhValueError::Range { group }));
        }
        self.power(&peer).map_err(crypto)
    }

    fn in_range(&self, peer: &BigNum) -> Result<bool, ErrorStack> {
        let two = BigNum::from_u32(2)?;
        Ok(*peer >= two && *peer <= &*self.prime - &*two)
    }

    fn power(&self, peer: &BigNum) -> Result<Zeroizing<Vec<u8>>, ErrorStack> {
        let mut secret = SecretNumber(BigNum::new()?);
        secret.0.mod_exp(peer, &self.exponent.0, &self.prime, &mut *BigNumContext::new()?)?;
        // Leading zeros belong to the secret. Without them, the time of its digest would tell about it.
        Ok(Zeroizing::new(secret.0.to_vec_padded(i32::from(self.group.bits() / 8))?))
    }
}

/// The session key with the owner of the public value `peer`. `None` without a key pair, which is [`DhGroup::Null`].
pub(crate) fn session_key(
    key_pair: Option<&KeyPair>,
    hash: Hash,
    peer: &[u8],
) -> Result<Option<SessionKey>, ExchangeError> {
    match key_pair {
        Some(pair) => SessionKey::new(hash, &pair.shared_secret(peer)?).map(Some).map_err(ExchangeError::Crypto),
        None if peer.is_empty() => Ok(None),
        None => Err(ExchangeError::Value(DhValueError::NotExpected { got: peer.len() })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(seed: u8) -> KeyPair {
        KeyPair::new(DhGroup::Ffdhe2048, &[seed; EXPONENT_BYTES]).unwrap().unwrap()
    }

    #[test]
    fn both_sides_get_the_same_secret() {
        let (a, b) = (pair(1), pair(0));
        let secret = a.shared_secret(b.public()).unwrap();
        assert_eq!(secret, b.shared_secret(a.public()).unwrap());
        assert_eq!((secret.len(), a.public().len()), (256, 256));
    }

    #[test]
    fn values_outside_2_to_p_minus_2_are_refused() {
        let (pair, group) = (pair(1), DhGroup::Ffdhe2048);
        let mut above = group.prime().unwrap();
        above.sub_word(1).unwrap();
        let mut largest = group.prime().unwrap();
        largest.sub_word(2).unwrap();
        let range = ExchangeError::Value(DhValueError::Range { group });
        for value in [vec![0], vec![1], above.to_vec(), group.prime().unwrap().to_vec(), vec![255; 256]] {
            assert_eq!(pair.shared_secret(&value), Err(range.clone()));
        }
        for value in [vec![2], vec![0, 2], largest.to_vec()] {
            assert!(pair.shared_secret(&value).is_ok());
        }
    }

    #[test]
    fn lengths_are_bounded() {
        for got in [0, 257] {
            let expected = DhValueError::Length { group: DhGroup::Ffdhe2048, got, allowed: 256 };
            assert_eq!(pair(1).shared_secret(&vec![0; got]), Err(ExchangeError::Value(expected)));
        }
    }

    #[test]
    fn group_null_has_no_key_pair() {
        assert!(KeyPair::new(DhGroup::Null, &[1; EXPONENT_BYTES]).unwrap().is_none());
    }
}
