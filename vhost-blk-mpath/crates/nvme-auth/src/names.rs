//! Names of hashes and groups in messages for operators.

use crate::{DhGroup, Hash};

/// The names of a list, or "none".
pub(crate) fn list(items: impl IntoIterator<Item = impl ToString>) -> String {
    let names: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The name of a hash, or its unknown identifier.
pub(crate) fn hash(id: u8) -> String {
    Hash::from_id(id).map_or_else(|| format!("{id:#04x}"), |hash| hash.to_string())
}

/// The name of a group, or its unknown identifier.
pub(crate) fn group(id: u8) -> String {
    DhGroup::from_id(id).map_or_else(|| format!("{id:#04x}"), |group| group.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_known_and_unknown_ids() {
        assert_eq!(list([1, 9].map(hash)), "SHA-256, 0x09");
        assert_eq!(list([0, 5, 6].map(group)), "null, ffdhe8192, 0x06");
        assert_eq!(list([0_u8; 0]), "none");
    }
}
