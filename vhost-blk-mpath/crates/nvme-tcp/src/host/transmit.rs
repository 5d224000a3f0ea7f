//! Laying out what is ready to leave.

use std::time::Instant;

use super::request::Tag;

/// Payloads up to this many bytes are copied between PDU headers; larger ones are named.
pub const COPY_MAX: u32 = 8192;

/// The longest header, digested and padded: 76 bytes of a command capsule, padded to a multiple of 72.
const HEADER_MAX: usize = 144;
const DIGEST_LEN: usize = crate::wire::Digest::LEN;

/// The least capacity of a staging buffer: less, and nothing may ever be laid out.
pub const STAGING_MIN: usize = HEADER_MAX + COPY_MAX as usize + DIGEST_LEN;

/// A piece of what leaves next, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxPart {
    /// Bytes of the staging buffer.
    Staged {
        /// First byte.
        start: usize,
        /// Bytes.
        len: usize,
    },
    /// Bytes of a request's payload, to be sent from where the caller keeps it.
    Payload {
        /// The request.
        tag: Tag,
        /// Offset in the request's whole payload, in bytes.
        offset: u32,
        /// Bytes.
        len: u32,
    },
}

/// Where the payloads of writes come from.
pub trait PayloadSource {
    /// Copies the payload of `tag` from `offset` on into all of `dst`.
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]);
}

/// Where the payloads of reads go.
pub trait PayloadSink {
    /// Copies `src` to the payload of `tag` from `offset` on.
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]);
}

/// For a queue pair that is not ready yet: it has no request, and so no payload.
#[derive(Debug, Clone, Copy)]
pub struct NoPayload;

impl PayloadSource for NoPayload {
    fn gather(&self, _: Tag, _: u32, _: &mut [u8]) {
        unreachable!("no request before the queue pair is ready");
    }
}

impl PayloadSink for NoPayload {
    fn scatter(&mut self, _: Tag, _: u32, _: &[u8]) {
        unreachable!("no request before the queue pair is ready");
    }
}

/// The staging buffer and the plan of one call, together.
pub(super) struct Stage<'a> {
    pub(super) staging: &'a mut Vec<u8>,
    plan: &'a mut Vec<TxPart>,
    /// When commands that are laid out count as sent, where anybody asks.
    pub(super) now: Option<Instant>,
    /// Bytes staged before this call.
    begun: usize,
    /// Bytes of payload in the plan that are not staged, and after how many bytes in all nothing more is laid out.
    named: u32,
    enough: u32,
}

impl<'a> Stage<'a> {
    pub(super) fn new(now: Option<Instant>, staging: &'a mut Vec<u8>, plan: &'a mut Vec<TxPart>, enough: u32) -> Self {
        let begun = staging.len();
        Self { staging, plan, now, begun, named: 0, enough }
    }

    /// Bytes that can still be staged.
    pub(super) fn free(&self) -> u32 {
        u32::try_from(self.staging.capacity() - self.staging.len()).unwrap_or(u32::MAX)
    }

    /// The longest payload that can still be staged together with its header and digest; `None` if not even an empty one, or if
    /// enough is laid out.
    pub(super) fn room(&self) -> Option<u32> {
        if self.left() == 0 {
            return None;
        }
        self.free().checked_sub((HEADER_MAX + DIGEST_LEN) as u32)
    }

    /// Bytes until enough is laid out.
    pub(super) fn left(&self) -> u32 {
        self.enough.saturating_sub(self.laid_out())
    }

    /// Whether there is half of a call's bytes left: commands that carry their data leave it to data that were asked for.
    pub(super) fn is_half_free(&self) -> bool {
        self.laid_out() < self.enough / 2
    }

    fn laid_out(&self) -> u32 {
        u32::try_from(self.staging.len() - self.begun).unwrap_or(u32::MAX).saturating_add(self.named)
    }

    /// Appends the bytes `write` stages to the plan.
    pub(super) fn staged(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.staging.len();
        write(self.staging);
        let added = self.staging.len() - start;
        match self.plan.last_mut() {
            Some(TxPart::Staged { start: first, len }) if *first + *len == start => *len += added,
            _ => self.plan.push(TxPart::Staged { start, len: added }),
        }
    }

    pub(super) fn payload(&mut self, tag: Tag, offset: u32, len: u32) {
        self.plan.push(TxPart::Payload { tag, offset, len });
        self.named = self.named.saturating_add(len);
    }
}
