//! The completion queue entry (Base 3.3.3.2).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Status;

/// A completion queue entry, 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Cqe {
    /// Dwords 0 and 1: the command's result.
    pub result: U64,
    /// Submission Queue Head Pointer.
    pub sqhd: U16,
    /// Submission Queue Identifier; reserved in fabrics.
    pub sqid: U16,
    /// Command Identifier.
    pub cid: U16,
    /// Status in bits 15:1; bit 0, the phase tag, is reserved in fabrics.
    pub status_phase: U16,
}

impl Cqe {
    /// Bytes of an entry.
    pub const LEN: usize = 16;

    /// A completion of `cid`.
    #[must_use]
    pub fn new(cid: u16, sqhd: u16, status: Status, result: u64) -> Self {
        Self {
            result: result.into(),
            sqhd: sqhd.into(),
            sqid: 0.into(),
            cid: cid.into(),
            status_phase: (status.0 << 1).into(),
        }
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(self.status_phase.get() >> 1)
    }

    /// Dword 0 of the result.
    #[must_use]
    pub fn dw0(&self) -> u32 {
        self.result.get() as u32
    }
}

const _: () = assert!(size_of::<Cqe>() == Cqe::LEN);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    proptest! {
        #[test]
        fn parse_inverts_emit(cid: u16, sqhd: u16, status in 0u16..0x8000, result: u64) {
            let cqe = Cqe::new(cid, sqhd, Status(status), result);
            let parsed = Cqe::read_from_bytes(cqe.as_bytes()).unwrap();
            prop_assert_eq!(parsed, cqe);
            prop_assert_eq!((parsed.cid.get(), parsed.sqhd.get()), (cid, sqhd));
            prop_assert_eq!((parsed.status(), parsed.result.get()), (Status(status), result));
        }
    }
}
