//! `DH-HMAC-CHAP_Challenge`: the choice and the challenge of the controller (Base 8.3.4.5.3).

use super::fields::Fields;
use super::{MessageError, MessageKind};

/// `DH-HMAC-CHAP_Challenge`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// `T_ID`.
    pub transaction: u16,
    /// `HashID`, see [`Hash`](crate::Hash).
    pub hash: u8,
    /// `DHgID`, see [`DhGroup`](crate::DhGroup).
    pub group: u8,
    /// SEQNUM: S1.
    pub sequence_number: u32,
    /// CVAL: the challenge C1, 32, 48 or 64 bytes.
    pub challenge: Vec<u8>,
    /// DHV: the public value of the controller, at most 1024 bytes, big-endian. Empty for group null.
    pub dh_value: Vec<u8>,
}

impl Challenge {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, MessageError> {
        let (hash_bytes, dh_bytes) = (fields.hash_bytes()?, fields.dh_value_bytes()?);
        let start = MessageKind::Challenge.fixed_bytes();
        Ok(Self {
            transaction: fields.transaction(),
            hash: fields.u8(8),
            group: fields.u8(9),
            sequence_number: fields.u32(12),
            challenge: fields.slice(start, hash_bytes)?.to_vec(),
            dh_value: fields.slice(start + hash_bytes, dh_bytes)?.to_vec(),
        })
    }

    pub(super) fn emit(&self, bytes: &mut Vec<u8>) {
        bytes[6] = self.challenge.len() as u8;
        bytes[8] = self.hash;
        bytes[9] = self.group;
        bytes[10..12].copy_from_slice(&(self.dh_value.len() as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&self.sequence_number.to_le_bytes());
        bytes.extend_from_slice(&self.challenge);
        bytes.extend_from_slice(&self.dh_value);
    }
}
