//! An array that is slow on all paths, in a run in which nothing else fails. Repeated reads gain nothing there, and cost
//! the array as much as other reads.
//!
//! Only a trial tells a slow path from a slow array. So the host may repeat twice the blocks that are under way at one
//! time. In addition, it may repeat a quarter of all blocks. The guests then still have 0.8 of what the array gives.
//! If an answer takes longer than the I/O timeout, the association ends, and what is under way is read again.

/// Blocks read from the array, and by guests.
#[derive(Debug, Default)]
pub(super) struct ArrayReads {
    sent: u64,
    asked: u64,
    open: u64,
    most_open: u64,
    /// Blocks that were under way when an association ended.
    timed_out: u64,
}

impl ArrayReads {
    pub(super) fn asked(&mut self, blocks: u64) {
        self.asked += blocks;
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
        self.sent.saturating_sub(self.asked)
    }

    /// Judges the reads of a run in which the array was only slow.
    pub(super) fn judge(&self) -> Result<(), String> {
        let Self { sent, asked, most_open, timed_out, .. } = self;
        if *sent > asked * 5 / 4 + 2 * most_open + timed_out {
            return Err(format!(
                "a slow array was read {sent} blocks, {most_open} at a time, for the {asked} that guests asked for"
            ));
        }
        Ok(())
    }
}
