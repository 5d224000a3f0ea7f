//! The content of one block: five header words and words derived from them.
//!
//! ```text
//! word 0  magic          word 3  seed of the run
//! word 1  block number   word 4  CRC32C of the rest of the block
//! word 2  version        word 5… mix(key + index), key from seed, block number and version
//! ```
//! The whole block follows from (seed, block, version), so a check needs no stored copy. The header and the checksum serve to
//! tell what is wrong with a block.

use super::model::Content;
use mpath_sim::rng::mix;
use std::fmt;

const WORD: usize = 8;
const HEADER_WORDS: usize = 5;
const CHECKSUM_AT: usize = 4 * WORD;
const MAGIC: u64 = u64::from_le_bytes(*b"vublkver");

/// The byte that fills buffers before a read. No block, checksum or zeroed range consists of it.
pub(super) const POISON: u8 = 0xdb;

/// The wrong content that a read has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    WrongVersion { version: u64 },
    Misplaced { block: u64, version: u64 },
    OtherRun { seed: u64 },
    Torn { at: usize, version: u64 },
    Corrupt { at: usize },
    Zeroes,
    NotTransferred,
    Foreign([u8; 16]),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongVersion { version } => write!(f, "version {version}"),
            Self::Misplaced { block, version } => write!(f, "misplaced: block {block}, version {version}"),
            Self::OtherRun { seed } => write!(f, "data of another run (seed {seed})"),
            Self::Torn { at, version } => write!(f, "torn: version {version} up to byte {at}, another one from there"),
            Self::Corrupt { at } => write!(f, "corrupt at byte {at}"),
            Self::Zeroes => f.write_str("zeroes"),
            Self::NotTransferred => f.write_str("nothing: the read buffer was not written"),
            Self::Foreign(bytes) => {
                f.write_str("foreign data:")?;
                bytes.iter().try_for_each(|byte| write!(f, " {byte:02x}"))
            }
        }
    }
}

/// Writes and recognises the blocks of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockPattern {
    seed: u64,
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let start = index * WORD;
    bytes.get(start..start + WORD).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn checksum(bytes: &[u8]) -> u64 {
    let head = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    u64::from(crc32c::crc32c_append(head, &bytes[CHECKSUM_AT + WORD..]))
}

impl BlockPattern {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Fills `bytes` (a multiple of 8, at least 64) with `version` of `block`.
    pub(super) fn write(self, block: u64, version: u64, bytes: &mut [u8]) {
        let words = self.words(block, version, 0);
        for (index, slot) in bytes.chunks_exact_mut(WORD).enumerate() {
            slot.copy_from_slice(&words(index).to_le_bytes());
        }
        let sum = checksum(bytes);
        bytes[CHECKSUM_AT..CHECKSUM_AT + WORD].copy_from_slice(&sum.to_le_bytes());
    }

    /// Compares `bytes` with the contents that `block` may have. Two candidates mean that a write was in flight while the block
    /// was read. Then every word may come from either candidate, because nothing promises atomicity to a read that races with a
    /// write.
    pub(super) fn check(self, block: u64, candidates: [Content; 2], bytes: &[u8]) -> Result<(), Finding> {
        if candidates.contains(&Content::Unknown) {
            return Ok(());
        }
        let [before, after] = candidates;
        let is_legal = self.holds(block, before, bytes)
            || (after != before && (self.holds(block, after, bytes) || self.is_mixture(block, candidates, bytes)));
        if is_legal { Ok(()) } else { Err(self.identify(block, bytes)) }
    }

    fn holds(self, block: u64, content: Content, bytes: &[u8]) -> bool {
        let Content::Data(version) = content else {
            return bytes.iter().all(|&byte| byte == 0);
        };
        let words = self.words(block, version, checksum(bytes));
        bytes.chunks_exact(WORD).enumerate().all(|(index, found)| found == words(index).to_le_bytes())
    }

    /// The words of `version` of `block`, by their index.
    fn words(self, block: u64, version: u64, checksum: u64) -> impl Fn(usize) -> u64 {
        let key = mix(mix(mix(self.seed) ^ block) ^ version);
        let header = [MAGIC, block, version, self.seed, checksum];
        move |index| header.get(index).copied().unwrap_or_else(|| mix(key.wrapping_add(index as u64)))
    }

    fn is_mixture(self, block: u64, candidates: [Content; 2], bytes: &[u8]) -> bool {
        let [before, after] = candidates.map(|content| {
            let mut image = vec![0; bytes.len()];
            if let Content::Data(version) = content {
                self.write(block, version, &mut image);
            }
            image
        });
        (0..bytes.len() / WORD).all(|index| {
            let found = word(bytes, index);
            found == word(&before, index) || found == word(&after, index)
        })
    }

    fn identify(self, block: u64, bytes: &[u8]) -> Finding {
        if bytes.iter().all(|&byte| byte == 0) {
            return Finding::Zeroes;
        }
        if bytes.iter().all(|&byte| byte == POISON) {
            return Finding::NotTransferred;
        }
        let (found_block, version, seed) = (word(bytes, 1), word(bytes, 2), word(bytes, 3));
        if word(bytes, 0) != MAGIC {
            let mut start = [0; 16];
            start.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            return Finding::Foreign(start);
        }
        if checksum(bytes) == word(bytes, HEADER_WORDS - 1) {
            return if seed != self.seed {
                Finding::OtherRun { seed }
            } else if found_block != block {
                Finding::Misplaced { block: found_block, version }
            } else {
                Finding::WrongVersion { version }
            };
        }
        Self::identify_damage(found_block, version, seed, bytes)
    }

    /// The header is ours, the checksum is wrong: one spot, or everything from somewhere on?
    fn identify_damage(block: u64, version: u64, seed: u64, bytes: &[u8]) -> Finding {
        let mut image = vec![0; bytes.len()];
        Self::new(seed).write(block, version, &mut image);
        let differs = |index: &usize| word(bytes, *index) != word(&image, *index);
        let words = bytes.len() / WORD;
        let first = (0..words).find(differs).unwrap_or(0);
        let wrong_after_first = (first..words).filter(differs).count();
        if first >= HEADER_WORDS && wrong_after_first > 1 && wrong_after_first == words - first {
            Finding::Torn { at: first * WORD, version }
        } else {
            Finding::Corrupt { at: first * WORD }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PATTERN: BlockPattern = BlockPattern { seed: 42 };

    fn image(block: u64, version: u64) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        PATTERN.write(block, version, &mut bytes);
        bytes
    }

    fn check(block: u64, version: u64, bytes: &[u8]) -> Result<(), Finding> {
        let content = Content::Data(version);
        PATTERN.check(block, [content, content], bytes)
    }

    #[test]
    fn names_what_it_finds() {
        assert_eq!(check(7, 9, &image(7, 9)), Ok(()));
        assert_eq!(check(7, 9, &image(7, 8)), Err(Finding::WrongVersion { version: 8 }));
        assert_eq!(check(7, 9, &image(6, 9)), Err(Finding::Misplaced { block: 6, version: 9 }));
        assert_eq!(check(7, 9, &[0; 512]), Err(Finding::Zeroes));
        assert_eq!(check(7, 9, &[POISON; 512]), Err(Finding::NotTransferred));
        assert_eq!(check(7, 9, &[1; 512]), Err(Finding::Foreign([1; 16])));
        let mut other_run = vec![0; 512];
        BlockPattern::new(43).write(7, 9, &mut other_run);
        assert_eq!(check(7, 9, &other_run), Err(Finding::OtherRun { seed: 43 }));
        let torn = [&image(7, 9)[..256], &image(7, 8)[256..]].concat();
        assert_eq!(check(7, 9, &torn), Err(Finding::Torn { at: 256, version: 9 }));
    }

    #[test]
    fn zeroes_are_checked_too() {
        let zeroes = [Content::Zeroes; 2];
        assert_eq!(PATTERN.check(7, zeroes, &[0; 512]), Ok(()));
        assert_eq!(PATTERN.check(7, zeroes, &image(7, 9)), Err(Finding::WrongVersion { version: 9 }));
        assert_eq!(PATTERN.check(7, [Content::Unknown; 2], &[3; 512]), Ok(()));
    }

    #[test]
    fn a_racing_read_may_see_old_new_or_both_but_nothing_else() {
        let race = [Content::Data(8), Content::Data(9)];
        let torn = [&image(7, 9)[..128], &image(7, 8)[128..]].concat();
        assert_eq!(PATTERN.check(7, race, &image(7, 8)), Ok(()));
        assert_eq!(PATTERN.check(7, race, &image(7, 9)), Ok(()));
        assert_eq!(PATTERN.check(7, race, &torn), Ok(()));
        assert_eq!(PATTERN.check(7, race, &image(7, 5)), Err(Finding::WrongVersion { version: 5 }));
        let three = [&image(7, 9)[..128], &image(7, 5)[128..]].concat();
        assert!(PATTERN.check(7, race, &three).is_err());
    }

    proptest! {
        #[test]
        fn any_changed_byte_is_found(block: u64, version in 2..u64::MAX - 1, at in 0usize..512, flip in 1u8..) {
            let mut bytes = image(block, version);
            bytes[at] ^= flip;
            prop_assert!(check(block, version, &bytes).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 512), with_magic: bool) {
            let mut bytes = bytes;
            if with_magic {
                bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            }
            prop_assert!(check(3, 4, &bytes).is_err());
        }
    }
}
