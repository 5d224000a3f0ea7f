//! The active namespace list (Base 5.17.2.2).

use super::IDENTIFY_BYTES;

/// The most namespaces of one list.
pub const ACTIVE_LIST_MAX: usize = IDENTIFY_BYTES / 4;

/// Namespace identifiers in ascending order. After a full list, another Identify from its last entry returns the next list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActiveList(pub Vec<u32>);

impl ActiveList {
    /// Parses the list up to its first zero. Truncated data give a truncated list.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let (words, _) = bytes[..bytes.len().min(IDENTIFY_BYTES)].as_chunks();
        Self(words.iter().map(|&word| u32::from_le_bytes(word)).take_while(|&nsid| nsid != 0).collect())
    }

    /// The list in wire format. Identifiers beyond [`ACTIVE_LIST_MAX`] are omitted.
    #[must_use]
    pub fn emit(&self) -> [u8; IDENTIFY_BYTES] {
        let mut bytes = [0; IDENTIFY_BYTES];
        for (word, nsid) in bytes.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *word = nsid.to_le_bytes();
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
        fn parse_inverts_emit(nsids in proptest::collection::vec(1u32.., 0..=ACTIVE_LIST_MAX)) {
            let list = ActiveList(nsids);
            prop_assert_eq!(ActiveList::parse(&list.emit()), list);
        }

        #[test]
        fn any_bytes_parse(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert!(ActiveList::parse(&bytes).0.len() <= ACTIVE_LIST_MAX);
        }
    }
}
