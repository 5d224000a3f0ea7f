//! Ranges of Dataset Management (NVM Command Set 3.2.3).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The most ranges of one command.
pub const DSM_RANGES_MAX: u16 = 256;

/// One range, 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DsmRange {
    /// Context Attributes.
    pub cattr: U32,
    /// Length in logical blocks, not 0's-based.
    pub blocks: U32,
    /// First logical block.
    pub slba: U64,
}

impl DsmRange {
    /// Bytes of a range.
    pub const LEN: usize = 16;

    /// A range without attributes.
    #[must_use]
    pub fn new(slba: u64, blocks: u32) -> Self {
        Self { cattr: 0.into(), blocks: blocks.into(), slba: slba.into() }
    }

    /// The ranges in a command's data. Bytes after the last whole range are ignored.
    #[must_use]
    pub fn slice(bytes: &[u8]) -> &[Self] {
        Self::prefix(bytes, bytes.len() / Self::LEN)
    }

    fn prefix(bytes: &[u8], count: usize) -> &[Self] {
        <[Self]>::ref_from_prefix_with_elems(bytes, count).map_or(&[], |(ranges, _)| ranges)
    }
}

const _: () = assert!(size_of::<DsmRange>() == DsmRange::LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(ranges in proptest::collection::vec(any::<(u64, u32)>(), 0..9), tail in 0usize..16) {
            let ranges: Vec<DsmRange> = ranges.iter().map(|&(slba, blocks)| DsmRange::new(slba, blocks)).collect();
            let mut bytes = ranges.as_bytes().to_vec();
            bytes.resize(bytes.len() + tail, 0xee);
            prop_assert_eq!(DsmRange::slice(&bytes), &ranges[..]);
        }
    }

    #[test]
    fn field_offsets_match_the_specification() {
        assert_eq!(DsmRange::new(5, 9).as_bytes(), [0, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    }
}
