//! The most data of one command, for a controller that does not report it (MDTS is 0).
//!
//! A controller without MDTS may still have a limit: Linux' nvmet-tcp answers commands of some MiB with Internal Error. Suppose a
//! read or write fails so, and is larger than every completed command. Then it is retried in commands of half the size, and
//! again, down to [`LEARNED_MIN_BYTES`]. If a retry succeeds, the size may have been the reason. When a second request needs
//! smaller commands too, their size becomes the limit. So a passing failure does not change the limit. A failing medium does
//! not either: it fails smaller commands too.

use crate::wire::Status;

/// The limit without MDTS and without a configured limit: 1 MiB. Other hosts use it too, so targets are tested with it.
pub const UNKNOWN_MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// The smallest limit that is learned. The largest block fits.
const LEARNED_MIN_BYTES: u32 = 64 << 10;

/// Statuses of a command that may be too large. A violation of MDTS ends with Invalid Field (Base 2.1, figure "Identify
/// Controller").
const REFUSALS: [Status; 2] = [Status::INTERNAL_ERROR, Status::INVALID_FIELD];

/// The most data of one command. The module describes how it is learned.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferLimit {
    bytes: u32,
    is_reported: bool,
    /// Bytes of the largest command that has succeeded.
    completed: u32,
    /// The command size that one request has needed. Cleared when a larger command succeeds.
    needed: Option<u32>,
    /// The limit has become smaller since the last [`take_smaller`](Self::take_smaller).
    has_shrunk: bool,
}

impl TransferLimit {
    /// `is_reported`: the controller reports MDTS, so the limit never changes.
    pub(super) fn new(bytes: u32, is_reported: bool) -> Self {
        Self { bytes, is_reported, completed: 0, needed: None, has_shrunk: false }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Takes note of a successful command with `bytes` of data.
    pub(super) fn completed(&mut self, bytes: u32) {
        self.completed = self.completed.max(bytes);
        self.needed.take_if(|needed| bytes > *needed);
    }

    /// The command size in bytes for the retry of a request; `None` if the failed command was not too large.
    pub(super) fn retry_size(&self, bytes: u32, status: Status) -> Option<u32> {
        let least = self.completed.max(LEARNED_MIN_BYTES);
        let may_be_too_large =
            !self.is_reported && bytes > least && REFUSALS.into_iter().any(|refusal| status.is(refusal));
        may_be_too_large.then(|| least.max(bytes / 2))
    }

    /// Takes note of a request that succeeded in commands of at most `bytes` after larger ones had failed.
    pub(super) fn retry_succeeded(&mut self, bytes: u32) {
        if let Some(needed) = self.needed.replace(bytes) {
            let limit = needed.max(bytes);
            self.has_shrunk |= limit < self.bytes;
            self.bytes = self.bytes.min(limit);
        }
    }

    /// The limit, if it has become smaller since the last call.
    pub(super) fn take_smaller(&mut self) -> Option<u32> {
        std::mem::take(&mut self.has_shrunk).then_some(self.bytes)
    }
}
