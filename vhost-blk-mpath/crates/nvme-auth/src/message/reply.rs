//! `DH-HMAC-CHAP_Reply`: the proof and the challenge of the host (Base 8.3.4.5.4).

use super::fields::Fields;
use super::{MessageError, MessageKind};

/// `DH-HMAC-CHAP_Reply`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// `T_ID`.
    pub transaction: u16,
    /// SEQNUM: S2. The value 0 means that C2 only serves to generate a pre-shared key, and the controller proves nothing.
    pub sequence_number: u32,
    /// RVAL: the response of the host, 32, 48 or 64 bytes.
    pub response: Vec<u8>,
    /// CVAL: the challenge C2, as long as the response. `None` if CVALID is 0.
    pub challenge: Option<Vec<u8>>,
    /// DHV: the public value of the host, at most 1024 bytes, big-endian. Empty for group null.
    pub dh_value: Vec<u8>,
}

impl Reply {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, MessageError> {
        let (hash_bytes, dh_bytes) = (fields.hash_bytes()?, fields.dh_value_bytes()?);
        let start = MessageKind::Reply.fixed_bytes();
        // The challenge has its place even if it is not valid.
        let challenge = fields.slice(start + hash_bytes, hash_bytes)?;
        Ok(Self {
            transaction: fields.transaction(),
            sequence_number: fields.u32(12),
            response: fields.slice(start, hash_bytes)?.to_vec(),
            challenge: fields.flag("CVALID", 8)?.then(|| challenge.to_vec()),
            dh_value: fields.slice(start + 2 * hash_bytes, dh_bytes)?.to_vec(),
        })
    }

    pub(super) fn emit(&self, bytes: &mut Vec<u8>) {
        let hash_bytes = self.response.len();
        let challenge_at = bytes.len() + hash_bytes;
        bytes[6] = hash_bytes as u8;
        bytes[8] = self.challenge.is_some().into();
        bytes[10..12].copy_from_slice(&(self.dh_value.len() as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence_number.to_le_bytes());
        bytes.extend_from_slice(&self.response);
        bytes.extend_from_slice(self.challenge.as_deref().unwrap_or_default());
        bytes.resize(challenge_at + hash_bytes, 0);
        bytes.extend_from_slice(&self.dh_value);
    }
}
