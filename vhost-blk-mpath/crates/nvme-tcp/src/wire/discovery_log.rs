//! The header of the Discovery log page (Base 5.16.1.23); its records are [`DiscoveryEntry`](super::DiscoveryEntry).
//!
//! The log can be long. A host reads the header, then the records in parts, then the header again. If the generation has changed,
//! the host starts again.

/// Bytes of the header, and of each record.
pub const DISCOVERY_ENTRY_BYTES: usize = 1024;

/// The first 1024 bytes of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiscoveryHeader {
    /// GENCTR: changes with each change of the log.
    pub generation: u64,
    /// NUMREC: the number of records that follow.
    pub records: u64,
}

/// Why a header was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DiscoveryHeaderError {
    /// The data are shorter than the header fields.
    #[error("the discovery log has only {0} bytes, fewer than its header")]
    Truncated(usize),
    /// RECFMT is not 0.
    #[error("the discovery log has record format {0}; only format 0 is supported")]
    RecordFormat(u16),
}

/// Bytes of the header that are not reserved.
const USED: usize = 18;

impl DiscoveryHeader {
    /// Parses a header; 18 bytes are enough.
    pub fn parse(bytes: &[u8]) -> Result<Self, DiscoveryHeaderError> {
        let used = bytes.first_chunk::<USED>().ok_or(DiscoveryHeaderError::Truncated(bytes.len()))?;
        let &[g0, g1, g2, g3, g4, g5, g6, g7, n0, n1, n2, n3, n4, n5, n6, n7, f0, f1] = used;
        let format = u16::from_le_bytes([f0, f1]);
        if format != 0 {
            return Err(DiscoveryHeaderError::RecordFormat(format));
        }
        Ok(Self {
            generation: u64::from_le_bytes([g0, g1, g2, g3, g4, g5, g6, g7]),
            records: u64::from_le_bytes([n0, n1, n2, n3, n4, n5, n6, n7]),
        })
    }

    /// The header.
    #[must_use]
    pub fn emit(&self) -> [u8; DISCOVERY_ENTRY_BYTES] {
        let mut bytes = [0; DISCOVERY_ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.records.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_inverts_emit(generation: u64, records: u64) {
            let header = DiscoveryHeader { generation, records };
            prop_assert_eq!(DiscoveryHeader::parse(&header.emit()), Ok(header));
        }

        #[test]
        fn any_bytes_parse_or_fail(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let parsed = DiscoveryHeader::parse(&bytes);
            let refused = bytes.len() < USED || bytes[16..18] != [0, 0];
            prop_assert_eq!(parsed.is_err(), refused);
        }
    }

    #[test]
    fn unknown_formats_are_refused() {
        let mut bytes = DiscoveryHeader::default().emit();
        bytes[17] = 1;
        assert_eq!(DiscoveryHeader::parse(&bytes), Err(DiscoveryHeaderError::RecordFormat(256)));
        assert_eq!(DiscoveryHeader::parse(&bytes[..17]), Err(DiscoveryHeaderError::Truncated(17)));
    }
}
