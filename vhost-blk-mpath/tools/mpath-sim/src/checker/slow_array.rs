//! An array that is slow on all paths, in a run in which nothing else fails: reads that are sent a second time gain
//! nothing, and cost the array as much as any others.
//!
//! A slow path can only be told from a slow array by trying. So the reads that are under way at one time may be sent
//! twice, and later a quarter of the reads: with these, the guests still have 0.8 of what the array gives.

use super::Checker;

/// Blocks read from the array, and by guests.
#[derive(Debug, Default)]
pub(super) struct ArrayReads {
    sent: u64,
    asked: u64,
    open: u64,
    most_open: u64,
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
}

impl Checker {
    /// The host sends a command that reads so many blocks.
    pub(crate) fn read_sent(&mut self, blocks: u64) {
        self.array_reads.sent += blocks;
    }

    /// Judges the reads of a run in which the array was only slow.
    pub(crate) fn judge_slow_array(&mut self, at: std::time::Duration) {
        let ArrayReads { sent, asked, most_open, .. } = self.array_reads;
        self.counts.slow_arrays += 1;
        self.counts.slow_array_reads_repeated += sent.saturating_sub(asked);
        if sent > asked * 5 / 4 + 2 * most_open {
            let what = format_args!(
                "a slow array was read {sent} blocks, {most_open} at a time, for the {asked} that guests asked for"
            );
            self.violate(at, None, what);
        }
    }
}
