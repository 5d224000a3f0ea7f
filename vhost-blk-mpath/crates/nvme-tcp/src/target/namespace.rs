//! What a namespace is, and what an I/O command does to it.

use super::command::TargetCommand;
use crate::wire::{AnaState, DsmRange, NvmCommand, Status};

/// NSID that means every namespace.
pub(super) const NSID_ALL: u32 = u32::MAX;

/// One namespace of a subsystem; its NSID is its place in the list, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Size in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block, as a power of two: 9 or more.
    pub block_shift: u8,
    /// UUID, which all paths to it report.
    pub uuid: [u8; 16],
    /// NGUID, which all paths to it report; zero for none.
    pub nguid: [u8; 16],
}

/// What the I/O queues of a controller have to know of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoView {
    /// The controller is enabled. Once this is false no command may be executed any more, and the I/O
    /// connections end.
    pub enabled: bool,
    /// The volatile write cache is on; if not, every change goes to stable media before it completes.
    pub write_cache: bool,
    /// ANA state of each namespace through this controller's port, by NSID from 1.
    pub ana: Vec<AnaState>,
}

/// A range of bytes of a namespace, within its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What an I/O command asks for, all of it checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IoTask {
    /// Return the bytes of the range.
    Read(ByteRange),
    /// Store the command's payload, which is as long as the range.
    Write {
        /// Where.
        range: ByteRange,
        /// On stable media before it completes.
        fua: bool,
    },
    /// Bring everything completed before to stable media; of all namespaces if the NSID is `None`.
    Flush,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// Where.
        range: ByteRange,
        /// Give the space back.
        deallocate: bool,
        /// On stable media before it completes.
        fua: bool,
    },
    /// Give the space of the ranges back; they read as zeroes afterwards.
    Deallocate(Vec<ByteRange>),
}

/// The namespaces that a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoScope {
    /// The one at this index, which is its NSID less one.
    One(usize),
    /// All of them; flush only.
    All,
}

impl Namespace {
    /// Bytes of the namespace.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks << self.block_shift
    }

    fn range(&self, slba: u64, blocks: u64) -> Result<ByteRange, Status> {
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks => {
                Ok(ByteRange { offset: slba << self.block_shift, bytes: blocks << self.block_shift })
            }
            _ => Err(Status::LBA_OUT_OF_RANGE.with_dnr()),
        }
    }
}

impl IoView {
    fn check_ana(&self, index: usize) -> Result<(), Status> {
        match self.ana.get(index) {
            Some(AnaState::Optimized | AnaState::NonOptimized) => Ok(()),
            Some(AnaState::Inaccessible) => Err(Status::ANA_INACCESSIBLE),
            Some(AnaState::PersistentLoss) => Err(Status::ANA_PERSISTENT_LOSS),
            Some(AnaState::Change) => Err(Status::ANA_TRANSITION),
            None => Err(Status::INVALID_NAMESPACE.with_dnr()),
        }
    }
}

/// Checks an I/O queue's command against the namespaces and their state: what to do, or the status to answer with.
pub fn check_io(command: &TargetCommand, namespaces: &[Namespace], view: &IoView) -> Result<(IoScope, IoTask), Status> {
    let parsed = NvmCommand::parse(&command.sqe)?;
    let nsid = command.sqe.nsid.get();
    if nsid == NSID_ALL && parsed == NvmCommand::Flush {
        (0..namespaces.len()).try_for_each(|index| view.check_ana(index))?;
        return Ok((IoScope::All, IoTask::Flush));
    }
    let index = (nsid as usize).wrapping_sub(1);
    let namespace = namespaces.get(index).ok_or(Status::INVALID_NAMESPACE.with_dnr())?;
    view.check_ana(index)?;
    let expect = |bytes: u64, there: u64| {
        if bytes == there { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()) }
    };
    let through = !view.write_cache;
    let task = match parsed {
        NvmCommand::Flush => IoTask::Flush,
        NvmCommand::Read { slba, blocks } => {
            let range = namespace.range(slba, blocks.into())?;
            expect(range.bytes, command.expects_bytes.into())?;
            IoTask::Read(range)
        }
        NvmCommand::Write { slba, blocks, fua } => {
            let range = namespace.range(slba, blocks.into())?;
            expect(range.bytes, command.payload.len() as u64)?;
            IoTask::Write { range, fua: fua || through }
        }
        NvmCommand::WriteZeroes { slba, blocks, deallocate, fua } => {
            let range = namespace.range(slba, blocks.into())?;
            IoTask::WriteZeroes { range, deallocate, fua: fua || through }
        }
        NvmCommand::DatasetManagement { ranges, deallocate } => {
            let ranges = DsmRange::slice(&command.payload)
                .get(..ranges.into())
                .ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
            let checked = ranges.iter().map(|range| namespace.range(range.slba.get(), range.blocks.get().into()));
            let checked = checked.collect::<Result<Vec<_>, _>>()?;
            IoTask::Deallocate(if deallocate { checked } else { Vec::new() })
        }
    };
    Ok((IoScope::One(index), task))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::command::CommandToken;
    use crate::wire::{Sgl, Sqe};
    use proptest::prelude::*;

    const NAMESPACES: [Namespace; 2] = [
        Namespace { blocks: 100, block_shift: 9, uuid: [1; 16], nguid: [1; 16] },
        Namespace { blocks: 10, block_shift: 12, uuid: [2; 16], nguid: [2; 16] },
    ];

    fn view() -> IoView {
        IoView { enabled: true, write_cache: true, ana: vec![AnaState::Optimized, AnaState::NonOptimized] }
    }

    fn command(nvm: NvmCommand, nsid: u32, payload: Vec<u8>, expects_bytes: u32) -> TargetCommand {
        let sqe = nvm.to_sqe(1, nsid, Sgl::NONE);
        TargetCommand { token: CommandToken { slot: 0 }, sqe, payload, expects_bytes }
    }

    fn check(nvm: NvmCommand, nsid: u32, payload: usize, expects: u32) -> Result<(IoScope, IoTask), Status> {
        check_io(&command(nvm, nsid, vec![0; payload], expects), &NAMESPACES, &view())
    }

    #[test]
    fn reads_and_writes_become_byte_ranges() {
        let read = check(NvmCommand::Read { slba: 92, blocks: 8 }, 1, 0, 4096);
        assert_eq!(read, Ok((IoScope::One(0), IoTask::Read(ByteRange { offset: 92 * 512, bytes: 4096 }))));
        let write = check(NvmCommand::Write { slba: 9, blocks: 1, fua: true }, 2, 4096, 0);
        let range = ByteRange { offset: 9 * 4096, bytes: 4096 };
        assert_eq!(write, Ok((IoScope::One(1), IoTask::Write { range, fua: true })));
    }

    #[test]
    fn what_lies_beyond_the_end_is_refused() {
        let out = Err(Status::LBA_OUT_OF_RANGE.with_dnr());
        assert_eq!(check(NvmCommand::Read { slba: 93, blocks: 8 }, 1, 0, 4096), out);
        assert_eq!(check(NvmCommand::Read { slba: u64::MAX, blocks: 8 }, 1, 0, 4096), out);
        assert_eq!(check(NvmCommand::Write { slba: 10, blocks: 1, fua: false }, 2, 4096, 0), out);
    }

    #[test]
    fn lengths_must_agree() {
        let bad = Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr());
        assert_eq!(check(NvmCommand::Read { slba: 0, blocks: 8 }, 1, 0, 2048), bad);
        assert_eq!(check(NvmCommand::Write { slba: 0, blocks: 1, fua: false }, 1, 1024, 0), bad);
        assert_eq!(check(NvmCommand::DatasetManagement { ranges: 2, deallocate: true }, 1, 31, 0), bad);
    }

    #[test]
    fn unknown_namespaces_are_refused() {
        let bad = Err(Status::INVALID_NAMESPACE.with_dnr());
        for nsid in [0, 3, u32::MAX - 1, u32::MAX] {
            assert_eq!(check(NvmCommand::Read { slba: 0, blocks: 8 }, nsid, 0, 4096), bad);
        }
        assert_eq!(check(NvmCommand::Flush, 3, 0, 0), bad);
        assert_eq!(check(NvmCommand::Flush, NSID_ALL, 0, 0), Ok((IoScope::All, IoTask::Flush)));
    }

    #[test]
    fn ana_states_that_do_not_serve_answer_with_their_status() {
        for (state, status) in [
            (AnaState::Inaccessible, Status::ANA_INACCESSIBLE),
            (AnaState::PersistentLoss, Status::ANA_PERSISTENT_LOSS),
            (AnaState::Change, Status::ANA_TRANSITION),
        ] {
            let view = IoView { ana: vec![AnaState::Optimized, state], ..view() };
            let flush = |nsid| check_io(&command(NvmCommand::Flush, nsid, vec![], 0), &NAMESPACES, &view);
            assert!(flush(1).is_ok());
            assert_eq!(flush(2), Err(status));
            assert_eq!(flush(NSID_ALL), Err(status));
        }
    }

    #[test]
    fn without_write_cache_every_change_goes_through() {
        let view = IoView { write_cache: false, ..view() };
        let write = NvmCommand::Write { slba: 0, blocks: 1, fua: false };
        let task = check_io(&command(write, 1, vec![0; 512], 0), &NAMESPACES, &view);
        assert!(matches!(task, Ok((_, IoTask::Write { fua: true, .. }))));
    }

    #[test]
    fn only_a_deallocating_dataset_management_does_something() {
        use zerocopy::IntoBytes;
        let ranges = [DsmRange::new(0, 4), DsmRange::new(96, 4)];
        for deallocate in [false, true] {
            let dsm = NvmCommand::DatasetManagement { ranges: 2, deallocate };
            // Linux sends room for all 256 ranges.
            let mut payload = ranges.as_bytes().to_vec();
            payload.resize(4096, 0xff);
            let (_, task) = check_io(&command(dsm, 1, payload, 0), &NAMESPACES, &view()).unwrap();
            let both = vec![ByteRange { offset: 0, bytes: 2048 }, ByteRange { offset: 96 * 512, bytes: 2048 }];
            assert_eq!(task, IoTask::Deallocate(if deallocate { both } else { vec![] }));
        }
    }

    proptest! {
        #[test]
        fn no_command_reaches_beyond_its_namespace(
            sqe: [u8; 64], payload in proptest::collection::vec(any::<u8>(), 0..600), expects_bytes: u32, nsid in 0u32..4,
            opcode in 0u8..10,
        ) {
            let mut sqe: Sqe = zerocopy::transmute!(sqe);
            sqe.opcode = opcode;
            sqe.nsid = nsid.into();
            let command = TargetCommand { token: CommandToken { slot: 0 }, sqe, payload, expects_bytes };
            if let Ok((IoScope::One(index), task)) = check_io(&command, &NAMESPACES, &view()) {
                let ranges = match task {
                    IoTask::Read(range) | IoTask::Write { range, .. } | IoTask::WriteZeroes { range, .. } => vec![range],
                    IoTask::Flush => vec![],
                    IoTask::Deallocate(ranges) => ranges,
                };
                for range in ranges {
                    prop_assert!(range.offset + range.bytes <= NAMESPACES[index].bytes());
                }
            }
        }
    }
}
