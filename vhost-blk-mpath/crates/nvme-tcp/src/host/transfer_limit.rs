//! Decides: a command transfers at most this much without MDTS.
//!
//! The most that one command may cover, for a controller that reports no limit. The limit of data is unknown if MDTS is 0. The
//! limit of blocks of Write Zeroes and Dataset Management is unknown without WZSL, DMRSL and DMSL.
//!
//! A controller without MDTS may still have a limit: Linux' nvmet-tcp answers commands of some MiB with Internal Error. Suppose a
//! command fails so, and is larger than every completed command. Then it is retried in commands of half the size, and again, down
//! to [`LEARNED_MIN_BYTES`] or [`LEARNED_MIN_BLOCKS`]. If a retry succeeds, the size may have been the reason. When a second
//! request needs smaller commands too, their size becomes the limit. So a passing failure does not change the limit. A failing
//! medium does not either: it fails smaller commands too.

use super::config::CommandLimits;
use super::request::IoCommand;
use crate::wire::Status;

/// The limit without MDTS and without a configured limit: 1 MiB. Other hosts use it too, so targets are tested with it.
pub const UNKNOWN_MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// The smallest limit of data that is learned. The largest block fits.
const LEARNED_MIN_BYTES: u32 = 64 << 10;

/// The smallest limit of blocks that is learned.
const LEARNED_MIN_BLOCKS: u32 = 128;

/// Statuses of a command that may be too large. A violation of MDTS ends with Invalid Field (Base 2.1, figure "Identify
/// Controller"). A violation of WZSL, DMRSL or DMSL ends with Invalid Field, or with Command Size Limit Exceeded (NVM Command Set
/// 1.1, 4.1.5.2).
const REFUSALS: [Status; 3] = [Status::INTERNAL_ERROR, Status::INVALID_FIELD, Status::CONNECT_RESTART_DISCOVERY];

/// The limits of all kinds of commands.
#[derive(Debug, Clone, Copy)]
pub(super) struct LearnedLimits {
    pub(super) transfer: LearnedLimit,
    zeroes: LearnedLimit,
    deallocate: LearnedLimit,
}

impl LearnedLimits {
    /// `is_transfer_reported`: the controller reports MDTS. Reported limits of `commands` are kept apart, for each namespace.
    pub(super) fn new(transfer_bytes: u32, is_transfer_reported: bool, commands: CommandLimits) -> Self {
        let CommandLimits { max_write_zeroes_bytes, max_deallocate_blocks } = commands;
        let of_blocks = |is_reported| LearnedLimit::new(u32::MAX, LEARNED_MIN_BLOCKS, is_reported);
        Self {
            transfer: LearnedLimit::new(transfer_bytes, LEARNED_MIN_BYTES, is_transfer_reported),
            zeroes: of_blocks(max_write_zeroes_bytes != CommandLimits::NONE.max_write_zeroes_bytes),
            deallocate: of_blocks(max_deallocate_blocks != CommandLimits::NONE.max_deallocate_blocks),
        }
    }

    /// The limit for commands of this kind.
    #[inline]
    pub(super) fn of(&mut self, command: &IoCommand) -> &mut LearnedLimit {
        match command {
            IoCommand::Read { .. } | IoCommand::Write { .. } | IoCommand::Flush => &mut self.transfer,
            IoCommand::WriteZeroes { .. } => &mut self.zeroes,
            IoCommand::Deallocate { .. } => &mut self.deallocate,
        }
    }
}

/// The most that one command covers, in bytes of data or in blocks. The module describes how it is learned.
#[derive(Debug, Clone, Copy)]
pub(super) struct LearnedLimit {
    most: u32,
    /// The smallest limit that is learned.
    least: u32,
    is_reported: bool,
    /// The largest command that has succeeded.
    completed: u32,
    /// The command size that one request has needed. Cleared when a larger command succeeds.
    needed: Option<u32>,
    /// The limit has become smaller since the last [`take_smaller`](Self::take_smaller).
    has_shrunk: bool,
}

impl LearnedLimit {
    /// `is_reported`: the controller reports the limit, so it never changes.
    fn new(most: u32, least: u32, is_reported: bool) -> Self {
        Self { most, least, is_reported, completed: 0, needed: None, has_shrunk: false }
    }

    #[inline]
    pub(super) fn most(&self) -> u32 {
        self.most
    }

    /// Takes note of a successful command of this size.
    #[inline]
    pub(super) fn completed(&mut self, size: u32) {
        self.completed = self.completed.max(size);
        self.needed.take_if(|needed| size > *needed);
    }

    /// The command size for the retry of a request; `None` if the failed command of `size` was not too large.
    pub(super) fn retry_size(&self, size: u32, status: Status) -> Option<u32> {
        let least = self.completed.max(self.least);
        let may_be_too_large =
            !self.is_reported && size > least && REFUSALS.into_iter().any(|refusal| status.is(refusal));
        may_be_too_large.then(|| least.max(size / 2))
    }

    /// Takes note of a request that succeeded in commands of at most `size` after larger ones had failed.
    pub(super) fn retry_succeeded(&mut self, size: u32) {
        if let Some(needed) = self.needed.replace(size) {
            let limit = needed.max(size);
            self.has_shrunk |= limit < self.most;
            self.most = self.most.min(limit);
        }
    }

    /// The limit, if it has become smaller since the last call.
    pub(super) fn take_smaller(&mut self) -> Option<u32> {
        std::mem::take(&mut self.has_shrunk).then_some(self.most)
    }
}
