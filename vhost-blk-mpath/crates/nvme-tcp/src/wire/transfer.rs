//! Headers of the PDUs that move data: `H2CData`, `C2HData`, R2T (TCP Transport 3.6.2.7 to 3.6.2.9).

/// Ready to Transfer: the controller requests a part of a command's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct R2t {
    /// CID of the command.
    pub cid: u16,
    /// TTAG: the controller's tag of this transfer, returned in each `H2CData`.
    pub ttag: u16,
    /// R2TO: offset in the command's data, in bytes.
    pub offset: u32,
    /// R2TL: requested bytes.
    pub length: u32,
}

/// Host to Controller Data Transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct H2cData {
    /// CID of the command.
    pub cid: u16,
    /// TTAG of the answered R2T.
    pub ttag: u16,
    /// DATAO: offset in the command's data, in bytes.
    pub offset: u32,
    /// DATAL: bytes of data.
    pub length: u32,
    /// `LAST_PDU`: the last PDU for this R2T.
    pub last: bool,
}

/// Controller to Host Data Transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct C2hData {
    /// CID of the command.
    pub cid: u16,
    /// DATAO: offset in the command's data, in bytes.
    pub offset: u32,
    /// DATAL: bytes of data.
    pub length: u32,
    /// `LAST_PDU`: the last data of this command.
    pub last: bool,
    /// SUCCESS: the command has succeeded, and no response capsule follows. Only with `last`.
    pub success: bool,
}

/// The common layout of the three headers.
#[derive(Clone, Copy)]
pub(super) struct Body {
    pub(super) cid: u16,
    pub(super) ttag: u16,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl Body {
    pub(super) fn parse(body: &[u8; 16]) -> Self {
        let &[c0, c1, t0, t1, o0, o1, o2, o3, l0, l1, l2, l3, ..] = body;
        Self {
            cid: u16::from_le_bytes([c0, c1]),
            ttag: u16::from_le_bytes([t0, t1]),
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
        }
    }

    pub(super) fn emit(self) -> [u8; 16] {
        let [c0, c1] = self.cid.to_le_bytes();
        let [t0, t1] = self.ttag.to_le_bytes();
        let [o0, o1, o2, o3] = self.offset.to_le_bytes();
        let [l0, l1, l2, l3] = self.length.to_le_bytes();
        [c0, c1, t0, t1, o0, o1, o2, o3, l0, l1, l2, l3, 0, 0, 0, 0]
    }
}
