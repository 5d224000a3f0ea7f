//! The Identify Namespace data structure of the NVM command set (NVM Command Set, figure 97), with the fields
//! that host or target use.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;

/// One LBA format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LbaFormat {
    /// Metadata bytes of a block.
    pub ms: U16,
    /// LBA Data Size: a block has 2ⁿ bytes. Below 9 the format is not available.
    pub lbads: u8,
    /// Relative Performance.
    pub rp: u8,
}

impl LbaFormat {
    /// Bytes of a block; `None` for unavailable sizes (below 512) and unsupported sizes (above 64 KiB).
    #[must_use]
    pub const fn block_bytes(self) -> Option<u32> {
        match self.lbads {
            n @ 9..=16 => Some(1 << n),
            _ => None,
        }
    }
}

/// Identify Namespace, 4096 bytes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// Namespace Size in blocks.
    pub nsze: U64,
    /// Namespace Capacity in blocks.
    pub ncap: U64,
    /// Namespace Utilization in blocks.
    pub nuse: U64,
    /// Namespace Features: bit 0 thin provisioning, bit 4 NPWG, NPWA, NPDG, NPDA and NOWS are defined.
    pub nsfeat: u8,
    /// Number of LBA Formats, 0's-based.
    pub nlbaf: u8,
    /// Formatted LBA Size: index of the format in bits 3:0 and 6:5, metadata with data in bit 4.
    pub flbas: u8,
    /// Metadata Capabilities.
    pub mc: u8,
    /// End-to-end Data Protection Capabilities.
    pub dpc: u8,
    /// End-to-end Data Protection Type Settings.
    pub dps: u8,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities: bit 0 shared.
    pub nmic: u8,
    /// Reservation Capabilities.
    pub rescap: u8,
    /// Format Progress Indicator.
    pub fpi: u8,
    /// Deallocate Logical Block Features: bits 2:0 the value of deallocated blocks (1 zeroes), bit 3 DEAC in Write Zeroes.
    pub dlfeat: u8,
    /// Namespace Atomic Write Unit Normal, 0's-based blocks.
    pub nawun: U16,
    /// Namespace Atomic Write Unit Power Fail, 0's-based blocks.
    pub nawupf: U16,
    nacwu_etc: [u8; 8],
    /// Namespace Optimal I/O Boundary in blocks, 0 for none.
    pub noiob: U16,
    /// NVM Capacity in bytes.
    pub nvmcap: [u8; 16],
    /// Namespace Preferred Write Granularity, 0's-based blocks.
    pub npwg: U16,
    /// Namespace Preferred Write Alignment, 0's-based blocks.
    pub npwa: U16,
    /// Namespace Preferred Deallocate Granularity, 0's-based blocks.
    pub npdg: U16,
    /// Namespace Preferred Deallocate Alignment, 0's-based blocks.
    pub npda: U16,
    /// Namespace Optimal Write Size, 0's-based blocks.
    pub nows: U16,
    mssrl_etc: [u8; 18],
    /// ANA Group Identifier.
    pub anagrpid: U32,
    reserved_96: [u8; 3],
    /// Namespace Attributes: bit 0 write protected.
    pub nsattr: u8,
    nvmsetid_endgid: [u8; 4],
    /// Namespace Globally Unique Identifier.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: [u8; 8],
    /// LBA formats.
    pub lbaf: [LbaFormat; 64],
    vendor: [u8; 3712],
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<IdentifyNamespace>() == IDENTIFY_BYTES);
    assert!(offset_of!(IdentifyNamespace, flbas) == 26);
    assert!(offset_of!(IdentifyNamespace, nmic) == 30);
    assert!(offset_of!(IdentifyNamespace, dlfeat) == 33);
    assert!(offset_of!(IdentifyNamespace, noiob) == 46);
    assert!(offset_of!(IdentifyNamespace, npwg) == 64);
    assert!(offset_of!(IdentifyNamespace, npdg) == 68);
    assert!(offset_of!(IdentifyNamespace, anagrpid) == 92);
    assert!(offset_of!(IdentifyNamespace, nsattr) == 99);
    assert!(offset_of!(IdentifyNamespace, nguid) == 104);
    assert!(offset_of!(IdentifyNamespace, eui64) == 120);
    assert!(offset_of!(IdentifyNamespace, lbaf) == 128);
    assert!(offset_of!(IdentifyNamespace, vendor) == 384);
};

impl IdentifyNamespace {
    /// NMIC: the namespace may be attached to several controllers.
    pub const NMIC_SHARED: u8 = 1;
    /// DLFEAT: deallocated blocks read as zeroes.
    pub const DLFEAT_READ_ZEROES: u8 = 1;
    /// DLFEAT: Write Zeroes supports DEAC.
    pub const DLFEAT_DEAC: u8 = 1 << 3;
    /// NSATTR: write protected.
    pub const NSATTR_WRITE_PROTECTED: u8 = 1;

    /// A structure with every field zero.
    #[must_use]
    pub fn blank() -> Self {
        Self::new_zeroed()
    }

    /// Parses the structure; `None` if there are fewer than 4096 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(bytes).ok().map(|(identify, _)| identify)
    }

    /// The format in use.
    #[must_use]
    pub fn format(&self) -> LbaFormat {
        let low = self.flbas & 0xf;
        // FLBAS 6:5 are valid only with more formats than bits 3:0 can address.
        let high = if self.nlbaf >= 16 { self.flbas >> 5 & 3 } else { 0 };
        // The index has six bits, and there are 64 formats.
        self.lbaf[usize::from(high << 4 | low)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(bytes in proptest::collection::vec(any::<u8>(), 4090..4100)) {
            match IdentifyNamespace::parse(&bytes) {
                Some(identify) => {
                    prop_assert_eq!(identify.as_bytes(), &bytes[..4096]);
                    let _ = identify.format().block_bytes();
                }
                None => prop_assert!(bytes.len() < 4096),
            }
        }
    }

    #[test]
    fn flbas_selects_the_format() {
        let mut identify = IdentifyNamespace::blank();
        assert_eq!(identify.format().block_bytes(), None);
        identify.lbaf[2].lbads = 12;
        identify.lbaf[18].lbads = 9;
        identify.flbas = 0x22;
        assert_eq!(identify.format().block_bytes(), Some(4096));
        identify.nlbaf = 18;
        assert_eq!(identify.format().block_bytes(), Some(512));
    }
}
