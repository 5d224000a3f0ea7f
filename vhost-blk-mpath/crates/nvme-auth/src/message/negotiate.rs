//! `AUTH_Negotiate`: what the host allows (Base 8.3.4).

use super::fields::Fields;
use super::{MessageError, MessageKind};

/// Bytes of a protocol descriptor.
const DESCRIPTOR_BYTES: usize = 64;
/// `AuthID` of DH-HMAC-CHAP in a protocol descriptor.
const AUTH_ID: u8 = 1;
/// The most entries of each list in a descriptor.
const IDS_MAX: usize = 30;
/// Offset of the identifiers of hashes in a descriptor. Those of groups follow after [`IDS_MAX`] bytes.
const HASHES: usize = 4;
const GROUPS: usize = HASHES + IDS_MAX;

/// `AUTH_Negotiate`. Protocols other than DH-HMAC-CHAP are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Negotiate {
    /// `T_ID`.
    pub transaction: u16,
    /// `SC_C`, see [`Concatenation`](crate::Concatenation).
    pub concatenation: u8,
    /// Identifiers of hashes, at most 30. Unknown ones are possible.
    pub hashes: Vec<u8>,
    /// Identifiers of groups, at most 30. Unknown ones are possible.
    pub groups: Vec<u8>,
}

impl Negotiate {
    pub(super) fn parse(fields: &Fields<'_>) -> Result<Self, MessageError> {
        let offered = fields.u8(7);
        let descriptors =
            fields.slice(MessageKind::Negotiate.fixed_bytes(), usize::from(offered) * DESCRIPTOR_BYTES)?;
        let descriptor = descriptors
            .chunks_exact(DESCRIPTOR_BYTES)
            .find(|descriptor| descriptor[0] == AUTH_ID)
            .ok_or(MessageError::NoProtocol { offered })?;
        let list = |field, length: u8, at: usize| {
            descriptor[at..][..IDS_MAX]
                .get(..length.into())
                .map(<[u8]>::to_vec)
                .ok_or_else(|| fields.wrong(field, length.into(), "0 to 30"))
        };
        Ok(Self {
            transaction: fields.transaction(),
            concatenation: fields.u8(6),
            hashes: list("HALEN", descriptor[2], HASHES)?,
            groups: list("DHLEN", descriptor[3], GROUPS)?,
        })
    }

    pub(super) fn emit(&self, bytes: &mut Vec<u8>) {
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        descriptor[0] = AUTH_ID;
        for (ids, length, at) in [(&self.hashes, 2, HASHES), (&self.groups, 3, GROUPS)] {
            let ids = &ids[..ids.len().min(IDS_MAX)];
            descriptor[length] = ids.len() as u8;
            descriptor[at..][..ids.len()].copy_from_slice(ids);
        }
        bytes[6] = self.concatenation;
        bytes[7] = 1;
        bytes.extend_from_slice(&descriptor);
    }
}
