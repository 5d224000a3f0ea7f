//! Decides: a command is so old that its association ends.
//!
//! The I/O timeout: a command that is not answered in time ends its association.
//!
//! A path may lose single commands and answer others. Such a path is neither silent nor suspect. So the age of each
//! command counts, including recalled commands. The driver knows when commands were sent. A command that an injection
//! stalls counts as sent. Only time in which this process looked counts ([`crate::attention`]).

use monotonic::{Duration, Instant};

use super::Group;
use crate::PathId;

impl Group {
    /// A live path with a command older than [`GroupConfig::io_timeout`](super::GroupConfig::io_timeout). The driver
    /// closes its connection, as if the connection had been lost. `oldest_sent` returns when the first byte of the
    /// path's oldest unanswered command was sent. It is called only when a command may be too old.
    #[must_use]
    pub fn timed_out(&mut self, now: Instant, oldest_sent: impl Fn(PathId) -> Option<Instant>) -> Option<PathId> {
        for id in (0..self.paths.len() as u16).map(PathId) {
            if self.paths[id.index()].expires_at.is_none_or(|at| now < at) {
                continue;
            }
            let oldest = oldest_sent(id).into_iter().chain(self.oldest_stalled(id)).min();
            let path = &mut self.paths[id.index()];
            // A command that was not sent yet starts to age now, at the earliest.
            let ages_from = oldest.or(path.owes().then_some(now));
            path.expires_at = ages_from.map(|from| self.attention.after(from, self.config.io_timeout));
            if path.expires_at.is_some_and(|at| at <= now) {
                return Some(id);
            }
        }
        None
    }

    /// How long a command may wait for its answer.
    #[must_use]
    pub fn io_timeout(&self) -> Duration {
        self.config.io_timeout
    }

    /// When the next command may be too old if nothing happens before.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.expires_at).min()
    }

    /// When the oldest request that the injection of a path stalls was issued, including recalled requests.
    fn oldest_stalled(&self, id: PathId) -> Option<Instant> {
        let injections = self.paths[id.index()].injections.as_ref()?;
        let tags = injections.stalled.iter().chain(injections.answers.iter().map(|(tag, _)| tag));
        let issued_at = tags.filter_map(|&tag| {
            let request = &self.requests[tag];
            if self.has_flush_commands(tag) {
                self.flushes.issued_at_on(request.job, id)
            } else {
                Some(request.issued_at)
            }
        });
        issued_at.chain(injections.stalled_abandoned.into_iter().flatten()).min()
    }
}
