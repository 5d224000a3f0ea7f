//! Decides: a disabled path is closed.
//!
//! The check whether a draining path can be closed without losing anything.
//!
//! ```text
//!  NotStarted ── no unflushed writes ──▶ Asked ── idle ──▶ IdleOnce ── no unflushed writes ──▶ Asked (is_last) ── idle ──▶ NothingOutstanding
//!                                                   └── a write is unflushed, or the path is not idle ──▶ Outstanding ── again ──▶ Asked
//! ```
//! Nothing new is sent on the path. Once it is idle, only flushes can follow, and only while writes there are unflushed. So the
//! check needs three results in this order: the path is idle, all writes on it are flushed, and the path is idle again. After
//! that the path stays idle. The daemon itself flushes unflushed writes: the guest may not flush for a long time.

use monotonic::{Duration, Instant};

/// How often a path that is to be closed or forgotten is checked.
pub(super) const RECHECK_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy)]
pub(super) enum OutstandingCheck {
    NotStarted,
    /// The I/O threads are asked whether the path is idle.
    Asked {
        /// If it is, nothing is outstanding.
        is_last: bool,
    },
    /// The path was idle once.
    IdleOnce,
    Outstanding {
        again_at: Instant,
    },
    NothingOutstanding,
}

/// A task of the I/O threads for the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckStep {
    /// Tell whether the path is idle.
    AskThreads,
    /// Have the controller flush.
    DaemonFlush,
}

impl OutstandingCheck {
    /// Takes the next step of the check, or starts the check again. `at_once`: unflushed writes do not count, and one answer
    /// decides.
    pub(super) fn advance(&mut self, now: Instant, at_once: bool, is_unflushed: bool) -> Option<CheckStep> {
        let is_last = match *self {
            Self::NotStarted => at_once,
            Self::Outstanding { again_at } if again_at <= now => at_once,
            Self::IdleOnce => true,
            Self::Outstanding { .. } | Self::Asked { .. } | Self::NothingOutstanding => return None,
        };
        if is_unflushed && !at_once {
            *self = Self::outstanding(now);
            return Some(CheckStep::DaemonFlush);
        }
        *self = Self::Asked { is_last };
        Some(CheckStep::AskThreads)
    }

    /// Takes the answer of the I/O threads.
    pub(super) fn answered(&mut self, now: Instant, is_idle: bool) {
        // After another order meanwhile, something may be outstanding again.
        let Self::Asked { is_last } = *self else { return };
        *self = match (is_idle, is_last) {
            (false, _) => Self::outstanding(now),
            (true, false) => Self::IdleOnce,
            (true, true) => Self::NothingOutstanding,
        };
    }

    /// Starts the check again, because writes may be unflushed after a change of a namespace. A check that has found
    /// something outstanding is repeated anyway.
    pub(super) fn namespace_changed(&mut self) {
        if !matches!(self, Self::Outstanding { .. }) {
            *self = Self::NotStarted;
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        if let Self::Outstanding { again_at } = *self { Some(again_at) } else { None }
    }

    fn outstanding(now: Instant) -> Self {
        Self::Outstanding { again_at: now + RECHECK_INTERVAL }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A namespace that is back from persistent loss is presumed to have unflushed writes.
    #[test]
    fn news_of_a_namespace_start_the_check_again() {
        let now = Instant::now();
        let mut check = OutstandingCheck::NotStarted;
        assert_eq!(check.advance(now, false, false), Some(CheckStep::AskThreads));
        check.answered(now, true);
        assert_eq!(check.advance(now, false, false), Some(CheckStep::AskThreads));
        check.namespace_changed();
        check.answered(now, true);
        assert!(matches!(check, OutstandingCheck::NotStarted), "the answer is to an earlier question");
        assert_eq!(check.advance(now, false, true), Some(CheckStep::DaemonFlush));
        check.namespace_changed();
        assert_eq!(check.next_timeout(), Some(now + RECHECK_INTERVAL), "it is repeated anyway");
    }
}
