//! An array that is slow on all paths, in a run in which nothing else fails. Repeated reads gain nothing there, and cost
//! the array as much as other reads.
//!
//! Only a trial tells a slow path from a slow array. So the host may repeat twice the blocks that are under way at one
//! time. In addition, answers of repeated reads may be a tenth of all answers, and a few more at the start. The judge does
//! not know which reads these are, and takes the largest ones.
//! If an answer takes longer than the I/O timeout, the association ends, and what is under way is read again.

/// One answer in this number may be late (`mpath_core::late_answers`).
const LATE_SHARE: u64 = 10;
/// The late answers that are free at the start.
const LATE_SAVED: u64 = 8;

/// Blocks read from the array, and by guests.
#[derive(Debug, Default)]
pub(super) struct ArrayReads {
    sent: u64,
    /// The blocks of each read of a guest.
    asked: Vec<u64>,
    open: u64,
    most_open: u64,
    /// Blocks that were under way when an association ended.
    timed_out: u64,
}

impl ArrayReads {
    pub(super) fn asked(&mut self, blocks: u64) {
        self.asked.push(blocks);
        self.open += blocks;
        self.most_open = self.most_open.max(self.open);
    }

    pub(super) fn answered(&mut self, blocks: u64) {
        self.open -= blocks;
    }

    /// An association has ended.
    pub(super) fn association_lost(&mut self) {
        self.timed_out += self.open;
    }

    /// The host sends a command that reads this number of blocks.
    pub(super) fn sent(&mut self, blocks: u64) {
        self.sent += blocks;
    }

    /// Blocks that were read more than once.
    pub(super) fn repeated(&self) -> u64 {
        self.sent.saturating_sub(self.asked.iter().sum())
    }

    /// Judges the reads of a run in which the array was only slow. `answers`: the answers to requests of all kinds.
    pub(super) fn judge(&self, answers: u64) -> Result<(), String> {
        let Self { sent, most_open, timed_out, .. } = self;
        let mut largest = self.asked.clone();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let asked: u64 = largest.iter().sum();
        largest.truncate((LATE_SAVED + answers / LATE_SHARE) as usize);
        let late: u64 = largest.iter().sum();
        if *sent > asked + late + 2 * most_open + timed_out {
            return Err(format!(
                "a slow array was read {sent} blocks, {most_open} at a time, for the {asked} that guests asked for"
            ));
        }
        Ok(())
    }
}
