//! An array that is slow on all paths, in a run in which nothing else fails and no read is sent in parts. Repeated reads gain
//! nothing there, and cost the array as much as other reads.
//!
//! Only a trial tells a slow path from a slow array. So the host may repeat twice the reads that are under way at one
//! time. In addition, each I/O thread may repeat a read for ten answers, and a few more at the start.
//! If an answer takes longer than the I/O timeout, the association ends, and what is under way is read again.

use std::collections::BTreeMap;
use std::ops::Range;

/// One answer in this number may be late (`mpath_core::late_answers`).
const LATE_SHARE: u64 = 10;
/// The late answers that are free at the start, by I/O thread.
const LATE_SAVED: u64 = 8;

/// Reads of guests, and how often they were sent.
#[derive(Debug, Default)]
pub(super) struct ArrayReads {
    /// By request: the disk and the blocks.
    open: BTreeMap<u64, (usize, Range<u64>)>,
    /// By disk and first block: the open reads, and how many of them were sent.
    begun: BTreeMap<(usize, u64), (u64, u64)>,
    most_open: usize,
    /// Reads that were sent again.
    pub(super) repeated: u64,
    /// Reads that were under way when an association ended.
    timed_out: usize,
}

impl ArrayReads {
    pub(super) fn asked(&mut self, id: u64, disk: usize, blocks: Range<u64>) {
        self.begun.entry((disk, blocks.start)).or_default().0 += 1;
        self.open.insert(id, (disk, blocks));
        self.most_open = self.most_open.max(self.open.len());
    }

    pub(super) fn answered(&mut self, id: u64) {
        let Some((disk, blocks)) = self.open.remove(&id) else { return };
        if let Some((reads, sent)) = self.begun.get_mut(&(disk, blocks.start)) {
            (*reads, *sent) = (*reads - 1, sent.saturating_sub(1));
        }
    }

    /// An association has ended.
    pub(super) fn association_lost(&mut self) {
        self.timed_out += self.open.len();
    }

    /// The host sends a command that reads blocks from this one on.
    pub(super) fn sent(&mut self, disk: usize, first_block: u64) {
        let Some((reads, sent)) = self.begun.get_mut(&(disk, first_block)) else { return };
        if sent < reads {
            *sent += 1;
        } else {
            self.repeated += u64::from(*reads > 0);
        }
    }

    /// Judges the reads of a run in which the array was only slow. `answers`: the answers to requests of all kinds.
    pub(super) fn judge(&self, threads: u64, answers: u64) -> Result<(), String> {
        let Self { most_open, repeated, timed_out, .. } = self;
        let late = LATE_SAVED * threads + answers / LATE_SHARE;
        if *repeated > late + (2 * most_open + timed_out) as u64 {
            return Err(format!(
                "a slow array: {repeated} reads were sent again of {answers} requests, {most_open} reads at a time"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_that_are_sent_again_are_counted_by_their_first_block() {
        let mut reads = ArrayReads::default();
        reads.asked(1, 0, 100..116);
        reads.asked(2, 0, 100..116);
        reads.asked(3, 0, 108..109);
        for (disk, first_block) in [(0, 100), (0, 108), (0, 100), (1, 100)] {
            reads.sent(disk, first_block);
        }
        assert_eq!(reads.repeated, 0, "three reads, and a read of another disk");
        reads.sent(0, 100);
        reads.answered(1);
        reads.sent(0, 100);
        assert_eq!(reads.repeated, 2);
        reads.answered(2);
        reads.sent(0, 100);
        assert_eq!(reads.repeated, 2, "its request is answered");
    }

    #[test]
    fn too_many_repeated_reads_are_an_error() {
        let mut reads = ArrayReads::default();
        reads.asked(1, 0, 0..1);
        for _ in 0..=8 + 10 + 2 {
            reads.sent(0, 0);
        }
        assert_eq!(reads.judge(1, 100), Ok(()));
        reads.sent(0, 0);
        assert!(reads.judge(1, 100).is_err() && reads.judge(2, 100).is_ok());
    }
}
