//! The common header, the first eight bytes of every PDU (TCP Transport 3.6.1).

use super::{Digest, FatalError};

/// PDU types (TCP Transport, figure 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PduType {
    /// Initialize Connection Request, host to controller.
    IcReq = 0x00,
    /// Initialize Connection Response, controller to host.
    IcResp = 0x01,
    /// Host to Controller Terminate Connection Request.
    H2cTermReq = 0x02,
    /// Controller to Host Terminate Connection Request.
    C2hTermReq = 0x03,
    /// Command Capsule.
    CapsuleCmd = 0x04,
    /// Response Capsule.
    CapsuleResp = 0x05,
    /// Host to Controller Data Transfer.
    H2cData = 0x06,
    /// Controller to Host Data Transfer.
    C2hData = 0x07,
    /// Ready to Transfer, controller to host.
    R2t = 0x09,
}

impl PduType {
    /// All types.
    pub const ALL: [Self; 9] = [
        Self::IcReq,
        Self::IcResp,
        Self::H2cTermReq,
        Self::C2hTermReq,
        Self::CapsuleCmd,
        Self::CapsuleResp,
        Self::H2cData,
        Self::C2hData,
        Self::R2t,
    ];

    /// Parses a PDU-Type byte; `None` if it is not assigned.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0x00 => Self::IcReq,
            0x01 => Self::IcResp,
            0x02 => Self::H2cTermReq,
            0x03 => Self::C2hTermReq,
            0x04 => Self::CapsuleCmd,
            0x05 => Self::CapsuleResp,
            0x06 => Self::H2cData,
            0x07 => Self::C2hData,
            0x09 => Self::R2t,
            _ => return None,
        })
    }

    /// HLEN of this type, in bytes: the header without digest, padding and data.
    #[must_use]
    pub const fn header_len(self) -> u8 {
        match self {
            Self::IcReq | Self::IcResp => 128,
            Self::CapsuleCmd => 72,
            Self::H2cTermReq | Self::C2hTermReq | Self::CapsuleResp | Self::H2cData | Self::C2hData | Self::R2t => 24,
        }
    }

    /// Whether the controller sends this type.
    #[must_use]
    pub const fn is_from_controller(self) -> bool {
        matches!(self, Self::IcResp | Self::C2hTermReq | Self::CapsuleResp | Self::C2hData | Self::R2t)
    }

    /// Whether a negotiated header digest covers this type: all types except connection set-up and termination.
    #[must_use]
    pub const fn takes_header_digest(self) -> bool {
        !matches!(self, Self::IcReq | Self::IcResp | Self::H2cTermReq | Self::C2hTermReq)
    }

    /// Whether this type may carry data at PDO.
    #[must_use]
    pub const fn takes_data(self) -> bool {
        matches!(self, Self::CapsuleCmd | Self::H2cData | Self::C2hData)
    }

    /// Whether this type ends the connection. A copy of the offending header follows its header.
    #[must_use]
    pub const fn is_term_req(self) -> bool {
        matches!(self, Self::H2cTermReq | Self::C2hTermReq)
    }
}

/// FLAGS of the common header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PduFlags(pub u8);

impl PduFlags {
    /// HDGSTF: a header digest follows the header.
    pub const HDGST: Self = Self(1);
    /// DDGSTF: a data digest follows the data.
    pub const DDGST: Self = Self(2);
    /// `LAST_PDU`: the last data PDU of an R2T or of a command.
    pub const LAST: Self = Self(4);
    /// SUCCESS: the command has succeeded and no response capsule will follow.
    pub const SUCCESS: Self = Self(8);

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags, with those of `other` if `condition` holds.
    #[must_use]
    pub const fn with(self, other: Self, condition: bool) -> Self {
        if condition { Self(self.0 | other.0) } else { self }
    }
}

/// A field of a PDU header, for errors. A terminate request reports its byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PduField {
    /// PDU-Type.
    #[error("PDU-Type")]
    Type,
    /// FLAGS.
    #[error("FLAGS")]
    Flags,
    /// Header Length.
    #[error("HLEN")]
    Hlen,
    /// PDU Data Offset.
    #[error("PDO")]
    Pdo,
    /// PDU Length.
    #[error("PLEN")]
    Plen,
    /// PDU Format Version of `ICReq` and `ICResp`.
    #[error("PFV")]
    Pfv,
    /// HPDA or CPDA, the data alignment.
    #[error("HPDA/CPDA")]
    Alignment,
    /// MAXH2CDATA.
    #[error("MAXH2CDATA")]
    MaxH2cData,
    /// Command Capsule CID.
    #[error("CCCID")]
    Cid,
    /// Transfer Tag.
    #[error("TTAG")]
    Ttag,
    /// Data offset (DATAO, R2TO).
    #[error("data offset")]
    DataOffset,
    /// Data length (DATAL, R2TL).
    #[error("data length")]
    DataLength,
}

impl PduField {
    /// Byte offset of the field in its PDU.
    #[must_use]
    pub const fn offset(self) -> u32 {
        match self {
            Self::Type => 0,
            Self::Flags => 1,
            Self::Hlen => 2,
            Self::Pdo => 3,
            Self::Plen => 4,
            Self::Pfv | Self::Cid => 8,
            Self::Alignment | Self::Ttag => 10,
            Self::MaxH2cData | Self::DataOffset => 12,
            Self::DataLength => 16,
        }
    }
}

/// Why a PDU header was refused. Each error ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PduError {
    /// The PDU is shorter than its header.
    #[error("PDU cut short: {got} of {needed} bytes")]
    Truncated {
        /// Bytes needed.
        needed: usize,
        /// Bytes received.
        got: usize,
    },
    /// The PDU-Type is not assigned.
    #[error("unknown PDU type {0:#04x}")]
    UnknownType(u8),
    /// A field whose value the specification forbids.
    #[error("{pdu:?}: invalid {field}: {value:#x}")]
    InvalidField {
        /// The PDU.
        pdu: PduType,
        /// The field.
        field: PduField,
        /// Its value.
        value: u32,
    },
    /// A legal parameter that this implementation does not support, such as a newer format version.
    #[error("{pdu:?}: unsupported {field}: {value:#x}")]
    Unsupported {
        /// The PDU.
        pdu: PduType,
        /// The field.
        field: PduField,
        /// Its value.
        value: u32,
    },
    /// HDGST differs from the CRC32C of the header.
    #[error("{pdu:?}: header digest {received:#010x}, computed {computed:#010x}")]
    HeaderDigest {
        /// The PDU.
        pdu: PduType,
        /// The received digest.
        received: u32,
        /// The computed digest.
        computed: u32,
    },
}

impl PduError {
    /// The Fatal Error Status and Fatal Error Information with which a terminate request reports this error.
    #[must_use]
    pub const fn fatal(&self) -> (FatalError, u32) {
        match *self {
            Self::Truncated { .. } => (FatalError::InvalidHeaderField, PduField::Plen.offset()),
            Self::UnknownType(_) => (FatalError::InvalidHeaderField, PduField::Type.offset()),
            Self::InvalidField { field, .. } => (FatalError::InvalidHeaderField, field.offset()),
            Self::Unsupported { field, .. } => (FatalError::UnsupportedParameter, field.offset()),
            Self::HeaderDigest { received, .. } => (FatalError::HeaderDigest, received),
        }
    }
}

/// The common header, after all checks that need no negotiated parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommonHeader {
    /// PDU-Type.
    pub pdu: PduType,
    /// FLAGS.
    pub flags: PduFlags,
    /// PDO: offset of the data from the start of the PDU; zero without data.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU, including digests and padding.
    pub plen: u32,
}

impl CommonHeader {
    /// Bytes of the common header.
    pub const LEN: usize = 8;

    /// Parses and checks PDU-Type, HLEN, and PLEN against HLEN.
    ///
    /// # Errors
    /// A [`PduError`] naming the field. `bytes` must have at least eight bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, PduError> {
        let &[pdu, flags, hlen, pdo, l0, l1, l2, l3] =
            bytes.first_chunk().ok_or(PduError::Truncated { needed: Self::LEN, got: bytes.len() })?;
        let pdu = PduType::from_byte(pdu).ok_or(PduError::UnknownType(pdu))?;
        if hlen != pdu.header_len() {
            return Err(PduError::InvalidField { pdu, field: PduField::Hlen, value: hlen.into() });
        }
        let plen = u32::from_le_bytes([l0, l1, l2, l3]);
        if plen < u32::from(hlen) {
            return Err(PduError::InvalidField { pdu, field: PduField::Plen, value: plen });
        }
        Ok(Self { pdu, flags: PduFlags(flags), pdo, plen })
    }

    /// The header in wire format.
    #[must_use]
    #[inline]
    pub const fn emit(&self) -> [u8; Self::LEN] {
        let [l0, l1, l2, l3] = self.plen.to_le_bytes();
        [self.pdu as u8, self.flags.0, self.pdu.header_len(), self.pdo, l0, l1, l2, l3]
    }

    /// Appends the header digest and the padding to the header at `start`.
    #[inline]
    pub(super) fn end(self, start: usize, out: &mut Vec<u8>) {
        if self.flags.has(PduFlags::HDGST) {
            let mut digest = Digest::default();
            digest.update(&out[start..]);
            out.extend_from_slice(&digest.emit());
        }
        if self.pdo > 0 {
            out.resize(start + usize::from(self.pdo), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(ty in 0usize..9, flags: u8, pdo: u8, plen in 128u32..) {
            let header = CommonHeader { pdu: PduType::ALL[ty], flags: PduFlags(flags), pdo, plen };
            prop_assert_eq!(CommonHeader::parse(&header.emit()), Ok(header));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..16)) {
            if let Ok(header) = CommonHeader::parse(&bytes) {
                prop_assert_eq!(&header.emit()[..], &bytes[..8]);
            }
        }
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let bad_hlen = CommonHeader::parse(&[4, 0, 71, 0, 72, 0, 0, 0]);
        assert_eq!(
            bad_hlen,
            Err(PduError::InvalidField { pdu: PduType::CapsuleCmd, field: PduField::Hlen, value: 71 })
        );
        let short = CommonHeader::parse(&[4, 0, 72, 0, 71, 0, 0, 0]);
        assert_eq!(short.map_err(|e| e.fatal()), Err((FatalError::InvalidHeaderField, 4)));
        assert_eq!(CommonHeader::parse(&[8; 8]), Err(PduError::UnknownType(8)));
    }
}
