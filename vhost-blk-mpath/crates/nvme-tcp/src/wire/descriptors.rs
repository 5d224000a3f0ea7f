//! Namespace identification descriptors (Base 5.17.2.3).

use super::IDENTIFY_BYTES;

const NIDT_EUI64: u8 = 1;
const NIDT_NGUID: u8 = 2;
const NIDT_UUID: u8 = 3;
const NIDT_CSI: u8 = 4;

/// The identifiers of a namespace, the same over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamespaceDescriptors {
    /// IEEE Extended Unique Identifier.
    pub eui64: Option<[u8; 8]>,
    /// Namespace Globally Unique Identifier.
    pub nguid: Option<[u8; 16]>,
    /// UUID.
    pub uuid: Option<[u8; 16]>,
    /// Command Set Identifier; 0 is NVM.
    pub csi: Option<u8>,
}

/// Why a descriptor list was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// A known type has the wrong length.
    #[error("namespace identification descriptor type {nidt} has length {nidl}")]
    Length {
        /// Namespace Identifier Type.
        nidt: u8,
        /// Namespace Identifier Length.
        nidl: u8,
    },
    /// A descriptor ends after the data.
    #[error("namespace identification descriptors end inside a descriptor")]
    Truncated,
}

impl NamespaceDescriptors {
    /// Parses a list, which ends with a length of zero or with the data. Unknown types are skipped.
    pub fn parse(bytes: &[u8]) -> Result<Self, DescriptorError> {
        let mut rest = bytes;
        let mut found = Self::default();
        while let Some((&[nidt, nidl, _, _], tail)) = rest.split_first_chunk::<4>() {
            if nidl == 0 {
                break;
            }
            let (nid, tail) = tail.split_at_checked(nidl.into()).ok_or(DescriptorError::Truncated)?;
            let length = |_| DescriptorError::Length { nidt, nidl };
            match nidt {
                NIDT_EUI64 => found.eui64 = Some(nid.try_into().map_err(length)?),
                NIDT_NGUID => found.nguid = Some(nid.try_into().map_err(length)?),
                NIDT_UUID => found.uuid = Some(nid.try_into().map_err(length)?),
                NIDT_CSI => {
                    let [csi]: [u8; 1] = nid.try_into().map_err(length)?;
                    found.csi = Some(csi);
                }
                _ => {}
            }
            rest = tail;
        }
        Ok(found)
    }

    /// The list in wire format.
    #[must_use]
    pub fn emit(&self) -> [u8; IDENTIFY_BYTES] {
        let csi = self.csi.map(|csi| [csi]);
        let list = [
            (NIDT_EUI64, self.eui64.as_ref().map(<[u8; 8]>::as_slice)),
            (NIDT_NGUID, self.nguid.as_ref().map(<[u8; 16]>::as_slice)),
            (NIDT_UUID, self.uuid.as_ref().map(<[u8; 16]>::as_slice)),
            (NIDT_CSI, csi.as_ref().map(<[u8; 1]>::as_slice)),
        ];
        let mut bytes = [0; IDENTIFY_BYTES];
        let mut at = 0;
        for (nidt, nid) in list {
            if let Some(nid) = nid {
                bytes[at] = nidt;
                bytes[at + 1] = nid.len() as u8;
                bytes[at + 4..at + 4 + nid.len()].copy_from_slice(nid);
                at += 4 + nid.len();
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(
            eui64: Option<[u8; 8]>, nguid: Option<[u8; 16]>, uuid: Option<[u8; 16]>, csi: Option<u8>,
        ) {
            let descriptors = NamespaceDescriptors { eui64, nguid, uuid, csi };
            prop_assert_eq!(NamespaceDescriptors::parse(&descriptors.emit()), Ok(descriptors));
        }

        #[test]
        fn any_bytes_parse_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), nidt in 1u8..5) {
            let _ = NamespaceDescriptors::parse(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = nidt;
            }
            let _ = NamespaceDescriptors::parse(&bytes);
        }
    }

    #[test]
    fn malformed_lists_are_refused_and_unknown_types_skipped() {
        let wrong_length = NamespaceDescriptors::parse(&[3, 8, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(wrong_length, Err(DescriptorError::Length { nidt: 3, nidl: 8 }));
        assert_eq!(NamespaceDescriptors::parse(&[3, 16, 0, 0, 1]), Err(DescriptorError::Truncated));
        let csi = NamespaceDescriptors::parse(&[0x40, 2, 0, 0, 9, 9, 4, 1, 0, 0, 2]).map(|d| d.csi);
        assert_eq!(csi, Ok(Some(2)));
    }
}
