//! I/O commands of the NVM command set (NVM Command Set 3.2).

use super::sqe::{high, join, low};
use super::{DSM_RANGES_MAX, Opcode, Sgl, Sqe, Status};

/// The most logical blocks of one command: NLB has 16 bits, 0's-based.
pub const BLOCKS_MAX: u32 = 1 << 16;

const FUA: u32 = 1 << 30;
const DEAC: u32 = 1 << 25;
const DSM_AD: u32 = 1 << 2;

/// A command of the NVM command set. `blocks` is 1 to [`BLOCKS_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvmCommand {
    /// Flush.
    Flush,
    /// Read.
    Read {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
    },
    /// Write.
    Write {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// Force Unit Access: the data must reach stable media before the command completes.
        fua: bool,
    },
    /// Write Zeroes.
    WriteZeroes {
        /// First block.
        slba: u64,
        /// Number of blocks.
        blocks: u32,
        /// DEAC: the controller should deallocate the blocks.
        deallocate: bool,
        /// Force Unit Access: the data must reach stable media before the command completes.
        fua: bool,
    },
    /// Dataset Management. Its data are the ranges.
    DatasetManagement {
        /// Number of ranges, 1 to 256.
        ranges: u16,
        /// AD: deallocate the ranges.
        deallocate: bool,
    },
}

impl NvmCommand {
    /// The submission queue entry.
    #[must_use]
    #[inline]
    pub fn to_sqe(&self, cid: u16, nsid: u32, sgl: Sgl) -> Sqe {
        let rw = |slba: u64, blocks: u32, flags: u32| {
            [low(slba), high(slba), (blocks.wrapping_sub(1) & 0xffff) | flags, 0, 0, 0]
        };
        let flag = |bit: u32, on: bool| if on { bit } else { 0 };
        let (opcode, cdw) = match *self {
            Self::Flush => (Opcode::FLUSH, [0; 6]),
            Self::Read { slba, blocks } => (Opcode::READ, rw(slba, blocks, 0)),
            Self::Write { slba, blocks, fua } => (Opcode::WRITE, rw(slba, blocks, flag(FUA, fua))),
            Self::WriteZeroes { slba, blocks, deallocate, fua } => {
                (Opcode::WRITE_ZEROES, rw(slba, blocks, flag(DEAC, deallocate) | flag(FUA, fua)))
            }
            Self::DatasetManagement { ranges, deallocate } => (
                Opcode::DATASET_MANAGEMENT,
                [u32::from(ranges.wrapping_sub(1)) & 0xff, flag(DSM_AD, deallocate), 0, 0, 0, 0],
            ),
        };
        Sqe::new(opcode, cid, nsid, sgl).with_cdw(cdw)
    }

    /// Parses the entry of an I/O queue.
    ///
    /// # Errors
    /// The status to answer with.
    pub fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let [cdw10, cdw11, cdw12, ..] = sqe.cdw();
        let slba = join(cdw10, cdw11);
        let blocks = (cdw12 & 0xffff) + 1;
        let fua = cdw12 & FUA != 0;
        match Opcode(sqe.opcode) {
            Opcode::FLUSH => Ok(Self::Flush),
            Opcode::READ => Ok(Self::Read { slba, blocks }),
            Opcode::WRITE => Ok(Self::Write { slba, blocks, fua }),
            Opcode::WRITE_ZEROES => Ok(Self::WriteZeroes { slba, blocks, deallocate: cdw12 & DEAC != 0, fua }),
            Opcode::DATASET_MANAGEMENT => Ok(Self::DatasetManagement {
                ranges: (cdw10 as u16 & (DSM_RANGES_MAX - 1)) + 1,
                deallocate: cdw11 & DSM_AD != 0,
            }),
            _ => Err(Status::INVALID_OPCODE.with_dnr()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    fn any_command() -> impl Strategy<Value = NvmCommand> {
        let blocks = 1..=BLOCKS_MAX;
        prop_oneof![
            Just(NvmCommand::Flush),
            (any::<u64>(), blocks.clone()).prop_map(|(slba, blocks)| NvmCommand::Read { slba, blocks }),
            (any::<u64>(), blocks.clone(), any::<bool>()).prop_map(|(slba, blocks, fua)| NvmCommand::Write {
                slba,
                blocks,
                fua
            }),
            (any::<u64>(), blocks, any::<(bool, bool)>()).prop_map(|(slba, blocks, (deallocate, fua))| {
                NvmCommand::WriteZeroes { slba, blocks, deallocate, fua }
            }),
            (1..=DSM_RANGES_MAX, any::<bool>())
                .prop_map(|(ranges, deallocate)| { NvmCommand::DatasetManagement { ranges, deallocate } }),
        ]
    }

    proptest! {
        #[test]
        fn parse_inverts_emit(command in any_command(), cid: u16, nsid: u32) {
            let sqe = command.to_sqe(cid, nsid, Sgl::NONE);
            prop_assert_eq!((sqe.cid.get(), sqe.nsid.get(), sqe.flags), (cid, nsid, 0x40));
            prop_assert_eq!(NvmCommand::parse(&sqe), Ok(command));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes: [u8; 64]) {
            let _ = NvmCommand::parse(&zerocopy::transmute!(bytes));
        }
    }

    #[test]
    fn field_offsets_match_the_specification() {
        let zeroes = NvmCommand::WriteZeroes { slba: 0x0102_0304_0506, blocks: 8, deallocate: true, fua: true };
        let sqe = zeroes.to_sqe(0, 1, Sgl::NONE);
        assert_eq!(sqe.as_bytes()[40..52], [6, 5, 4, 3, 2, 1, 0, 0, 7, 0, 0, 0x42]);
        let dsm = NvmCommand::DatasetManagement { ranges: 3, deallocate: true };
        assert_eq!(dsm.to_sqe(0, 1, Sgl::NONE).as_bytes()[40..48], [2, 0, 0, 0, 4, 0, 0, 0]);
    }
}
