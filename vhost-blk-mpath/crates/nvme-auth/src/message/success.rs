//! `DH-HMAC-CHAP_Success1`: the controller accepts the host, and proves itself if asked (Base 8.3.4.5.5).

use super::fields::Fields;
use super::{MessageError, MessageKind};

/// `DH-HMAC-CHAP_Success1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Success1 {
    /// `T_ID`.
    pub transaction: u16,
    /// HL: bytes of a digest. The Linux host checks it even without a response.
    pub hash_bytes: u8,
    /// RVAL: the response of the controller. `None` if RVALID is 0.
    pub response: Option<Vec<u8>>,
}

impl Success1 {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, MessageError> {
        let response = if fields.flag("RVALID", 8)? {
            let hash_bytes = fields.hash_bytes()?;
            Some(fields.slice(MessageKind::Success1.fixed_bytes(), hash_bytes)?.to_vec())
        } else {
            None
        };
        Ok(Self { transaction: fields.transaction(), hash_bytes: fields.u8(6), response })
    }

    pub(super) fn emit(&self, bytes: &mut Vec<u8>) {
        bytes[6] = self.hash_bytes;
        if let Some(response) = &self.response {
            bytes[8] = 1;
            bytes.extend_from_slice(response);
        }
    }
}
