//! Decides: a header digest is wrong.
//!
//! Assembles PDU headers from a stream that may be split anywhere.

use super::error::ProtocolError;
use crate::wire::{CommonHeader, Digest, Framing, Layout, Pdu, PduError, crc32c};

/// A complete header with a verified digest.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParsedHeader {
    pub(super) layout: Layout,
    pub(super) pdu: Pdu,
}

const BUFFER_LEN: usize = Pdu::HEADER_LEN_MAX + Digest::LEN;

/// The bytes of a header that has not arrived completely.
#[derive(Debug)]
pub(super) struct HeaderBuffer {
    bytes: [u8; BUFFER_LEN],
    len: usize,
    /// Bytes of the last header, or of the partial header that is arriving. A terminate request contains them.
    last: usize,
}

impl HeaderBuffer {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; BUFFER_LEN], len: 0, last: 0 }
    }

    /// The last header, or the part of it that has arrived.
    pub(super) fn last(&self) -> &[u8] {
        &self.bytes[..self.last.min(Pdu::HEADER_LEN_MAX)]
    }

    /// Takes the next header, with its digest, from the front of `input`. Returns `None` if `input` ends before the header.
    ///
    /// # Errors
    /// Fails as soon as the bytes with the fault have arrived.
    pub(super) fn accept(
        &mut self,
        input: &mut &[u8],
        framing: Framing,
    ) -> Result<Option<ParsedHeader>, ProtocolError> {
        if self.len == 0
            && let Ok(Progress::Complete(head, used)) = parse(input, framing)
        {
            let (taken, rest) = input.split_at(used);
            self.bytes[..used].copy_from_slice(taken);
            self.last = used;
            *input = rest;
            return Ok(Some(head));
        }
        loop {
            match parse(&self.bytes[..self.len], framing)? {
                Progress::Complete(head, _) => {
                    self.len = 0;
                    return Ok(Some(head));
                }
                Progress::Needs(total) => {
                    let count = (total - self.len).min(input.len());
                    if count == 0 {
                        return Ok(None);
                    }
                    let (taken, rest) = input.split_at(count);
                    self.bytes[self.len..self.len + count].copy_from_slice(taken);
                    self.len += count;
                    self.last = self.len;
                    *input = rest;
                }
            }
        }
    }
}

enum Progress {
    /// The header, and its length in bytes.
    Complete(ParsedHeader, usize),
    /// The number of bytes that are needed to go on.
    Needs(usize),
}

fn parse(bytes: &[u8], framing: Framing) -> Result<Progress, ProtocolError> {
    if bytes.len() < CommonHeader::LEN {
        return Ok(Progress::Needs(CommonHeader::LEN));
    }
    let common = CommonHeader::parse(bytes)?;
    if !common.pdu.is_from_controller() {
        return Err(ProtocolError::UnexpectedPdu { pdu: common.pdu });
    }
    let layout = framing.layout(&common)?;
    let header_len = layout.header_len as usize;
    let total = header_len + if layout.header_digest { Digest::LEN } else { 0 };
    let Some(whole) = bytes.get(..total) else {
        return Ok(Progress::Needs(total));
    };
    let (header, digest) = whole.split_at(header_len);
    if let Some(digest) = digest.first_chunk() {
        let (received, computed) = (u32::from_le_bytes(*digest), crc32c(header));
        if received != computed {
            return Err(PduError::HeaderDigest { pdu: common.pdu, received, computed }.into());
        }
    }
    Ok(Progress::Complete(ParsedHeader { layout, pdu: Pdu::parse(&common, &layout, header)? }, total))
}
