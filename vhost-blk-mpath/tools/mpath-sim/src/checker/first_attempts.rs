//! The first attempts to connect paths after a kill, seen from their sockets.
//!
//! A killed daemon may have left unflushed writes in any controller. So the next daemon executes no request before each path had a
//! chance. A path had one if it is live, or if an attempt is over that began no earlier than a second before the first attempt that
//! made any path live.

use std::collections::BTreeMap;
use std::time::Duration;

/// Attempts that begin within this time count as concurrent.
const CONCURRENT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct PathAttempts {
    /// The beginning of the attempt that is under way, or that the path is live by.
    began: Duration,
    is_live: bool,
    /// The beginning of the latest attempt that has failed.
    failed: Option<Duration>,
}

/// The attempts of a daemon.
#[derive(Debug, Default)]
pub(crate) struct FirstAttempts {
    /// The daemon has to wait.
    is_waiting: bool,
    /// The beginning of the first attempt that made a path live.
    first: Option<Duration>,
    /// By path.
    paths: BTreeMap<usize, PathAttempts>,
}

impl FirstAttempts {
    /// Another daemon follows. `is_known`: its predecessor has told where unflushed writes are, or has flushed them.
    pub(super) fn daemon_replaced(&mut self, is_known: bool) {
        // A daemon without a path has written nothing.
        let is_waiting = self.is_waiting || self.first.is_some() && !is_known;
        *self = Self { is_waiting, ..Self::default() };
    }

    /// The socket of an admin queue is connected.
    pub(crate) fn begun(&mut self, at: Duration, path: usize) {
        let attempts = self.paths.entry(path).or_default();
        (attempts.began, attempts.is_live) = (at, false);
    }

    /// The I/O threads are given the sockets of the path.
    pub(crate) fn succeeded(&mut self, path: usize) {
        let attempts = self.paths.entry(path).or_default();
        attempts.is_live = true;
        self.first = Some(self.first.map_or(attempts.began, |first| first.min(attempts.began)));
    }

    /// The sockets of the path are closed.
    pub(crate) fn closed(&mut self, path: usize) {
        let attempts = self.paths.entry(path).or_default();
        (attempts.failed, attempts.is_live) = (Some(attempts.began), false);
    }

    /// Ends the wait if all these paths had a chance.
    pub(crate) fn judge(&mut self, mut paths: impl Iterator<Item = usize>) {
        let Some(first) = self.first.filter(|_| self.is_waiting) else { return };
        let had_a_chance = |attempts: &PathAttempts| {
            attempts.is_live || attempts.failed.is_some_and(|began| began + CONCURRENT >= first)
        };
        self.is_waiting = !paths.all(|path| self.paths.get(&path).is_some_and(had_a_chance));
    }

    /// Whether requests have to wait.
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The successor of a killed daemon that had a path.
    fn after_a_kill() -> FirstAttempts {
        let mut attempts = FirstAttempts::default();
        attempts.begun(Duration::ZERO, 0);
        attempts.succeeded(0);
        attempts.daemon_replaced(false);
        assert!(attempts.is_waiting());
        attempts
    }

    #[test]
    fn each_path_has_to_be_tried_since_the_first_one_worked() {
        let mut attempts = after_a_kill();
        attempts.begun(SECOND, 0);
        attempts.closed(0);
        attempts.judge([0].into_iter());
        assert!(attempts.is_waiting(), "no path works");
        attempts.begun(5 * SECOND, 1);
        attempts.succeeded(1);
        attempts.judge([0, 1].into_iter());
        assert!(attempts.is_waiting(), "path 0 was tried long before");
        attempts.begun(4 * SECOND, 0);
        attempts.judge([0, 1].into_iter());
        assert!(attempts.is_waiting(), "the attempt is under way");
        attempts.closed(0);
        attempts.judge([0, 1, 2].into_iter());
        assert!(attempts.is_waiting(), "path 2 was never tried");
        attempts.judge([0, 1].into_iter());
        assert!(!attempts.is_waiting());
    }

    #[test]
    fn the_wait_goes_on_in_the_next_daemon() {
        let mut attempts = after_a_kill();
        attempts.daemon_replaced(true);
        assert!(attempts.is_waiting());
        attempts.begun(SECOND, 0);
        attempts.succeeded(0);
        attempts.judge([0].into_iter());
        attempts.daemon_replaced(true);
        assert!(!attempts.is_waiting());
        attempts.daemon_replaced(false);
        assert!(!attempts.is_waiting(), "it had no path");
    }
}
