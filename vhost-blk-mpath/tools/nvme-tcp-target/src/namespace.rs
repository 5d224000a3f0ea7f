//! Decides: the target refuses a range (`range`).
//!
//! Namespaces, and the check of I/O commands.

use monotonic::Instant;
use nvme_tcp::wire::{AnaState, DsmRange, NvmCommand, Status};

use super::command::TargetCommand;

/// The NSID that addresses all namespaces.
pub(super) const NSID_ALL: u32 = u32::MAX;

/// One namespace of a subsystem. Its NSID is its position in the list, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Size in logical blocks.
    pub blocks: u64,
    /// Binary logarithm of the logical block size in bytes; at least 9.
    pub block_shift: u8,
    /// UUID.
    pub uuid: [u8; 16],
    /// NGUID; zero for none.
    pub nguid: [u8; 16],
}

/// The state of a controller that its I/O queues need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoView {
    /// The controller is enabled. Once this is false, no command may be executed, and the I/O connections end.
    pub enabled: bool,
    /// The volatile write cache is enabled. If not, each change reaches stable media before it completes.
    pub write_cache: bool,
    /// ANA state of each namespace on the controller's port, by NSID from 1.
    pub ana: Vec<AnaState>,
    /// When the controller's keep-alive timer expires. After that no command may be executed, even while the connections
    /// exist. `None` without a timer.
    pub expires: Option<Instant>,
}

impl IoView {
    /// Whether the keep-alive timer has expired. The host may have fenced its commands, and rely on them not being executed.
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

/// The operation of an I/O command, after all checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IoTask {
    /// Return the bytes of the range.
    Read(ByteRange),
    /// Store the payload of the command, which has the length of the range.
    Write {
        /// The range.
        range: ByteRange,
        /// Force Unit Access: the data must reach stable media before the command completes.
        fua: bool,
    },
    /// Bring all data of completed commands to stable media.
    Flush,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// The range.
        range: ByteRange,
        /// Deallocate the range.
        deallocate: bool,
        /// Force Unit Access: the data must reach stable media before the command completes.
        fua: bool,
    },
    /// Deallocate the ranges. They read as zeroes afterwards.
    Deallocate(Vec<ByteRange>),
}

/// The namespaces that a command addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoScope {
    /// The namespace at this index: NSID minus one.
    One(usize),
    /// All namespaces; only for a flush.
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

/// Checks an I/O command against the namespaces and their state. Returns the operation, or the status to answer with.
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
    let expect = |bytes: u64, got: u64| {
        if bytes == got { Ok(()) } else { Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()) }
    };
    let is_write_through = !view.write_cache;
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
            IoTask::Write { range, fua: fua || is_write_through }
        }
        NvmCommand::WriteZeroes { slba, blocks, deallocate, fua } => {
            let range = namespace.range(slba, blocks.into())?;
            IoTask::WriteZeroes { range, deallocate, fua: fua || is_write_through }
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
