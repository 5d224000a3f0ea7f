//! Bits that flip on their way, where a digest or TLS must find them.

use std::ops::Range;

use nvme_tcp::wire::{CommonHeader, Digests, PduType};

use crate::rng::Rng;

/// Bytes of the longest header of commands and data, with its digest.
const HEADER_BYTES: usize = 76;

/// Flips any bit with a probability in ten-thousandths.
pub(super) fn corrupt_any(rng: &mut Rng, per_10k: u64, bytes: &mut [u8]) {
    if per_10k > 0 && rng.below(10_000) < per_10k {
        bytes[rng.index(bytes.len())] ^= 1 << rng.below(8);
    }
}

/// The place in the PDUs of one direction of a connection, from the start of a PDU on.
#[derive(Debug, Default)]
pub(super) struct PduTracker {
    /// The common header of the PDU, as far as it was seen.
    common: Vec<u8>,
    /// Bytes of the PDU that were seen.
    at: u32,
}

impl PduTracker {
    /// Advances over these bytes, and flips a protected bit with a probability in ten-thousandths.
    pub(super) fn corrupt(&mut self, rng: &mut Rng, digests: Digests, per_10k: u64, bytes: &mut [u8]) {
        if digests == Digests::default() {
            return;
        }
        let mut protected: Vec<Range<usize>> = Vec::new();
        let mut seen = 0;
        while seen < bytes.len() {
            let (length, covered) = self.advance(&bytes[seen..], digests);
            protected.extend(covered.then_some(seen..seen + length));
            seen += length;
        }
        if rng.below(10_000) < per_10k {
            // Headers are small, and come first in most pieces.
            let most = if rng.percent(50) { usize::MAX } else { HEADER_BYTES };
            let candidates: Vec<usize> = protected.into_iter().flatten().take(most).collect();
            if !candidates.is_empty() {
                bytes[candidates[rng.index(candidates.len())]] ^= 1 << rng.below(8);
            }
        }
    }

    /// Moves on within one part of a PDU. Returns the number of bytes passed, and whether a digest protects them.
    fn advance(&mut self, bytes: &[u8], digests: Digests) -> (usize, bool) {
        if self.at == 0 {
            self.common.clear();
        }
        if self.common.len() < CommonHeader::LEN {
            self.common.push(bytes[0]);
        }
        let pdu = PduType::from_byte(self.common[0]).expect("both ends send PDUs");
        let header = u32::from(pdu.header_len());
        let (pdo, plen) = match self.common[..] {
            [_, _, _, pdo, a, b, c, d] => (u32::from(pdo), u32::from_le_bytes([a, b, c, d])),
            _ => (0, u32::MAX),
        };
        let in_data = pdo > 0 && self.at >= pdo;
        // PDUs that end a connection have no digest.
        let covered = pdu.takes_header_digest() && (digests.header && self.at < header || digests.data && in_data);
        let ends = [CommonHeader::LEN as u32, header, pdo, plen].into_iter().filter(|&end| end > self.at).min();
        let left = if self.at < CommonHeader::LEN as u32 { 1 } else { ends.map_or(1, |end| end - self.at) };
        let length = bytes.len().min(left as usize);
        self.at += length as u32;
        if self.at == plen {
            self.at = 0;
        }
        (length, covered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response capsule with a header digest, then data from the controller with both digests: 8 bytes of them.
    fn pdus() -> Vec<u8> {
        let mut bytes = vec![0; 28 + 40];
        bytes[..8].copy_from_slice(&[5, 1, 24, 0, 28, 0, 0, 0]);
        bytes[28..36].copy_from_slice(&[7, 3, 24, 28, 40, 0, 0, 0]);
        bytes
    }

    fn protected(digests: Digests, piece: usize) -> Vec<usize> {
        let (bytes, mut tracker) = (pdus(), PduTracker::default());
        let mut protected = Vec::new();
        for (index, piece_bytes) in bytes.chunks(piece).enumerate() {
            let mut seen = 0;
            while seen < piece_bytes.len() {
                let (length, covered) = tracker.advance(&piece_bytes[seen..], digests);
                protected.extend((0..length).filter(|_| covered).map(|byte| index * piece + seen + byte));
                seen += length;
            }
        }
        protected
    }

    #[test]
    fn headers_and_data_are_found_however_they_are_cut() {
        for piece in [1, 5, 28, 68] {
            let header = protected(Digests { header: true, data: false }, piece);
            assert_eq!(header, (0..24).chain(28..52).collect::<Vec<_>>(), "{piece}");
            let data = protected(Digests { header: false, data: true }, piece);
            assert_eq!(data, (56..68).collect::<Vec<_>>(), "{piece}");
        }
    }
}
