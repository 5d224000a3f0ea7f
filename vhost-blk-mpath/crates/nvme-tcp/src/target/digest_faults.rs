//! Wrong digests on purpose, to test how hosts take them.

use crate::wire::{Digest, PduFlags};

/// How many of the digests that a connection sends next are to be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DigestFaults {
    /// Header digests.
    pub header: u32,
    /// Data digests.
    pub data: u32,
}

impl DigestFaults {
    /// Spoils the header digest of `pdu`, if it has one and it is its turn.
    pub(super) fn spoil_header(&mut self, pdu: &mut [u8]) {
        let &mut [_, flags, header_len, ..] = pdu else { return };
        if self.header > 0 && PduFlags(flags).has(PduFlags::HDGST) {
            self.header -= 1;
            pdu[usize::from(header_len)] ^= 1;
        }
    }

    /// The data digest to send in place of `digest`.
    pub(super) fn spoil_data(&mut self, digest: Digest) -> [u8; Digest::LEN] {
        let mut bytes = digest.emit();
        if self.data > 0 {
            self.data -= 1;
            bytes[0] ^= 1;
        }
        bytes
    }
}
