//! `ICReq` and `ICResp`, which open each connection (TCP Transport 3.6.2.1 and 3.6.2.2).

use super::header::{PduError, PduField, PduType};

/// The smallest MAXH2CDATA that a controller may announce, in bytes.
pub const MAXH2CDATA_MIN: u32 = 4096;
/// The largest HPDA or CPDA.
pub const PDU_ALIGNMENT_MAX: u8 = 31;

/// Digests of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digests {
    /// `HDGST_ENABLE`.
    pub header: bool,
    /// `DDGST_ENABLE`.
    pub data: bool,
}

impl Digests {
    const fn from_byte(byte: u8) -> Self {
        Self { header: byte & 1 != 0, data: byte & 2 != 0 }
    }

    const fn to_byte(self) -> u8 {
        self.header as u8 | (self.data as u8) << 1
    }
}

/// Initialize Connection Request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcReq {
    /// HPDA: the alignment of data that the host receives, in dwords, 0's-based (0–31).
    pub hpda: u8,
    /// The digests that the host requests.
    pub digests: Digests,
    /// MAXR2T: outstanding R2Ts per command, 0's-based.
    pub maxr2t: u32,
}

/// Initialize Connection Response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcResp {
    /// CPDA: the alignment of data that the controller receives, in dwords, 0's-based (0–31).
    pub cpda: u8,
    /// The enabled digests.
    pub digests: Digests,
    /// MAXH2CDATA: the most data one `H2CData` PDU may carry, in bytes; at least 4096 and a multiple of four.
    pub maxh2cdata: u32,
}

impl IcReq {
    pub(super) fn parse_body(body: &[u8; 16]) -> Result<Self, PduError> {
        let (hpda, digests, maxr2t) = parse(PduType::IcReq, body)?;
        Ok(Self { hpda, digests, maxr2t })
    }

    pub(super) fn emit_body(self) -> [u8; 16] {
        emit(self.hpda, self.digests, self.maxr2t)
    }
}

impl IcResp {
    pub(super) fn parse_body(body: &[u8; 16]) -> Result<Self, PduError> {
        let pdu = PduType::IcResp;
        let (cpda, digests, maxh2cdata) = parse(pdu, body)?;
        if maxh2cdata < MAXH2CDATA_MIN || !maxh2cdata.is_multiple_of(4) {
            return Err(PduError::InvalidField { pdu, field: PduField::MaxH2cData, value: maxh2cdata });
        }
        Ok(Self { cpda, digests, maxh2cdata })
    }

    pub(super) fn emit_body(self) -> [u8; 16] {
        emit(self.cpda, self.digests, self.maxh2cdata)
    }
}

fn parse(pdu: PduType, body: &[u8; 16]) -> Result<(u8, Digests, u32), PduError> {
    let &[v0, v1, alignment, digests, m0, m1, m2, m3, ..] = body;
    let pfv = u16::from_le_bytes([v0, v1]);
    if pfv != 0 {
        return Err(PduError::Unsupported { pdu, field: PduField::Pfv, value: pfv.into() });
    }
    if alignment > PDU_ALIGNMENT_MAX {
        return Err(PduError::InvalidField { pdu, field: PduField::Alignment, value: alignment.into() });
    }
    Ok((alignment, Digests::from_byte(digests), u32::from_le_bytes([m0, m1, m2, m3])))
}

fn emit(alignment: u8, digests: Digests, max: u32) -> [u8; 16] {
    let [m0, m1, m2, m3] = max.to_le_bytes();
    [0, 0, alignment, digests.to_byte(), m0, m1, m2, m3, 0, 0, 0, 0, 0, 0, 0, 0]
}
