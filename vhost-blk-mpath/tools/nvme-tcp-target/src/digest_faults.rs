//! Deliberately wrong digests, to test hosts.

use std::sync::atomic::{AtomicU32, Ordering};

use nvme_tcp::wire::{Digest, PduFlags};

/// The number of digests to corrupt next, counted over all connections that share this.
#[derive(Debug, Default)]
pub struct DigestFaults {
    /// Header digests.
    pub header: AtomicU32,
    /// Data digests.
    pub data: AtomicU32,
}

impl DigestFaults {
    /// Corrupts the header digest of `pdu`, if it has one and a fault is due.
    pub(super) fn corrupt_header(&self, pdu: &mut [u8]) {
        let &mut [_, flags, header_len, ..] = pdu else { return };
        if PduFlags(flags).has(PduFlags::HDGST) && take_one(&self.header) {
            pdu[usize::from(header_len)] ^= 1;
        }
    }

    /// The data digest to send: `digest`, or a corrupted one if a fault is due.
    pub(super) fn corrupt_data(&self, digest: Digest) -> [u8; Digest::LEN] {
        let mut bytes = digest.emit();
        if take_one(&self.data) {
            bytes[0] ^= 1;
        }
        bytes
    }
}

/// Decrements a count unless it is zero. Returns whether it did.
fn take_one(count: &AtomicU32) -> bool {
    // The count is nearly always zero. The load avoids writing to a shared cache line then.
    let less = |count: u32| count.checked_sub(1);
    count.load(Ordering::Relaxed) > 0 && count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
}
