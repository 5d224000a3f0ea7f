//! Decides: a payload up to this size is copied (`COPY_MAX`).
//!
//! The buffer of bytes to send, and the parts that refer to payloads.

use monotonic::Instant;

use super::request::Tag;

/// Payloads up to this many bytes are copied between PDU headers. Larger ones are sent from their own memory.
pub const COPY_MAX: u32 = 8192;

/// The longest header with digest and padding: 76 bytes of a command capsule, padded to a multiple of 72.
const HEADER_MAX: usize = 144;
const DIGEST_LEN: usize = crate::wire::Digest::LEN;

/// The least capacity of a staging buffer. With less, a PDU might never fit.
pub const STAGING_MIN: usize = HEADER_MAX + COPY_MAX as usize + DIGEST_LEN;

/// A part of the bytes to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TxPart {
    /// Bytes of the staging buffer.
    Staged {
        /// First byte.
        start: usize,
        /// Bytes.
        len: usize,
    },
    /// Bytes of a request's payload, sent from the caller's memory.
    Payload {
        /// The request.
        tag: Tag,
        /// Offset in the request's whole payload, in bytes.
        offset: u32,
        /// Bytes.
        len: u32,
    },
}

/// The source of write payloads.
pub trait PayloadSource {
    /// Copies the payload of `tag` from `offset` on into all of `dst`.
    fn gather(&self, tag: Tag, offset: u32, dst: &mut [u8]);
}

/// The destination of read payloads.
pub trait PayloadSink {
    /// Copies `src` to the payload of `tag` from `offset` on.
    fn scatter(&mut self, tag: Tag, offset: u32, src: &[u8]);
}

/// The payload of a queue pair that is not ready: there are no requests, so no payload.
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

/// The staging buffer and the plan of one `fill_tx` call.
pub(super) struct Stage<'a> {
    pub(super) staging: &'a mut Vec<u8>,
    plan: &'a mut Vec<TxPart>,
    /// The send time of commands; `None` if it is not recorded.
    pub(super) now: Option<Instant>,
    /// Bytes in the staging buffer before this call.
    start_len: usize,
    /// Bytes of payload parts added by this call.
    payload_bytes: u32,
    /// No further PDU is started once this call has added this many bytes.
    byte_goal: u32,
}

impl<'a> Stage<'a> {
    #[inline]
    pub(super) fn new(
        now: Option<Instant>,
        staging: &'a mut Vec<u8>,
        plan: &'a mut Vec<TxPart>,
        byte_goal: u32,
    ) -> Self {
        let start_len = staging.len();
        Self { staging, plan, now, start_len, payload_bytes: 0, byte_goal }
    }

    /// Bytes that can still be staged.
    #[inline]
    pub(super) fn free(&self) -> u32 {
        u32::try_from(self.staging.capacity() - self.staging.len()).unwrap_or(u32::MAX)
    }

    /// The longest payload that can still be staged with its header and digest. `None` if not even a header fits, or if the byte
    /// goal is reached.
    #[inline]
    pub(super) fn room(&self) -> Option<u32> {
        if self.left() == 0 {
            return None;
        }
        self.free().checked_sub((HEADER_MAX + DIGEST_LEN) as u32)
    }

    /// Bytes until the byte goal.
    #[inline]
    pub(super) fn left(&self) -> u32 {
        self.byte_goal.saturating_sub(self.encoded())
    }

    /// Whether half of the byte goal is left. Capsules with data leave that half to the data of R2Ts.
    pub(super) fn is_half_free(&self) -> bool {
        self.encoded() < self.byte_goal / 2
    }

    /// Bytes that this call has added.
    #[inline]
    fn encoded(&self) -> u32 {
        u32::try_from(self.staging.len() - self.start_len).unwrap_or(u32::MAX).saturating_add(self.payload_bytes)
    }

    /// Stages the bytes that `write` appends, and adds them to the plan.
    pub(super) fn staged(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.staging.len();
        write(self.staging);
        let added = self.staging.len() - start;
        match self.plan.last_mut() {
            Some(TxPart::Staged { start: first, len }) if *first + *len == start => *len += added,
            _ => self.plan.push(TxPart::Staged { start, len: added }),
        }
    }

    /// Adds a part of a payload to the plan.
    #[inline]
    pub(super) fn payload(&mut self, tag: Tag, offset: u32, len: u32) {
        self.plan.push(TxPart::Payload { tag, offset, len });
        self.payload_bytes = self.payload_bytes.saturating_add(len);
    }
}
