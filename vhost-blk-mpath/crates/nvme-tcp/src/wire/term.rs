//! Terminate requests, which report a fatal error before the connection is closed (TCP Transport 3.6.2.3, 3.6.2.4 and 3.5).

/// The most bytes of the offending header in a terminate request.
pub const TERM_DATA_MAX: usize = 128;

/// Fatal Error Status (TCP Transport, figures 17 and 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FatalError {
    /// A header field is invalid; FEI is its byte offset.
    InvalidHeaderField,
    /// A PDU that is not allowed in this state.
    PduSequence,
    /// HDGST mismatch; FEI is the received digest.
    HeaderDigest,
    /// Data outside the range of the command or R2T.
    DataOutOfRange,
    /// Host to controller: more R2Ts than MAXR2T. Controller to host: more data than MAXH2CDATA.
    LimitExceeded,
    /// A parameter that the receiver does not support; FEI is its byte offset.
    UnsupportedParameter,
    /// A value that is not assigned.
    Other(u16),
}

impl FatalError {
    /// FES as a number.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::InvalidHeaderField => 1,
            Self::PduSequence => 2,
            Self::HeaderDigest => 3,
            Self::DataOutOfRange => 4,
            Self::LimitExceeded => 5,
            Self::UnsupportedParameter => 6,
            Self::Other(code) => code,
        }
    }

    /// Parses an FES number.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            1 => Self::InvalidHeaderField,
            2 => Self::PduSequence,
            3 => Self::HeaderDigest,
            4 => Self::DataOutOfRange,
            5 => Self::LimitExceeded,
            6 => Self::UnsupportedParameter,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for FatalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::InvalidHeaderField => "Invalid PDU Header Field",
            Self::PduSequence => "PDU Sequence Error",
            Self::HeaderDigest => "Header Digest Error",
            Self::DataOutOfRange => "Data Transfer Out of Range",
            Self::LimitExceeded => "R2T or Data Transfer Limit Exceeded",
            Self::UnsupportedParameter => "Unsupported Parameter",
            Self::Other(code) => return write!(f, "Fatal Error Status {code:#x}"),
        })
    }
}

/// The header of `H2CTermReq` and `C2HTermReq`. Up to [`TERM_DATA_MAX`] bytes of the offending header follow it as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermReq {
    /// Fatal Error Status.
    pub fes: FatalError,
    /// Fatal Error Information; its meaning depends on `fes`.
    pub fei: u32,
}

impl TermReq {
    pub(super) fn parse_body(body: &[u8; 16]) -> Self {
        let &[s0, s1, i0, i1, i2, i3, ..] = body;
        Self { fes: FatalError::from_code(u16::from_le_bytes([s0, s1])), fei: u32::from_le_bytes([i0, i1, i2, i3]) }
    }

    pub(super) fn emit_body(self) -> [u8; 16] {
        let [s0, s1] = self.fes.code().to_le_bytes();
        let [i0, i1, i2, i3] = self.fei.to_le_bytes();
        [s0, s1, i0, i1, i2, i3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    }
}
