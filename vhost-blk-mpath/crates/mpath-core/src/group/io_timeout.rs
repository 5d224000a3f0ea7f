//! The I/O timeout: a command that is not answered for that long ends its association.
//!
//! A path may lose single commands while it answers others, and then it is neither silent nor suspect. The age of each
//! command counts, that of a recalled one too. The driver knows when commands were sent; a command that an injection
//! stalls looks as if it had been sent.

use std::time::{Duration, Instant};

use super::Group;
use crate::PathId;

impl Group {
    /// A live path that has not answered a command within [`GroupConfig::io_timeout`](super::GroupConfig::io_timeout): the
    /// driver closes its connection, as if that had been lost. `oldest_sent` tells of a path when the first byte of its oldest
    /// command without a completion was sent. It is asked only when a command may be that old.
    #[must_use]
    pub fn timed_out(&mut self, now: Instant, oldest_sent: impl Fn(PathId) -> Option<Instant>) -> Option<PathId> {
        for id in (0..self.paths.len() as u16).map(PathId) {
            if self.paths[id.index()].expires_at.is_none_or(|at| now < at) {
                continue;
            }
            let oldest = oldest_sent(id).into_iter().chain(self.oldest_stalled(id)).min();
            let path = &mut self.paths[id.index()];
            // What is owed and was not sent ages from now on, at the earliest.
            let ages_from = oldest.or(path.owes().then_some(now));
            path.expires_at = ages_from.map(|from| from + self.config.io_timeout);
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

    /// When a command may be too old, if nothing happens.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.expires_at).min()
    }

    /// When the oldest request that the injection of a path stalls was issued, those that were recalled included.
    fn oldest_stalled(&self, id: PathId) -> Option<Instant> {
        let impaired = self.paths[id.index()].impaired.as_ref()?;
        let tags = impaired.stalled.iter().chain(impaired.answers.iter().map(|(tag, _)| tag));
        let issued_at = tags.filter_map(|&tag| {
            let request = &self.requests[tag];
            if self.has_legs(tag) { self.flushes.issued_at_on(request.job, id) } else { Some(request.issued_at) }
        });
        issued_at.chain(impaired.stalled_ghosts.into_iter().flatten()).min()
    }
}
