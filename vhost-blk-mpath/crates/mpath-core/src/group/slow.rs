//! The slowest requests of the last minutes.

use std::time::{Duration, Instant};

use super::Group;
use crate::history::Phase;
use crate::{IoError, PathId, SlowRequest, Tag};

impl Group {
    /// Records a request that ends, if it is one of the slowest.
    #[inline(never)]
    pub(super) fn check_slow(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) {
        // A request that was given up has no answer.
        let total = self.requests[tag].age(now);
        if result != Err(IoError::GivenUp) && self.slow.is_slow(now, total) {
            self.record_slow(now, tag, total, result);
        }
    }

    #[cold]
    fn record_slow(&mut self, now: Instant, tag: Tag, total: Duration, result: Result<(), IoError>) {
        let request = &self.requests[tag];
        let (io, history) = (request.io, &request.history);
        let has_path = history.paths != 0;
        let slow = SlowRequest {
            ended_at: now,
            io,
            sector: None,
            total,
            stages: history.stages(
                now,
                request.phase(request.ended_in),
                self.scheduler.pauses(now, io.disk),
                &self.host_time,
            ),
            path: (has_path && !self.fans_out(io.op)).then_some(request.path),
            paths: history.paths,
            attempts: u32::from(has_path) * (1 + request.retries + request.failovers + request.recalls),
            result,
        };
        self.slow.record(now, slow);
    }

    /// Records that a request, submitted now, has waited in its virtqueue since `since`: its disk was held, or else this host
    /// did not run the driver.
    pub fn waited_in_virtqueue(&mut self, now: Instant, tag: Tag, since: Instant, was_held: bool) {
        let phase = if was_held { Phase::Fence } else { Phase::Queued };
        self.requests[tag].history.waited_in_virtqueue(now, since, phase, &self.host_time);
    }

    /// The slowest requests of the last five minutes: at most 16 of each 10 s, in no order.
    pub fn slow_requests(&self, now: Instant) -> impl Iterator<Item = &SlowRequest> {
        self.slow.recent(now)
    }

    /// Whether the request that finished last is one of the slowest, and its sector is still unknown.
    #[inline]
    #[must_use]
    pub fn asks_for_sector(&self) -> bool {
        self.slow.needs_sector
    }

    /// Sets the first sector of the request that finished last; `None` if it has none. Only the driver knows it.
    pub fn set_slow_sector(&mut self, sector: Option<u64>) {
        self.slow.set_sector(sector);
    }

    /// Records that the last command of a request's attempt on this path was sent at `sent_at`. Call it before the
    /// answer to the request.
    #[inline]
    pub fn sent(&mut self, path: PathId, tag: Tag, sent_at: Instant) {
        let request = &mut self.requests[tag];
        // A flush has commands on several paths.
        if request.path == path {
            request.history.sent_at = sent_at;
        }
    }
}
