//! Why requests may fail: what the host has heard from controllers and lost of paths while they were under way.

use std::time::Duration;

use mpath_core::GroupConfig;

/// How long a flush waits for a path that is live and inaccessible.
const FLUSH_UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// What has gone wrong so far.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Trouble {
    /// Commands of the disk that ended with an error which was final for their request.
    refused: u64,
    /// Those that ended with another error.
    errors: u64,
    /// Connections of I/O queues that have ended, of any path.
    over: u64,
    /// Beginnings and ends of what alters answers.
    altered: u64,
}

/// What the host can know of a disk.
#[derive(Debug, Default)]
pub(crate) struct Excuses {
    now: Trouble,
    /// Injections in force, which replace answers.
    injections: u64,
    /// Links that flip bits, which digests find.
    corrupting: u64,
}

impl Excuses {
    /// A command of the disk has ended with an error.
    pub(crate) fn failed(&mut self, is_final: bool) {
        if is_final {
            self.now.refused += 1;
        } else {
            self.now.errors += 1;
        }
    }

    /// A connection of an I/O queue has ended.
    pub(crate) fn lost(&mut self) {
        self.now.over += 1;
    }

    /// One more I/O thread has an injection in force on a path, or one less.
    pub(crate) fn injected(&mut self, begins: bool) {
        self.now.altered += 1;
        self.injections = if begins { self.injections + 1 } else { self.injections.saturating_sub(1) };
    }

    /// One more link flips bits, or one less.
    pub(crate) fn corrupted(&mut self, begins: bool) {
        self.now.altered += 1;
        self.corrupting = if begins { self.corrupting + 1 } else { self.corrupting.saturating_sub(1) };
    }

    /// The daemon is gone, and its injections with it.
    pub(crate) fn killed(&mut self) {
        self.injections = 0;
    }

    /// Whether what the host hears is what it was told.
    pub(crate) fn are_answers_altered(&self) -> bool {
        self.injections > 0
    }

    /// To be kept of a request that is submitted.
    pub(crate) fn so_far(&self) -> Trouble {
        self.now
    }

    /// Whether there was anything since that a request may fail of.
    pub(crate) fn explain(&self, before: Trouble, config: &GroupConfig) -> bool {
        let Trouble { refused, errors, over, .. } = self.now;
        let again = (errors - before.errors) + (over - before.over);
        let is_worn_out = again > u64::from(config.max_retries.min(config.max_failovers));
        refused > before.refused || is_worn_out || self.explain_always(before, config)
    }

    /// Whether there was anything since that a flush may fail of, but for writes that were lost.
    pub(crate) fn explain_flush(&self, before: Trouble, took: Duration, config: &GroupConfig) -> bool {
        let Trouble { refused, errors, over, .. } = self.now;
        let is_quiet = (refused, errors, over) == (before.refused, before.errors, before.over);
        !is_quiet || took >= FLUSH_UNUSABLE_MAX || self.explain_always(before, config)
    }

    fn explain_always(&self, before: Trouble, config: &GroupConfig) -> bool {
        let is_altered = self.injections > 0 || self.corrupting > 0 || self.now.altered > before.altered;
        is_altered || config.no_path_timeout.is_some()
    }
}
