//! Writes whose guest has truncated its memory. Zeroes may replace any bytes of such a write, but then the write must not
//! succeed.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::blocks::pattern;

#[derive(Debug)]
struct TornWrite {
    range: Range<u64>,
    /// A controller has executed the write with zeroes in place of data.
    is_zeroed: bool,
}

/// The writes of a disk, by request.
#[derive(Debug, Default)]
pub(super) struct TornWrites(BTreeMap<u64, TornWrite>);

impl TornWrites {
    pub(super) fn add(&mut self, id: u64, range: Range<u64>) {
        self.0.insert(id, TornWrite { range, is_zeroed: false });
    }

    /// A controller executes the write with zeroes in place of data.
    pub(super) fn set_zeroed(&mut self, id: u64) {
        self.0.entry(id).and_modify(|torn| torn.is_zeroed = true);
    }

    /// Forgets a write that is answered with success. Returns whether the write may succeed.
    pub(super) fn may_succeed(&mut self, id: u64) -> bool {
        self.0.remove(&id).is_none_or(|torn| !torn.is_zeroed)
    }

    /// The writes that can have given these blocks their content, the oldest first.
    pub(super) fn writers(&self, disk: usize, lba: u64, blocks: &[u8], block_bytes: usize) -> Vec<u64> {
        let end = lba + (blocks.len() / block_bytes) as u64;
        let wrote = |id: u64| pattern::is_partly_zeroed(disk, id, lba, block_bytes, blocks);
        let there = self.0.iter().filter(|(_, torn)| torn.range.start <= lba && end <= torn.range.end);
        there.map(|(&id, _)| id).filter(|&id| wrote(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 512;

    #[test]
    fn zeroes_are_excused_in_their_blocks_until_success() {
        let mut torn = TornWrites::default();
        torn.add(7, 2..4);
        let mut blocks = [0; 2 * BYTES];
        pattern::fill(0, 7, 2, BYTES, &mut blocks);
        blocks[100..700].fill(0);
        assert_eq!(torn.writers(0, 2, &blocks, BYTES), [7]);
        assert_eq!(torn.writers(0, 3, &blocks[BYTES..], BYTES), [7]);
        assert!(torn.writers(0, 3, &blocks, BYTES).is_empty(), "beyond its range");
        assert!(torn.may_succeed(7) && torn.writers(0, 2, &blocks, BYTES).is_empty());
        torn.add(8, 2..4);
        torn.set_zeroed(8);
        assert!(!torn.may_succeed(8));
        assert!(torn.may_succeed(9), "no memory of its guest was gone");
    }
}
