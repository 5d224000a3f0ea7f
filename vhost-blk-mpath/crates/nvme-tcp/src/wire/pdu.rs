//! A whole PDU: its header, and emission with digest, padding and data.

use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::header::{CommonHeader, PduError, PduField, PduFlags, PduType};
use super::transfer::Body;
use super::{C2hData, Cqe, Digest, Framing, H2cData, IcReq, IcResp, Layout, R2t, Sqe, TermReq};

/// The header of a PDU of any type. Its data are passed separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pdu {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// Host to Controller Terminate Connection Request; data is the offending header.
    H2cTermReq(TermReq),
    /// Controller to Host Terminate Connection Request; data is the offending header.
    C2hTermReq(TermReq),
    /// Command capsule; data is the in-capsule data.
    CapsuleCmd(Sqe),
    /// Response capsule.
    CapsuleResp(Cqe),
    /// Host to Controller Data Transfer.
    H2cData(H2cData),
    /// Controller to Host Data Transfer.
    C2hData(C2hData),
    /// Ready to Transfer.
    R2t(R2t),
}

/// The header of a command capsule.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct CapsuleHeader {
    common: [u8; CommonHeader::LEN],
    sqe: Sqe,
}

impl Pdu {
    /// The longest header of any PDU in bytes, without digest.
    pub const HEADER_LEN_MAX: usize = 128;

    /// Parses the `layout.header_len` bytes of a header whose common part is already parsed. Checks that the data length of a data
    /// PDU matches its PLEN.
    ///
    /// # Errors
    /// A [`PduError`] naming the field.
    pub fn parse(common: &CommonHeader, layout: &Layout, bytes: &[u8]) -> Result<Self, PduError> {
        let needed = layout.header_len as usize;
        let truncated = PduError::Truncated { needed, got: bytes.len() };
        let body: &[u8] = bytes.get(CommonHeader::LEN..needed).ok_or(truncated)?;
        let first: &[u8; 16] = body.first_chunk().ok_or(truncated)?;
        let pdu = match common.pdu {
            PduType::IcReq => Self::IcReq(IcReq::parse_body(first)?),
            PduType::IcResp => Self::IcResp(IcResp::parse_body(first)?),
            PduType::H2cTermReq => Self::H2cTermReq(TermReq::parse_body(first)),
            PduType::C2hTermReq => Self::C2hTermReq(TermReq::parse_body(first)),
            PduType::CapsuleCmd => Self::CapsuleCmd(Sqe::read_from_bytes(body).map_err(|_| truncated)?),
            PduType::CapsuleResp => Self::CapsuleResp(Cqe::read_from_bytes(body).map_err(|_| truncated)?),
            PduType::H2cData => {
                let Body { cid, ttag, offset, length } = Body::parse(first);
                Self::H2cData(H2cData { cid, ttag, offset, length, last: common.flags.has(PduFlags::LAST) })
            }
            PduType::C2hData => {
                let Body { cid, offset, length, .. } = Body::parse(first);
                let (last, success) = (common.flags.has(PduFlags::LAST), common.flags.has(PduFlags::SUCCESS));
                if success && !last {
                    return Err(PduError::InvalidField {
                        pdu: common.pdu,
                        field: PduField::Flags,
                        value: common.flags.0.into(),
                    });
                }
                Self::C2hData(C2hData { cid, offset, length, last, success })
            }
            PduType::R2t => {
                let Body { cid, ttag, offset, length } = Body::parse(first);
                Self::R2t(R2t { cid, ttag, offset, length })
            }
        };
        match pdu {
            Self::H2cData(H2cData { length, .. }) | Self::C2hData(C2hData { length, .. })
                if length != layout.data_len =>
            {
                Err(PduError::InvalidField { pdu: common.pdu, field: PduField::DataLength, value: length })
            }
            _ => Ok(pdu),
        }
    }

    /// This PDU's type.
    #[must_use]
    pub const fn pdu_type(&self) -> PduType {
        match self {
            Self::IcReq(_) => PduType::IcReq,
            Self::IcResp(_) => PduType::IcResp,
            Self::H2cTermReq(_) => PduType::H2cTermReq,
            Self::C2hTermReq(_) => PduType::C2hTermReq,
            Self::CapsuleCmd(_) => PduType::CapsuleCmd,
            Self::CapsuleResp(_) => PduType::CapsuleResp,
            Self::H2cData(_) => PduType::H2cData,
            Self::C2hData(_) => PduType::C2hData,
            Self::R2t(_) => PduType::R2t,
        }
    }

    /// Appends header, header digest and padding. The caller must append `data_len` bytes of data and, with data digests, the
    /// digest.
    pub fn emit_header(&self, framing: &Framing, data_len: u32, out: &mut Vec<u8>) {
        let flags = match self {
            Self::H2cData(data) => PduFlags::default().with(PduFlags::LAST, data.last),
            Self::C2hData(data) => {
                PduFlags::default().with(PduFlags::LAST, data.last).with(PduFlags::SUCCESS, data.success)
            }
            Self::CapsuleCmd(sqe) => return Self::emit_capsule_header(*sqe, *framing, data_len, out),
            _ => PduFlags::default(),
        };
        let common = framing.header(self.pdu_type(), flags, data_len);
        let start = out.len();
        out.extend_from_slice(&common.emit());
        match self {
            Self::IcReq(ic) => out.extend_from_slice(&ic.emit_body()),
            Self::IcResp(ic) => out.extend_from_slice(&ic.emit_body()),
            Self::H2cTermReq(term) | Self::C2hTermReq(term) => {
                out.extend_from_slice(&term.emit_body());
            }
            Self::CapsuleResp(cqe) => out.extend_from_slice(cqe.as_bytes()),
            Self::CapsuleCmd(_) => unreachable!("emitted above"),
            Self::H2cData(H2cData { cid, ttag, offset, length, .. }) | Self::R2t(R2t { cid, ttag, offset, length }) => {
                let body = Body { cid: *cid, ttag: *ttag, offset: *offset, length: *length };
                out.extend_from_slice(&body.emit());
            }
            Self::C2hData(C2hData { cid, offset, length, .. }) => {
                let body = Body { cid: *cid, ttag: 0, offset: *offset, length: *length };
                out.extend_from_slice(&body.emit());
            }
        }
        out.resize(start + usize::from(common.pdu.header_len()), 0);
        common.end(start, out);
    }

    /// [`emit_header`](Self::emit_header) for a command capsule.
    #[expect(clippy::inline_always, reason = "the entry is then written once, and not copied")]
    #[inline(always)]
    pub(crate) fn emit_capsule_header(sqe: Sqe, framing: Framing, data_len: u32, out: &mut Vec<u8>) {
        let common = framing.header(PduType::CapsuleCmd, PduFlags::default(), data_len);
        let start = out.len();
        out.extend_from_slice(CapsuleHeader { common: common.emit(), sqe }.as_bytes());
        common.end(start, out);
    }

    /// Appends the whole PDU with its `data`, with padding and digests by `framing`.
    ///
    /// `data` must be empty for types without data. For data PDUs it must have the length in the header. For terminate requests
    /// it has at most [`TERM_DATA_MAX`](super::TERM_DATA_MAX) bytes.
    pub fn emit(&self, framing: &Framing, data: &[u8], out: &mut Vec<u8>) {
        self.emit_header(framing, data.len() as u32, out);
        out.extend_from_slice(data);
        if framing.digests.data && self.pdu_type().takes_data() && !data.is_empty() {
            let mut digest = Digest::default();
            digest.update(data);
            out.extend_from_slice(&digest.emit());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Digests, FatalError, TERM_DATA_MAX};
    use proptest::prelude::*;

    fn any_pdu() -> impl Strategy<Value = (Pdu, Vec<u8>)> {
        let digests = || (any::<bool>(), any::<bool>()).prop_map(|(header, data)| Digests { header, data });
        let data = proptest::collection::vec(any::<u8>(), 1..600);
        let term = (any::<u16>(), any::<u32>(), proptest::collection::vec(any::<u8>(), 0..=TERM_DATA_MAX));
        let none = Vec::new;
        prop_oneof![
            (0u8..32, digests(), any::<u32>())
                .prop_map(move |(hpda, digests, maxr2t)| (Pdu::IcReq(IcReq { hpda, digests, maxr2t }), none())),
            (0u8..32, digests(), 1024u32..).prop_map(move |(cpda, digests, dwords)| {
                let maxh2cdata = dwords.saturating_mul(4) & !3;
                (Pdu::IcResp(IcResp { cpda, digests, maxh2cdata }), none())
            }),
            (any::<bool>(), term).prop_map(|(h2c, (fes, fei, data))| {
                let term = TermReq { fes: FatalError::from_code(fes), fei };
                (if h2c { Pdu::H2cTermReq(term) } else { Pdu::C2hTermReq(term) }, data)
            }),
            (any::<[u8; 64]>(), proptest::collection::vec(any::<u8>(), 0..600))
                .prop_map(|(sqe, data)| (Pdu::CapsuleCmd(zerocopy::transmute!(sqe)), data)),
            any::<[u8; 16]>().prop_map(move |cqe| (Pdu::CapsuleResp(zerocopy::transmute!(cqe)), none())),
            (any::<(u16, u16, u32, bool)>(), data.clone()).prop_map(|((cid, ttag, offset, last), data)| {
                (Pdu::H2cData(H2cData { cid, ttag, offset, length: data.len() as u32, last }), data)
            }),
            (any::<(u16, u32, bool, bool)>(), data).prop_map(|((cid, offset, last, success), data)| {
                let length = data.len() as u32;
                (Pdu::C2hData(C2hData { cid, offset, length, last, success: success && last }), data)
            }),
            any::<(u16, u16, u32, u32)>()
                .prop_map(move |(cid, ttag, offset, length)| { (Pdu::R2t(R2t { cid, ttag, offset, length }), none()) }),
        ]
    }

    proptest! {
        #[test]
        fn parse_inverts_emit((pdu, data) in any_pdu(), header: bool, ddgst: bool, alignment in 0u8..32) {
            let framing = Framing { digests: Digests { header, data: ddgst }, alignment };
            let mut out = vec![0xa5; 3];
            pdu.emit(&framing, &data, &mut out);
            let bytes = &out[3..];
            let common = CommonHeader::parse(bytes).unwrap();
            prop_assert_eq!(common.plen as usize, bytes.len());
            let layout = framing.layout(&common).unwrap();
            prop_assert_eq!(Pdu::parse(&common, &layout, bytes), Ok(pdu));
            let header_len = layout.header_len as usize;
            if layout.header_digest {
                let crc = crate::wire::crc32c(&bytes[..header_len]);
                prop_assert_eq!(&bytes[header_len..header_len + 4], crc.to_le_bytes());
            }
            let start = layout.data_start() as usize;
            prop_assert_eq!(&bytes[start..start + data.len()], &data[..]);
            if layout.data_digest {
                prop_assert_eq!(&bytes[start + data.len()..], crate::wire::crc32c(&data).to_le_bytes());
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..160), ty in 0u8..10) {
            let mut bytes = bytes;
            // A valid type and HLEN, so that the deeper checks are reached.
            if let (Some(pdu), [first, _, hlen, ..]) = (PduType::from_byte(ty), &mut bytes[..]) {
                *first = ty;
                *hlen = pdu.header_len();
            }
            let framing = Framing::default();
            if let Ok(common) = CommonHeader::parse(&bytes)
                && let Ok(layout) = framing.layout(&common)
            {
                let _ = Pdu::parse(&common, &layout, &bytes);
            }
        }
    }

    #[test]
    fn a_command_capsule_has_the_documented_bytes() {
        let mut out = Vec::new();
        let framing = Framing { digests: Digests { header: true, data: false }, alignment: 0 };
        Pdu::CapsuleCmd(Sqe::default()).emit(&framing, &[7; 8], &mut out);
        assert_eq!(out[..8], [4, 1, 72, 76, 84, 0, 0, 0]);
        assert_eq!(out[76..], [7; 8]);
    }
}
