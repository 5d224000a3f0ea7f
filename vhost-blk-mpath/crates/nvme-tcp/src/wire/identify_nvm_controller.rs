//! Identify Controller of the NVM command set (NVM Command Set 1.0, 4.1.5.2; CNS 06h, CSI 0).

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;

/// Identify Controller of the NVM command set, 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// VSL: Verify Size Limit.
    pub vsl: u8,
    /// WZSL: one Write Zeroes covers at most 2ⁿ memory pages of CAP.MPSMIN; 0 for no limit.
    pub wzsl: u8,
    /// WUSL: Write Uncorrectable Size Limit.
    pub wusl: u8,
    /// DMRL: the most ranges of one Dataset Management; 0 for 256.
    pub dmrl: u8,
    /// DMRSL: the most blocks of one range; 0 for no limit.
    pub dmrsl: U32,
    /// DMSL: the most blocks of all ranges of a command; 0 for no limit.
    pub dmsl: U64,
    rest: [u8; 4080],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<IdentifyNvmController>() == IDENTIFY_BYTES);
    assert!(offset_of!(IdentifyNvmController, dmrsl) == 4);
    assert!(offset_of!(IdentifyNvmController, dmsl) == 8);
};

impl IdentifyNvmController {
    /// A structure without limits.
    #[must_use]
    pub fn blank() -> Self {
        Self::new_zeroed()
    }

    /// Parses the structure; `None` if there are fewer than 4096 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(identify, _)| identify)
    }

    /// WZSL in bytes, with memory pages of `2^(12 + mpsmin)` bytes; `None` for no limit.
    #[must_use]
    pub const fn max_write_zeroes_bytes(&self, mpsmin: u8) -> Option<u64> {
        match (self.wzsl, self.wzsl as u32 + 12 + mpsmin as u32) {
            (1.., shift @ 0..=63) => Some(1 << shift),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_offsets_match_the_specification() {
        let mut bytes = [0; IDENTIFY_BYTES];
        bytes[..16].copy_from_slice(&[1, 5, 2, 3, 4, 1, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0]);
        let identify = IdentifyNvmController::parse(&bytes).unwrap();
        assert_eq!(
            (identify.wzsl, identify.dmrl, identify.dmrsl.get(), identify.dmsl.get()),
            (5, 3, 260, 9 + (1 << 32))
        );
        assert_eq!(
            (identify.max_write_zeroes_bytes(0), identify.max_write_zeroes_bytes(4)),
            (Some(1 << 17), Some(1 << 21))
        );
        assert_eq!(IdentifyNvmController::blank().max_write_zeroes_bytes(0), None);
        bytes[1] = 255;
        assert_eq!(IdentifyNvmController::parse(&bytes).unwrap().max_write_zeroes_bytes(15), None);
        assert!(IdentifyNvmController::parse(&bytes[1..]).is_none());
    }
}
