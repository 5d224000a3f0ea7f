//! Identities of namespaces and subsystems. They differ for different data and persist with the data.

use uuid::{Builder, Uuid};

use crate::storage::FileIdentity;

pub(crate) fn new_uuid() -> Uuid {
    Uuid::new_v4()
}

/// The UUID of a namespace in a file. It is the same for each target that serves this file under this NQN.
pub(crate) fn file_uuid(nqn: &str, file: FileIdentity) -> Uuid {
    let parts = [nqn.as_bytes(), &file.dev.to_le_bytes(), &file.ino.to_le_bytes()];
    Builder::from_custom_bytes(fnv1a(&parts.concat()).to_be_bytes()).into_uuid()
}

/// The serial number of a subsystem: 16 digits derived from its NQN.
pub(crate) fn serial_number(nqn: &str) -> String {
    format!("{:016x}", fnv1a(nqn.as_bytes()) >> 64)
}

/// FNV-1a with 128 bits. Unlike the hash of the standard library, its values never change.
fn fnv1a(bytes: &[u8]) -> u128 {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET_BASIS, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_depend_on_name_and_file() {
        let file = FileIdentity { dev: 1, ino: 2 };
        let same = file_uuid("nqn.a", file);
        assert_eq!(same, file_uuid("nqn.a", file));
        assert_ne!(same, file_uuid("nqn.b", file));
        assert_ne!(same, file_uuid("nqn.a", FileIdentity { ino: 3, ..file }));
        assert_eq!(same.get_version_num(), 8);
        assert_ne!(new_uuid(), new_uuid());
    }

    /// The published test vector for "a".
    #[test]
    fn the_hash_matches_the_published_test_vector() {
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(serial_number("nqn.x").len(), 16);
    }
}
