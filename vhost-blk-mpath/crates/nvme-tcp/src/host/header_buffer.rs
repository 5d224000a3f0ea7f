//! Decides: a header digest is wrong.
//!
//! Assembles PDU headers from a stream that may be split anywhere.

use zerocopy::little_endian::U64;

use super::error::ProtocolError;
use crate::wire::{
    C2hData, CommonHeader, Cqe, Digest, Digests, Framing, Layout, Pdu, PduError, PduFlags, PduType, crc32c,
};

/// A complete header with a verified digest.
#[derive(Debug, Clone, Copy)]
pub(super) struct ParsedHeader {
    pub(super) layout: Layout,
    pub(super) pdu: Pdu,
}

/// The header of a PDU without digest and padding, which most PDUs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainHeader {
    C2hData(C2hData),
    CapsuleResp(Cqe),
}

impl PlainHeader {
    /// Bytes of the header.
    const LEN: usize = PduType::C2hData.header_len() as usize;
    /// PDU-Type, HLEN and PDO of a `C2HData`. FLAGS are the second byte.
    const C2H_DATA: u32 = u32::from_le_bytes([PduType::C2hData as u8, 0, Self::LEN as u8, Self::LEN as u8]);
    /// The FLAGS of a `C2HData` that mean something.
    const DATA_FLAGS: u32 = ((PduFlags::LAST.0 | PduFlags::SUCCESS.0) as u32) << 8;
    /// PDU-Type, HLEN and PLEN of a response capsule.
    const CAPSULE_RESP: u64 =
        u64::from_le_bytes([PduType::CapsuleResp as u8, 0, Self::LEN as u8, 0, Self::LEN as u8, 0, 0, 0]);

    /// Parses a header. `None` if it is anything else, or has a fault.
    fn parse(bytes: &[u8; Self::LEN]) -> Option<Self> {
        let [common, first, second] = zerocopy::transmute!(*bytes);
        let [common, first, second] = [common, first, second].map(U64::get);
        if common == Self::CAPSULE_RESP {
            let [_, _, _, _, _, _, _, _, cqe @ ..] = *bytes;
            return Some(Self::CapsuleResp(zerocopy::transmute!(cqe)));
        }
        let (flags, length) = (PduFlags((common >> 8) as u8), second as u32);
        let (last, success) = (flags.has(PduFlags::LAST), flags.has(PduFlags::SUCCESS));
        let is_plain = common as u32 & !Self::DATA_FLAGS == Self::C2H_DATA
            && (last || !success)
            && length > 0
            && (common >> 32) == Self::LEN as u64 + u64::from(length);
        let data = C2hData { cid: first as u16, offset: (first >> 32) as u32, length, last, success };
        is_plain.then_some(Self::C2hData(data))
    }
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

    /// Takes the next header from the front of `input`, if it is a plain one and whole. Otherwise takes nothing:
    /// [`accept`](Self::accept) decides.
    #[inline]
    pub(super) fn accept_plain(&mut self, input: &mut &[u8], framing: Framing) -> Option<PlainHeader> {
        let (header, rest) = input.split_first_chunk::<{ PlainHeader::LEN }>()?;
        if self.len > 0 || framing.digests != Digests::default() {
            return None;
        }
        let parsed = PlainHeader::parse(header)?;
        self.bytes[..PlainHeader::LEN].copy_from_slice(header);
        self.last = PlainHeader::LEN;
        *input = rest;
        Some(parsed)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Status;

    proptest! {
        /// A header is plain only if the general parser finds the same, without digest and padding.
        #[test]
        fn a_plain_header_is_as_the_parser_finds_it(
            cid: u16,
            offset: u32,
            length in 1_u32..1 << 20,
            flags in (any::<bool>(), any::<bool>()),
            is_response: bool,
            // Bytes that are changed: their place and their bits.
            changes in prop::collection::vec((0..PlainHeader::LEN, 1_u8..), 0..3),
        ) {
            let (last, success) = (flags.0, flags.0 && flags.1);
            let data = Pdu::C2hData(C2hData { cid, offset, length, last, success });
            let response = Pdu::CapsuleResp(Cqe::new(cid, 0, Status(1), u64::from(offset)));
            let (pdu, data_len) = if is_response { (response, 0) } else { (data, length) };
            let mut bytes = Vec::new();
            pdu.emit_header(&Framing::default(), data_len, &mut bytes);
            for &(at, bits) in &changes {
                bytes[at] ^= bits;
            }
            let parsed = PlainHeader::parse(bytes.first_chunk().expect("a whole header"));
            prop_assert!(parsed.is_some() || !changes.is_empty());
            let Some(parsed) = parsed else { return Ok(()) };
            let expected = match parse(&bytes, Framing::default()) {
                Ok(Progress::Complete(head, used)) if used == PlainHeader::LEN => head,
                _ => return Err(TestCaseError::fail("not a header")),
            };
            let Layout { header_digest, data_digest, pad_len, .. } = expected.layout;
            prop_assert_eq!((header_digest, data_digest, pad_len), (false, false, 0));
            let parsed = match parsed {
                PlainHeader::C2hData(data) => Pdu::C2hData(data),
                PlainHeader::CapsuleResp(cqe) => Pdu::CapsuleResp(cqe),
            };
            prop_assert_eq!(parsed, expected.pdu);
        }
    }
}
