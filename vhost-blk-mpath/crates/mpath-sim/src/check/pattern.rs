//! What writes write: every byte tells which request wrote it, and to which block.

use super::Origin;
use crate::rng::mix;

fn word(id: u64, lba: u64, index: u64) -> u64 {
    if index == 0 { id } else { mix(id ^ lba << 40 ^ index << 56) }
}

/// Fills a payload of whole blocks that goes to `lba` and on.
pub(crate) fn fill(id: u64, lba: u64, block_bytes: usize, payload: &mut [u8]) {
    for (lba, block) in (lba..).zip(payload.chunks_exact_mut(block_bytes)) {
        for (index, bytes) in (0..).zip(block.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word(id, lba, index).to_le_bytes());
        }
    }
}

/// Whose block this is, if every byte of it says the same.
pub(super) fn parse(block: &[u8], lba: u64) -> Result<Origin, String> {
    let mut words = block.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
    let id = words.next().unwrap_or(0);
    let index = if id == 0 {
        words.position(|found| found != 0)
    } else {
        (1..).zip(words).find(|&(index, found)| found != word(id, lba, index)).map(|(index, _)| index as usize)
    };
    match index {
        None if id == 0 => Ok(Origin::Initial),
        None => Ok(Origin::Request(id)),
        Some(index) => Err(format!("block {lba} starts as #{id} wrote it and is something else at byte {}", index * 8)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let mut payload = [0; 1024];
        fill(7, 3, 512, &mut payload);
        assert_eq!(parse(&payload[..512], 3), Ok(Origin::Request(7)));
        assert_eq!(parse(&payload[512..], 4), Ok(Origin::Request(7)));
        assert!(parse(&payload[..512], 4).is_err(), "in the wrong place");
        assert!(parse(&payload[256..768], 3).is_err());
        payload[511] ^= 1;
        assert!(parse(&payload[..512], 3).is_err());
        assert_eq!(parse(&[0; 512], 9), Ok(Origin::Initial));
        let mut zeroes = [0; 512];
        zeroes[100] = 1;
        assert!(parse(&zeroes, 9).is_err());
    }
}
