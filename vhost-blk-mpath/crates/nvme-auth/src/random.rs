//! The random bytes of a transaction.

use zeroize::Zeroizing;

use crate::exchange::EXPONENT_BYTES;
use crate::hash::Hash;

const SEQUENCE_BYTES: usize = 4;

/// Random bytes that one side needs for one transaction.
pub const RANDOM_BYTES: usize = EXPONENT_BYTES + Hash::BYTES_MAX + SEQUENCE_BYTES;

/// The random bytes of one transaction, overwritten when dropped. Not `Clone`, because no byte may serve twice. In a box,
/// because a move of the bytes themselves would leave a copy.
pub(crate) struct Randomness(Box<Zeroizing<[u8; RANDOM_BYTES]>>);

impl Randomness {
    /// Lets the caller fill the bytes.
    pub(crate) fn draw(fill: impl FnOnce(&mut [u8; RANDOM_BYTES])) -> Self {
        let mut bytes = Box::new(Zeroizing::new([0; RANDOM_BYTES]));
        fill(&mut bytes);
        Self(bytes)
    }

    /// The private exponent of the Diffie-Hellman exchange.
    pub(crate) fn exponent(&self) -> &[u8; EXPONENT_BYTES] {
        self.0.first_chunk().expect("RANDOM_BYTES includes the exponent")
    }

    /// A challenge as long as a digest of `hash`.
    pub(crate) fn challenge(&self, hash: Hash) -> Vec<u8> {
        self.0[EXPONENT_BYTES..][..hash.bytes()].to_vec()
    }

    fn sequence_number(&self) -> u32 {
        u32::from_le_bytes(*self.0.last_chunk().expect("RANDOM_BYTES includes the sequence number"))
    }
}

/// The sequence numbers of one side: random at first, then counted up, and never 0 (Base 8.3.4.5.3 and 8.3.4.5.4).
#[derive(Debug, Default)]
pub(crate) struct SequenceNumbers(Option<u32>);

impl SequenceNumbers {
    /// The sequence number of the next transaction.
    pub(crate) fn next(&mut self, random: &Randomness) -> u32 {
        let next = self.0.map_or_else(|| random.sequence_number(), |last| last.wrapping_add(1)).max(1);
        self.0 = Some(next);
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_count_up_and_skip_0() {
        let random = Randomness::draw(|bytes| bytes[RANDOM_BYTES - 4..].fill(255));
        let mut numbers = SequenceNumbers::default();
        assert_eq!([numbers.next(&random), numbers.next(&random), numbers.next(&random)], [u32::MAX, 1, 2]);
        assert_eq!(SequenceNumbers::default().next(&Randomness::draw(|_| ())), 1);
    }

    #[test]
    fn parts_do_not_overlap() {
        let random = Randomness::draw(|bytes| {
            for (i, byte) in bytes.iter_mut().enumerate() {
                *byte = i as u8;
            }
        });
        assert_eq!((random.exponent()[0], random.exponent()[63]), (0, 63));
        assert_eq!((random.challenge(Hash::Sha512)[0], random.challenge(Hash::Sha512)[63]), (64, 127));
        assert_eq!(random.sequence_number(), u32::from_le_bytes([128, 129, 130, 131]));
    }
}
