//! Identities that hosts see: they must differ where the data differs, and stay where it stays.

use uuid::{Builder, Uuid};

use crate::storage::FileIdentity;

/// An identity that no other namespace has or ever had.
pub(crate) fn fresh() -> Uuid {
    Uuid::new_v4()
}

/// The identity of a namespace in a file: the same for every target that serves this file under this name.
pub(crate) fn of_file(nqn: &str, file: FileIdentity) -> Uuid {
    let parts = [nqn.as_bytes(), &file.dev.to_le_bytes(), &file.ino.to_le_bytes()];
    Builder::from_custom_bytes(fnv1a(&parts.concat()).to_be_bytes()).into_uuid()
}

/// Serial number of a subsystem: 16 digits made of its name.
pub(crate) fn serial(nqn: &str) -> String {
    format!("{:016x}", fnv1a(nqn.as_bytes()) >> 64)
}

/// FNV-1a with 128 bits: short, and the same for ever, which the standard library's hash is not.
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
        let same = of_file("nqn.a", file);
        assert_eq!(same, of_file("nqn.a", file));
        assert_ne!(same, of_file("nqn.b", file));
        assert_ne!(same, of_file("nqn.a", FileIdentity { ino: 3, ..file }));
        assert_eq!(same.get_version_num(), 8);
        assert_ne!(fresh(), fresh());
    }

    /// The published test vector for "a".
    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(serial("nqn.x").len(), 16);
    }
}
