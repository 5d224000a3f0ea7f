//! Wrong digests on purpose, to test how hosts take them.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::wire::{Digest, PduFlags};

/// How many of the digests sent next are to be wrong, over all connections that share this.
#[derive(Debug, Default)]
pub struct DigestFaults {
    /// Header digests.
    pub header: AtomicU32,
    /// Data digests.
    pub data: AtomicU32,
}

impl DigestFaults {
    /// Spoils the header digest of `pdu`, if it has one and it is its turn.
    pub(super) fn spoil_header(&self, pdu: &mut [u8]) {
        let &mut [_, flags, header_len, ..] = pdu else { return };
        if PduFlags(flags).has(PduFlags::HDGST) && take_one(&self.header) {
            pdu[usize::from(header_len)] ^= 1;
        }
    }

    /// The data digest to send in place of `digest`.
    pub(super) fn spoil_data(&self, digest: Digest) -> [u8; Digest::LEN] {
        let mut bytes = digest.emit();
        if take_one(&self.data) {
            bytes[0] ^= 1;
        }
        bytes
    }
}

/// Takes one off a count, unless it is zero.
fn take_one(count: &AtomicU32) -> bool {
    // Nearly always there is nothing to take, and then nothing to write.
    let less = |count: u32| count.checked_sub(1);
    count.load(Ordering::Relaxed) > 0 && count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}
