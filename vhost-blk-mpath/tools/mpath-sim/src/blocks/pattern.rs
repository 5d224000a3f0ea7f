//! The data that guests write: each byte tells which request of which disk wrote it, and to which block.

use super::Origin;
use crate::rng::mix;

/// The place of the disk in the first word of a block. The bits below are the number of the request.
const DISK_SHIFT: u32 = 48;

fn word(first: u64, lba: u64, index: u64) -> u64 {
    if index == 0 { first } else { mix(first ^ lba << 40 ^ index << 56) }
}

/// Fills a payload of whole blocks that goes to `lba` of a disk and on.
pub(crate) fn fill(disk: usize, id: u64, lba: u64, block_bytes: usize, payload: &mut [u8]) {
    let first = (disk as u64) << DISK_SHIFT | id;
    for (lba, block) in (lba..).zip(payload.chunks_exact_mut(block_bytes)) {
        for (index, bytes) in (0..).zip(block.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word(first, lba, index).to_le_bytes());
        }
    }
}

/// The origin of a block, if each of its bytes has the same.
pub(crate) fn parse(disk: usize, block: &[u8], lba: u64) -> Result<Origin, String> {
    let mut words = block.chunks_exact(8).map(|bytes| bytes.try_into().map_or(0, u64::from_le_bytes));
    let first = words.next().unwrap_or(0);
    let index = if first == 0 {
        words.position(|found| found != 0)
    } else {
        (1..).zip(words).find(|&(index, found)| found != word(first, lba, index)).map(|(index, _)| index as usize)
    };
    let (of, id) = (first >> DISK_SHIFT, first & ((1 << DISK_SHIFT) - 1));
    match index {
        None if first == 0 => Ok(Origin::Initial),
        None if of == disk as u64 => Ok(Origin::Request(id)),
        None => Err(format!("block {lba} is as #{id} wrote it, which is a request of disk {of}")),
        Some(index) => Err(format!("block {lba} starts as #{id} wrote it and is something else at byte {}", index * 8)),
    }
}

/// Whether a request wrote these blocks, with zeroes in place of any of its bytes.
pub(crate) fn is_partly_zeroed(disk: usize, id: u64, lba: u64, block_bytes: usize, blocks: &[u8]) -> bool {
    let mut whole = vec![0; blocks.len()];
    fill(disk, id, lba, block_bytes, &mut whole);
    blocks.iter().zip(&whole).all(|(found, byte)| *found == 0 || found == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let mut payload = [0; 1024];
        fill(1, 7, 3, 512, &mut payload);
        assert_eq!(parse(1, &payload[..512], 3), Ok(Origin::Request(7)));
        assert_eq!(parse(1, &payload[512..], 4), Ok(Origin::Request(7)));
        assert!(parse(1, &payload[..512], 4).is_err(), "in the wrong place");
        assert!(parse(0, &payload[..512], 3).is_err(), "on the wrong disk");
        assert!(parse(1, &payload[256..768], 3).is_err());
        payload[511] ^= 1;
        assert!(parse(1, &payload[..512], 3).is_err());
        assert_eq!(parse(1, &[0; 512], 9), Ok(Origin::Initial));
        let mut zeroes = [0; 512];
        zeroes[100] = 1;
        assert!(parse(1, &zeroes, 9).is_err());
    }

    #[test]
    fn a_part_is_zero_or_as_it_was_written() {
        let mut payload = [0; 1024];
        fill(1, 7, 3, 512, &mut payload);
        payload[3..600].fill(0);
        assert!(is_partly_zeroed(1, 7, 3, 512, &payload) && is_partly_zeroed(1, 7, 3, 512, &[0; 512]));
        assert!(!is_partly_zeroed(1, 8, 3, 512, &payload) && !is_partly_zeroed(1, 7, 4, 512, &payload));
        payload[599] = 1;
        assert!(!is_partly_zeroed(1, 7, 3, 512, &payload));
    }
}
