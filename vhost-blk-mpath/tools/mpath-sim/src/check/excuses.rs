//! Why requests may fail: what the host has heard from controllers and lost of paths while they were under way.
//!
//! An error of a command is a reason for the requests alone that it can have been part of: of that disk, of that kind, on those blocks. The end
//! of a connection is one for all: the judge does not see what waited for it and was not sent.

use std::collections::BTreeMap;
use std::time::Duration;

use mpath_core::GroupConfig;

/// How long a flush waits for a path that is live and inaccessible.
const FLUSH_UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// What a request has met.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Trouble {
    /// Commands that it may have sent and that ended with an error which was final for it.
    pub(super) refused: u64,
    /// Those that ended with another error.
    pub(super) errors: u64,
    /// Counts at the submission of each request: connections of I/O queues that had ended, of any path, and beginnings and ends of what
    /// alters answers.
    over: u64,
    altered: u64,
    since: Duration,
}

/// What the host can know of a disk.
#[derive(Debug, Default)]
pub(super) struct Excuses {
    over: u64,
    altered: u64,
    /// Injections in force, which replace answers.
    injections: u64,
    /// Links that flip bits, which digests find.
    corrupting: u64,
    /// By I/O thread: since when it has no path to the disk.
    pathless: BTreeMap<usize, Duration>,
    /// When the daemon was killed before this one.
    began: Duration,
    /// Times without a path that are over: their ends and lengths.
    outages: Vec<(Duration, Duration)>,
}

impl Excuses {
    /// A connection of an I/O queue has ended.
    pub(super) fn lost(&mut self) {
        self.over += 1;
    }

    /// One more I/O thread has an injection in force on a path, or one less.
    pub(super) fn injected(&mut self, begins: bool) {
        self.altered += 1;
        self.injections = if begins { self.injections + 1 } else { self.injections.saturating_sub(1) };
    }

    /// One more link flips bits, or one less.
    pub(super) fn corrupted(&mut self, begins: bool) {
        self.altered += 1;
        self.corrupting = if begins { self.corrupting + 1 } else { self.corrupting.saturating_sub(1) };
    }

    /// The daemon is gone, and its injections with it.
    pub(super) fn killed(&mut self, at: Duration) {
        self.injections = 0;
        self.pathless.clear();
        self.began = at;
    }

    /// Whether an I/O thread has a path to the disk.
    pub(super) fn has_path(&mut self, at: Duration, thread: usize, has_path: bool) {
        let began = self.began;
        let since = self.pathless.entry(thread).or_insert(began);
        if has_path && *since < Duration::MAX {
            self.outages.push((at, at.saturating_sub(*since)));
            *since = Duration::MAX;
        } else if !has_path && *since == Duration::MAX {
            *since = at;
        }
    }

    /// Whether what the host hears is what it was told.
    pub(super) fn are_answers_altered(&self) -> bool {
        self.injections > 0
    }

    /// To be kept of a request that is submitted.
    pub(super) fn so_far(&self, at: Duration) -> Trouble {
        Trouble { refused: 0, errors: 0, over: self.over, altered: self.altered, since: at }
    }

    /// Whether there was anything that a request may fail of.
    pub(super) fn explain(&self, now: Duration, met: Trouble, config: &GroupConfig) -> bool {
        self.was_pathless(now, met, config) || self.is_worn_out(met, self.over - met.over, config)
    }

    /// Whether there was anything that a flush may fail of, but for writes that were lost.
    pub(super) fn explain_flush(&self, now: Duration, met: Trouble, config: &GroupConfig) -> bool {
        let has_waited = now.saturating_sub(met.since) >= FLUSH_UNUSABLE_MAX;
        has_waited || self.was_pathless(now, met, config) || self.is_worn_out(met, 0, config)
    }

    /// Whether a controller has refused it, or more has gone wrong than it is tried again for; or the answers it received are unknown.
    fn is_worn_out(&self, met: Trouble, over: u64, config: &GroupConfig) -> bool {
        let is_altered = self.injections > 0 || self.corrupting > 0 || self.altered > met.altered;
        let again = u64::from(config.max_retries.min(config.max_failovers));
        is_altered || met.refused > 0 || met.errors + over > again
    }

    /// Whether an I/O thread has had no path for longer than requests wait, and not only before this one was submitted.
    fn was_pathless(&self, now: Duration, met: Trouble, config: &GroupConfig) -> bool {
        let Some(most) = config.no_path_timeout else { return false };
        let ended = self.outages.iter().any(|&(end, length)| end >= met.since && length >= most);
        ended || self.pathless.values().any(|&since| since < Duration::MAX && now.saturating_sub(since) >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_request_fails_of_what_it_has_met_itself() {
        let config = GroupConfig { max_retries: 1, ..GroupConfig::default() };
        let mut excuses = Excuses::default();
        excuses.lost();
        excuses.lost();
        let mut met = excuses.so_far(SECOND);
        assert!(!excuses.explain(SECOND, met, &config), "they ended before");
        met.errors += 1;
        assert!(!excuses.explain(SECOND, met, &config));
        excuses.lost();
        assert!(excuses.explain(SECOND, met, &config));
        assert!(!excuses.explain_flush(SECOND, met, &config));
        assert!(excuses.explain_flush(31 * SECOND, met, &config));
        let refused = Trouble { refused: 1, ..excuses.so_far(SECOND) };
        assert!(excuses.explain(SECOND, refused, &config) && excuses.explain_flush(SECOND, refused, &config));
    }

    #[test]
    fn the_time_without_a_path_must_have_been_long_enough_and_not_over() {
        let config = GroupConfig { no_path_timeout: Some(3 * SECOND), ..GroupConfig::default() };
        let mut excuses = Excuses::default();
        let met = excuses.so_far(SECOND);
        assert!(!excuses.explain(4 * SECOND, met, &config), "no thread has told anything yet");
        excuses.has_path(2 * SECOND, 0, true);
        excuses.has_path(5 * SECOND, 0, false);
        assert!(!excuses.explain(7 * SECOND, met, &config));
        assert!(excuses.explain(8 * SECOND, met, &config));
        excuses.has_path(9 * SECOND, 0, true);
        assert!(excuses.explain(20 * SECOND, met, &config));
        assert!(!excuses.explain(20 * SECOND, excuses.so_far(10 * SECOND), &config));
    }
}
