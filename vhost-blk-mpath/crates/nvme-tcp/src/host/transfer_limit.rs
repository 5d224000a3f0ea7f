//! The most data of one command, where the controller does not say it (MDTS is 0).
//!
//! A controller without MDTS has limits all the same: Linux' nvmet-tcp answers commands of some MiB with Internal Error. A read or write
//! that is refused so, and is larger than all that the controller has completed, is repeated in commands of half the size, and
//! again, down to [`LEARNED_MIN_BYTES`]. If it succeeds in smaller commands, its size may have been the reason. The limit becomes that of
//! these when a second request has needed it: a failure that passes changes nothing, nor does a medium that fails, which refuses smaller
//! commands too.

use crate::wire::Status;

/// Without MDTS and without any other wish, 1 MiB: what other hosts send, and so what targets are tried with.
pub const UNKNOWN_MAX_TRANSFER_BYTES: u32 = 1 << 20;

/// Nothing smaller is found out. The largest block fits.
const LEARNED_MIN_BYTES: u32 = 64 << 10;

/// What may come for a command that is too large. MDTS itself is guarded by Invalid Field (Base 2.1, figure "Identify Controller").
const REFUSALS: [Status; 2] = [Status::INTERNAL_ERROR, Status::INVALID_FIELD];

/// See the module.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferLimit {
    bytes: u32,
    is_reported: bool,
    /// Bytes of the largest command that has succeeded.
    completed: u32,
    /// What one request has needed, and nothing larger has succeeded since.
    needed: Option<u32>,
    /// Became smaller, and nobody has asked.
    is_news: bool,
}

impl TransferLimit {
    /// `is_reported`: the controller says it, so nothing is to be found out.
    pub(super) fn new(bytes: u32, is_reported: bool) -> Self {
        Self { bytes, is_reported, completed: 0, needed: None, is_news: false }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// A command of that many bytes of data has succeeded.
    pub(super) fn completed(&mut self, bytes: u32) {
        self.completed = self.completed.max(bytes);
        self.needed.take_if(|needed| bytes > *needed);
    }

    /// In commands of how many bytes the request of a command is to be repeated that has failed, if it may have been too large.
    pub(super) fn smaller(&self, bytes: u32, status: Status) -> Option<u32> {
        let least = self.completed.max(LEARNED_MIN_BYTES);
        let refused = !self.is_reported && bytes > least && REFUSALS.into_iter().any(|refusal| status.is(refusal));
        refused.then(|| least.max(bytes / 2))
    }

    /// A request has succeeded in commands of at most that many bytes, having been refused in larger ones.
    pub(super) fn found(&mut self, bytes: u32) {
        if let Some(needed) = self.needed.replace(bytes) {
            let limit = needed.max(bytes);
            self.is_news |= limit < self.bytes;
            self.bytes = self.bytes.min(limit);
        }
    }

    /// The limit, if it has become smaller since this was asked last.
    pub(super) fn take_news(&mut self) -> Option<u32> {
        std::mem::take(&mut self.is_news).then_some(self.bytes)
    }
}
