//! CRC32C digests (TCP Transport 3.3.2.1).

/// A CRC32C that is computed piece by piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Digest(u32);

impl Digest {
    /// Bytes of a digest on the wire.
    pub const LEN: usize = 4;

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = ::crc32c::crc32c_append(self.0, bytes);
    }

    /// The value so far.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }

    /// The value so far, in wire format.
    #[must_use]
    pub const fn emit(self) -> [u8; Self::LEN] {
        self.0.to_le_bytes()
    }
}

/// CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720 B.4, the test vectors of the same CRC in iSCSI.
    #[test]
    fn known_test_vectors_match() {
        assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
        let mut parts = Digest::default();
        parts.update(&[0; 5]);
        parts.update(&[0; 27]);
        assert_eq!(parts.emit(), [0xaa, 0x36, 0x91, 0x8a]);
    }
}
