//! Reasons for requests to fail: errors of commands and ends of connections while the requests were under way.
//!
//! An error of a command is a reason only for requests of that disk and kind on those blocks. The end of a connection is a reason
//! for all requests: the checker does not see requests that waited for the connection and were not sent.

use std::collections::{BTreeMap, BTreeSet};

use monotonic::Duration;
use mpath_core::GroupConfig;

/// How long a flush waits for a live path on which the namespace is inaccessible.
const FLUSH_UNUSABLE_MAX: Duration = Duration::from_secs(30);

/// The errors that a request may have met.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RequestErrors {
    /// Commands that may belong to the request and ended with a final error.
    pub(super) refused: u64,
    /// The most errors that may pass of one of its blocks.
    pub(super) errors: u64,
    /// Errors of paths that have served other requests before.
    pub(super) path_errors: u64,
    /// The counts of [`FailureReasons`] when the request was submitted, and when that was.
    connections_ended: u64,
    alterations: u64,
    since: Duration,
}

impl RequestErrors {
    /// Whether commands of the request have failed, perhaps.
    pub(super) fn has_errors(&self) -> bool {
        self.refused + self.errors + self.path_errors > 0
    }
}

/// The reasons of one disk.
#[derive(Debug, Default)]
pub(super) struct FailureReasons {
    /// Connections of I/O queues that have ended, of any path.
    connections_ended: u64,
    /// Beginnings and ends of injections and of bit flips.
    alterations: u64,
    /// Injections in force, which replace answers.
    injections: u64,
    /// Links that flip bits, which digests find.
    flipping_links: u64,
    /// By I/O thread: since when it has no path to the disk, and no command under way; [`Duration::MAX`] while it has a path.
    pathless: BTreeMap<usize, Duration>,
    /// By I/O thread without a path: since when no path has served a whole request.
    unserved: BTreeMap<usize, Duration>,
    /// By I/O thread: when it was last told of a path, or answered a request with success.
    served: BTreeMap<usize, Duration>,
    /// I/O threads with commands of the disk under way.
    busy: BTreeSet<usize>,
    /// When the daemon began.
    daemon_began: Duration,
    /// Past times without a path: the I/O thread, their ends and lengths.
    outages: Vec<(usize, Duration, Duration)>,
}

impl FailureReasons {
    /// A connection of an I/O queue has ended.
    pub(super) fn connection_ended(&mut self) {
        self.connections_ended += 1;
    }

    /// An injection on a path of an I/O thread begins or ends.
    pub(super) fn injected(&mut self, begins: bool) {
        self.alterations += 1;
        self.injections = if begins { self.injections + 1 } else { self.injections.saturating_sub(1) };
    }

    /// A link begins to flip bits, or ends.
    pub(super) fn corrupted(&mut self, begins: bool) {
        self.alterations += 1;
        self.flipping_links = if begins { self.flipping_links + 1 } else { self.flipping_links.saturating_sub(1) };
    }

    /// The daemon is gone, and its injections with it.
    pub(super) fn killed(&mut self, at: Duration) {
        self.injections = 0;
        self.pathless.clear();
        self.unserved.clear();
        self.busy.clear();
        self.served.clear();
        self.daemon_began = at;
    }

    /// An I/O thread is told of a path to the disk, or has answered a request with success that was submitted at `since`. A request
    /// that was under way before a time without a path does not end that time.
    pub(super) fn served(&mut self, at: Duration, thread: usize, since: Duration) {
        let last = self.outages.iter().rfind(|(of, ..)| *of == thread);
        if last.is_none_or(|(_, end, length)| since >= end.saturating_sub(*length)) {
            self.served.insert(thread, at);
        }
    }

    /// Whether an I/O thread has a path to the disk, and commands of the disk under way. A path that carries out a command and refuses
    /// the next one has served a part of a request, and no whole one.
    pub(super) fn has_path(&mut self, at: Duration, thread: usize, has_path: bool, is_busy: bool) {
        let was_busy = if is_busy { !self.busy.insert(thread) } else { self.busy.remove(&thread) };
        let daemon_began = self.daemon_began;
        let since = self.pathless.entry(thread).or_insert(daemon_began);
        if has_path && *since < Duration::MAX {
            let unserved = self.unserved.remove(&thread).unwrap_or(*since);
            self.outages.push((thread, at, at.saturating_sub(unserved)));
            *since = Duration::MAX;
        } else if !has_path && *since == Duration::MAX {
            let before = self.outages.iter().rfind(|(of, ..)| *of == thread);
            let goes_on = before.filter(|(_, end, _)| self.served.get(&thread).is_none_or(|served| served < end));
            self.unserved.insert(thread, goes_on.map_or(at, |(_, end, length)| end.saturating_sub(*length)));
            *since = at;
        }
        if !has_path && (is_busy || was_busy) {
            self.unserved.entry(thread).or_insert(*since);
            *since = at;
        }
    }

    /// For how long an I/O thread has had no path to the disk and no command of the disk under way, if it has no path. Zero while
    /// commands are under way.
    pub(super) fn idle_without_path_for(&self, at: Duration, thread: usize) -> Option<Duration> {
        // A thread that has not told anything yet has had no path since its start.
        at.checked_sub(*self.pathless.get(&thread).unwrap_or(&self.daemon_began))
    }

    /// Whether injections replace answers, or links damage them. The host refuses a damaged answer, which has a wrong digest.
    pub(super) fn are_answers_altered(&self) -> bool {
        self.injections > 0 || self.flipping_links > 0
    }

    /// The counts for a request that is submitted.
    pub(super) fn snapshot(&self, at: Duration) -> RequestErrors {
        RequestErrors {
            refused: 0,
            errors: 0,
            path_errors: 0,
            connections_ended: self.connections_ended,
            alterations: self.alterations,
            since: at,
        }
    }

    /// Whether a request had a reason to fail.
    pub(super) fn explains(&self, now: Duration, met: RequestErrors, config: &GroupConfig) -> bool {
        self.was_pathless(now, met, config)
            || self.has_used_up_retries(met, self.connections_ended - met.connections_ended, config)
    }

    /// Whether a flush had a reason to fail other than lost writes.
    pub(super) fn explains_flush(&self, now: Duration, met: RequestErrors, config: &GroupConfig) -> bool {
        let has_waited = now.saturating_sub(met.since) >= FLUSH_UNUSABLE_MAX;
        let met = RequestErrors { path_errors: 0, ..met };
        has_waited || self.was_pathless(now, met, config) || self.has_used_up_retries(met, 0, config)
    }

    /// Whether a controller refused the request, the request met more errors than it has retries, or its answers were altered.
    fn has_used_up_retries(&self, met: RequestErrors, connections_ended: u64, config: &GroupConfig) -> bool {
        let failovers = met.path_errors + connections_ended;
        let is_used_up = met.errors > config.max_retries.into() || failovers > config.max_failovers.into();
        self.was_altered(met) || met.refused > 0 || is_used_up
    }

    /// Whether an injection or the network may have made the answers to the request.
    pub(super) fn was_altered(&self, met: RequestErrors) -> bool {
        self.injections > 0 || self.flipping_links > 0 || self.alterations > met.alterations
    }

    /// Whether an I/O thread had no path for longer than requests wait, and had none when the request was submitted or later.
    fn was_pathless(&self, now: Duration, met: RequestErrors, config: &GroupConfig) -> bool {
        let Some(most) = config.no_path_timeout else { return false };
        let ended = self.outages.iter().any(|&(_, end, length)| end >= met.since && length >= most);
        let since = |(thread, since): (&usize, &Duration)| *self.unserved.get(thread).unwrap_or(since);
        ended || self.pathless.iter().map(since).any(|since| since < Duration::MAX && now.saturating_sub(since) >= most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_thread_with_commands_under_way_is_not_idle() {
        let mut reasons = FailureReasons::default();
        let steps = [
            // At, whether there is a path, whether commands are under way; for how long idle without a path.
            (1, true, true, None),
            (2, false, true, Some(0)),
            (4, false, true, Some(0)),
            (5, false, false, Some(0)),
            (8, false, false, Some(3)),
            (9, false, true, Some(0)),
            (10, true, true, None),
            (11, false, false, Some(0)),
            (13, false, false, Some(2)),
        ];
        for (at, has_path, is_busy, idle) in steps {
            reasons.has_path(at * SECOND, 0, has_path, is_busy);
            let expected = idle.map(|seconds: u32| seconds * SECOND);
            assert_eq!(reasons.idle_without_path_for(at * SECOND, 0), expected, "at {at} s");
        }
        let config = GroupConfig { no_path_timeout: Some(7 * SECOND), ..GroupConfig::default() };
        let met = reasons.snapshot(9 * SECOND);
        assert!(reasons.explains(13 * SECOND, met, &config), "commands under way do not end the time without a path");
    }

    #[test]
    fn a_request_fails_of_what_it_has_met_itself() {
        let config = GroupConfig { max_retries: 1, max_failovers: 1, ..GroupConfig::default() };
        let mut reasons = FailureReasons::default();
        reasons.connection_ended();
        reasons.connection_ended();
        let mut met = reasons.snapshot(SECOND);
        assert!(!reasons.explains(SECOND, met, &config), "they ended before");
        (met.errors, met.path_errors) = (1, 1);
        assert!(!reasons.explains(SECOND, met, &config));
        reasons.connection_ended();
        assert!(reasons.explains(SECOND, met, &config));
        assert!(!reasons.explains_flush(SECOND, met, &config));
        assert!(reasons.explains_flush(31 * SECOND, met, &config));
        let refused = RequestErrors { refused: 1, ..reasons.snapshot(SECOND) };
        assert!(reasons.explains(SECOND, refused, &config) && reasons.explains_flush(SECOND, refused, &config));
    }

    #[test]
    fn the_time_without_a_path_must_have_been_long_enough_and_not_over() {
        let config = GroupConfig { no_path_timeout: Some(3 * SECOND), ..GroupConfig::default() };
        let mut reasons = FailureReasons::default();
        let met = reasons.snapshot(SECOND);
        assert!(!reasons.explains(4 * SECOND, met, &config), "no thread has told anything yet");
        reasons.served(2 * SECOND, 0, 2 * SECOND);
        reasons.has_path(2 * SECOND, 0, true, false);
        reasons.has_path(5 * SECOND, 0, false, false);
        assert!(!reasons.explains(7 * SECOND, met, &config));
        assert!(reasons.explains(8 * SECOND, met, &config));
        reasons.has_path(9 * SECOND, 0, true, false);
        assert!(reasons.explains(20 * SECOND, met, &config));
        assert!(!reasons.explains(20 * SECOND, reasons.snapshot(10 * SECOND), &config));
    }

    #[test]
    fn a_path_that_serves_a_part_of_a_request_does_not_end_the_time_without_a_path() {
        let config = GroupConfig { no_path_timeout: Some(3 * SECOND), ..GroupConfig::default() };
        for (served, since, fails) in [(0, 0, true), (3, 0, true), (3, 1, false)] {
            let mut reasons = FailureReasons::default();
            reasons.served(Duration::ZERO, 0, Duration::ZERO);
            for (at, has_path) in [(0, true), (1, false), (3, true)] {
                reasons.has_path(at * SECOND, 0, has_path, false);
            }
            reasons.served(served * SECOND, 0, since * SECOND);
            reasons.has_path(4 * SECOND, 0, false, false);
            let met = reasons.snapshot(4 * SECOND);
            assert_eq!(reasons.explains(5 * SECOND, met, &config), fails, "{served}, {since}");
        }
    }
}
