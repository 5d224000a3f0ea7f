//! Writes whose guest has lost memory: zeroes may be written in place of any of their bytes, as long as they are not answered with success.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::{Block, Checker, Disk, Kind, Origin, pattern};

#[derive(Debug)]
struct Torn {
    range: Range<u64>,
    /// They were.
    is_zeroed: bool,
}

/// Those of a disk, by request.
#[derive(Debug, Default)]
pub(super) struct TornWrites(BTreeMap<u64, Torn>);

impl TornWrites {
    fn add(&mut self, id: u64, range: Range<u64>) {
        self.0.insert(id, Torn { range, is_zeroed: false });
    }

    /// It is answered with success: whether it may be.
    pub(super) fn succeeds(&mut self, id: u64) -> bool {
        self.0.remove(&id).is_none_or(|torn| !torn.is_zeroed)
    }

    /// Those that can have given these blocks their content, the oldest first.
    pub(super) fn writers(&self, disk: usize, lba: u64, blocks: &[u8], block_bytes: usize) -> Vec<u64> {
        let end = lba + (blocks.len() / block_bytes) as u64;
        let is_its = |id: u64| pattern::is_in_part(disk, id, lba, block_bytes, blocks);
        let there = self.0.iter().filter(|(_, torn)| torn.range.start <= lba && end <= torn.range.end);
        there.map(|(&id, _)| id).filter(|&id| is_its(id)).collect()
    }
}

impl Checker {
    /// Memory of a machine is gone, and these requests of its are under way.
    pub(crate) fn cut_off(&mut self, at: Duration, ids: impl Iterator<Item = u64>) {
        for id in ids {
            let Some(asked) = self.open.get_mut(&id) else { continue };
            asked.is_cut_off = true;
            let (disk, range) = (asked.disk, asked.range.clone());
            if matches!(asked.kind, Kind::Write { .. }) {
                self.disks[disk].torn.add(id, range.clone());
            }
            self.note(at, id, disk, range, || "memory of its guest is cut off".into());
        }
    }

    /// The request that a controller executes with this payload, which no request has written as a whole.
    pub(super) fn torn_write(&mut self, disk: usize, lba: u64, payload: &[u8], block_bytes: usize) -> Option<u64> {
        let writers = self.disks[disk].torn.writers(disk, lba, payload, block_bytes);
        let id = *writers.iter().find(|&id| self.open.contains_key(id)).or(writers.first())?;
        self.counts.torn += 1;
        if writers.len() == 1 {
            self.disks[disk].torn.0.entry(id).and_modify(|torn| torn.is_zeroed = true);
        }
        Some(id)
    }

    /// A read that is over has found this in a block.
    pub(super) fn judge_block(&mut self, at: Duration, id: u64, block: Block, bytes: &[u8]) -> Result<(), String> {
        let Block { disk, lba } = block;
        let parsed = pattern::parse(disk, bytes, lba);
        self.note(at, id, disk, lba..lba + 1, || format!("  read {parsed:?}"));
        let moment = self.moment;
        let Disk { registers, torn, .. } = &mut self.disks[disk];
        let is_whole = matches!(parsed, Ok(Origin::Request(_)));
        let result = parsed.and_then(|origin| registers.read(id, lba, origin, moment));
        if result.is_ok() || is_whole {
            return result;
        }
        let mut writers = torn.writers(disk, lba, bytes, bytes.len()).into_iter();
        let accepts = |writer| registers.read(id, lba, Origin::Request(writer), moment).is_ok();
        if writers.any(accepts) { Ok(()) } else { result }
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
        assert!(torn.succeeds(7) && torn.writers(0, 2, &blocks, BYTES).is_empty());
        torn.add(8, 2..4);
        torn.0.entry(8).and_modify(|torn| torn.is_zeroed = true);
        assert!(!torn.succeeds(8));
        assert!(torn.succeeds(9), "no memory of its guest was gone");
    }
}
