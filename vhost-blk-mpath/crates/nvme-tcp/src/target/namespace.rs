//! What a namespace is, and what an I/O command does to it.

use std::time::Instant;

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
    /// When the controller's keep-alive timer expires; from then on no command may be executed either, even if nobody has
    /// ended the connections yet. `None`: it has no timer.
    pub expires: Option<Instant>,
}

impl IoView {
    /// Whether the keep-alive timer has expired: the host may have fenced what it sent, and read what was never written.
    #[must_use]
    pub fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|at| at <= now)
    }
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
