//! The negotiated framing of PDUs in one direction: digests and padding (TCP Transport 3.3).

use super::header::{CommonHeader, PduError, PduField, PduFlags, PduType};
use super::{Digest, Digests};

/// The negotiated framing of PDUs in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Framing {
    /// The enabled digests, the same in both directions.
    pub digests: Digests,
    /// Data alignment in dwords, 0's-based (0–31): CPDA for data from the host, HPDA for data from the controller.
    pub alignment: u8,
}

/// The parts of one received PDU, checked against PLEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the header without digest.
    pub header_len: u32,
    /// Whether a header digest (4 bytes) follows the header.
    pub header_digest: bool,
    /// Bytes of padding before the data.
    pub pad_len: u32,
    /// Bytes of data.
    pub data_len: u32,
    /// Whether a data digest (4 bytes) follows the data.
    pub data_digest: bool,
}

impl Framing {
    /// The common header of a PDU with `data_len` bytes of data; `flags` without the digest flags.
    ///
    /// `data_len` and the headers together must stay below 4 GiB. All data sent here are far smaller.
    #[must_use]
    #[inline]
    pub fn header(&self, pdu: PduType, flags: PduFlags, data_len: u32) -> CommonHeader {
        let header_digest = self.digests.header && pdu.takes_header_digest();
        let data_digest = self.digests.data && pdu.takes_data() && data_len > 0;
        let bare = u32::from(pdu.header_len()) + digest_len(header_digest);
        let pdo = if pdu.takes_data() && data_len > 0 { bare.next_multiple_of(self.align_bytes()) } else { 0 };
        CommonHeader {
            pdu,
            flags: flags.with(PduFlags::HDGST, header_digest).with(PduFlags::DDGST, data_digest),
            // At most 144: the longest header with data has 76 bytes, and 144 is the largest next multiple of an alignment.
            pdo: pdo as u8,
            plen: pdo.max(bare) + data_len + digest_len(data_digest),
        }
    }

    /// Checks a received common header against the negotiated parameters. Returns the parts of the PDU.
    ///
    /// # Errors
    /// FLAGS contradict the negotiated digests, or PDO or PLEN is invalid.
    pub fn layout(&self, header: &CommonHeader) -> Result<Layout, PduError> {
        let CommonHeader { pdu, flags, pdo, plen } = *header;
        let invalid = |field, value| PduError::InvalidField { pdu, field, value };
        let header_len = u32::from(pdu.header_len());
        if !pdu.takes_header_digest() {
            let data_len = plen - header_len;
            if data_len > 0 && !(pdu.is_term_req() && data_len <= super::TERM_DATA_MAX as u32) {
                return Err(invalid(PduField::Plen, plen));
            }
            return Ok(Layout { header_len, header_digest: false, pad_len: 0, data_len, data_digest: false });
        }
        let header_digest = flags.has(PduFlags::HDGST);
        if header_digest != self.digests.header {
            return Err(invalid(PduField::Flags, flags.0.into()));
        }
        let bare = header_len + digest_len(header_digest);
        if !pdu.takes_data() || (plen == bare && pdu == PduType::CapsuleCmd) {
            return if plen == bare {
                Ok(Layout { header_len, header_digest, pad_len: 0, data_len: 0, data_digest: false })
            } else {
                Err(invalid(PduField::Plen, plen))
            };
        }
        let data_digest = flags.has(PduFlags::DDGST);
        if data_digest != self.digests.data {
            return Err(invalid(PduField::Flags, flags.0.into()));
        }
        let start = u32::from(pdo);
        if start < bare || !start.is_multiple_of(self.align_bytes()) {
            return Err(invalid(PduField::Pdo, start));
        }
        match plen.checked_sub(start + digest_len(data_digest)) {
            Some(data_len) if data_len > 0 => {
                Ok(Layout { header_len, header_digest, pad_len: start - bare, data_len, data_digest })
            }
            _ => Err(invalid(PduField::Plen, plen)),
        }
    }

    fn align_bytes(self) -> u32 {
        (u32::from(self.alignment) + 1) * 4
    }
}

impl Layout {
    /// Bytes before the data: header, header digest, padding.
    #[must_use]
    pub fn data_start(&self) -> u32 {
        self.header_len + digest_len(self.header_digest) + self.pad_len
    }

    /// Bytes of the whole PDU.
    #[must_use]
    pub fn pdu_len(&self) -> u32 {
        self.data_start() + self.data_len + digest_len(self.data_digest)
    }
}

const fn digest_len(present: bool) -> u32 {
    if present { Digest::LEN as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn layout_inverts_header(
            ty in 0usize..9, header: bool, data: bool, alignment in 0u8..32, len in 1u32..1 << 20,
        ) {
            let pdu = PduType::ALL[ty];
            let framing = Framing { digests: Digests { header, data }, alignment };
            let data_len = if pdu.takes_data() { len } else if pdu.is_term_req() { len % 129 } else { 0 };
            let common = framing.header(pdu, PduFlags::default(), data_len);
            let layout = framing.layout(&common).unwrap();
            prop_assert_eq!(layout.data_len, data_len);
            prop_assert_eq!(layout.pdu_len(), common.plen);
            if pdu.takes_data() {
                prop_assert_eq!(layout.data_start() % ((u32::from(alignment) + 1) * 4), 0);
                prop_assert_eq!(layout.data_start(), u32::from(common.pdo));
            }
        }

        #[test]
        fn the_layout_of_any_header_is_within_its_length(
            ty in 0usize..9, flags: u8, pdo: u8, plen in 128u32.., header: bool, data: bool, alignment in 0u8..32,
        ) {
            let framing = Framing { digests: Digests { header, data }, alignment };
            let common = CommonHeader { pdu: PduType::ALL[ty], flags: PduFlags(flags), pdo, plen };
            if let Ok(layout) = framing.layout(&common) {
                prop_assert_eq!(layout.pdu_len(), plen);
            }
        }
    }

    #[test]
    fn a_missing_digest_is_refused() {
        let digests = Framing { digests: Digests { header: true, data: true }, alignment: 0 };
        let plain = Framing::default();
        for pdu in [PduType::CapsuleResp, PduType::C2hData] {
            let len = if pdu.takes_data() { 512 } else { 0 };
            for (us, them) in [(digests, plain), (plain, digests)] {
                let common = them.header(pdu, PduFlags::default(), len);
                assert!(matches!(us.layout(&common), Err(PduError::InvalidField { field: PduField::Flags, .. })));
            }
        }
    }
}
