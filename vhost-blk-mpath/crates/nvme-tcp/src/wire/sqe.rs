//! The submission queue entry (Base 3.3.3.1).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Sgl;

/// Opcodes of the admin, NVM and fabrics command sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// NVM: Flush.
    pub const FLUSH: Self = Self(0x00);
    /// NVM: Write.
    pub const WRITE: Self = Self(0x01);
    /// NVM: Read.
    pub const READ: Self = Self(0x02);
    /// NVM: Write Zeroes.
    pub const WRITE_ZEROES: Self = Self(0x08);
    /// NVM: Dataset Management.
    pub const DATASET_MANAGEMENT: Self = Self(0x09);
    /// Admin: Get Log Page.
    pub const GET_LOG_PAGE: Self = Self(0x02);
    /// Admin: Identify.
    pub const IDENTIFY: Self = Self(0x06);
    /// Admin: Abort.
    pub const ABORT: Self = Self(0x08);
    /// Admin: Set Features.
    pub const SET_FEATURES: Self = Self(0x09);
    /// Admin: Get Features.
    pub const GET_FEATURES: Self = Self(0x0a);
    /// Admin: Asynchronous Event Request.
    pub const ASYNC_EVENT_REQUEST: Self = Self(0x0c);
    /// Admin: Keep Alive.
    pub const KEEP_ALIVE: Self = Self(0x18);
    /// Admin: Cross-Controller Reset.
    pub const CROSS_CONTROLLER_RESET: Self = Self(0x38);
    /// Any queue: a fabrics command. FCTYPE selects the command.
    pub const FABRICS: Self = Self(0x7f);
}

/// A submission queue entry, 64 bytes. Fabrics commands keep FCTYPE in the first byte of [`nsid`](Self::nsid).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Sqe {
    /// Opcode.
    pub opcode: u8,
    /// PSDT (bits 7:6) and FUSE (bits 1:0).
    pub flags: u8,
    /// Command Identifier.
    pub cid: U16,
    /// Namespace Identifier.
    pub nsid: U32,
    /// Command Dword 2.
    pub cdw2: U32,
    /// Command Dword 3.
    pub cdw3: U32,
    /// Metadata Pointer.
    pub mptr: U64,
    /// Data Pointer: an SGL descriptor.
    pub dptr: [u8; 16],
    /// Command Dwords 10 to 15.
    pub cdw: [U32; 6],
}

impl Sqe {
    /// Bytes of an entry.
    pub const LEN: usize = 64;
    /// PSDT 01b, SGLs for this transfer: the only value that fabrics allow.
    pub const FLAGS_SGL: u8 = 0x40;

    /// An entry with `opcode`, CID, NSID and data pointer. All other fields are zero.
    #[must_use]
    #[inline]
    pub fn new(opcode: Opcode, cid: u16, nsid: u32, sgl: Sgl) -> Self {
        Self {
            opcode: opcode.0,
            flags: Self::FLAGS_SGL,
            cid: cid.into(),
            nsid: nsid.into(),
            dptr: sgl.emit(),
            ..Self::default()
        }
    }

    /// This entry with command dwords 10 to 15.
    #[must_use]
    #[inline]
    pub fn with_cdw(self, cdw: [u32; 6]) -> Self {
        Self { cdw: cdw.map(U32::new), ..self }
    }

    /// Command dwords 10 to 15.
    #[must_use]
    pub fn cdw(&self) -> [u32; 6] {
        self.cdw.map(U32::get)
    }
}

const _: () = assert!(size_of::<Sqe>() == Sqe::LEN);

/// Low dword of a 64-bit value.
#[inline]
pub(super) const fn low(value: u64) -> u32 {
    value as u32
}

/// High dword of a 64-bit value.
#[inline]
pub(super) const fn high(value: u64) -> u32 {
    (value >> 32) as u32
}

/// The 64-bit value of two dwords.
pub(super) const fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}
