//! What the guest gets: its requests by operation, the oldest of them, and the slowest of the last minutes.

use monotonic::{Duration, Instant};

use super::{Group, earlier};
use crate::guest_io::LONG;
use crate::history::Phase;
use crate::requests::State;
use crate::{IoError, OLD_REQUEST, PathId, SlowRequest, Tag};

/// How often the oldest open request of each disk is published.
const PUBLISH_EVERY: Duration = Duration::from_millis(250);

impl Group {
    /// Counts a request that ends.
    #[inline]
    pub(super) fn answered(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) {
        if self.open == 0 && self.has_published_oldest {
            self.publish_oldest(now);
        }
        // A request that was given up has no answer.
        if result == Err(IoError::GivenUp) {
            return;
        }
        let request = &self.requests[tag];
        let (io, submitted_at) = (request.io, request.history.submitted_at);
        let (latency, at) = (now - submitted_at, self.since_start.at(now));
        self.disks[io.disk.index()].guest.answered(at, &io, result, latency);
        if latency >= LONG || self.slow.is_candidate(now, submitted_at) {
            self.check_slow(now, tag, latency, result);
        }
    }

    /// Counts the stages of a request that ends, if it took long, and records it, if it is one of the slowest.
    #[inline(never)]
    fn check_slow(&mut self, now: Instant, tag: Tag, total: Duration, result: Result<(), IoError>) {
        let is_slow = self.slow.is_slow(now, total);
        if !is_slow && total < LONG {
            return;
        }
        let request = &self.requests[tag];
        let (io, history, tried) = (request.io, &request.history, request.known());
        let pauses = self.scheduler.pauses(now, io.disk);
        let has_path = history.paths != 0;
        let slow = SlowRequest {
            ended_at: now,
            io,
            sector: None,
            total,
            stages: history.stages(now, request.phase(request.ended_in), pauses, &self.host_time),
            path: (has_path && !self.fans_out(io.op)).then_some(request.path),
            paths: history.paths,
            attempts: u32::from(has_path) * (1 + tried.retries + tried.failovers + tried.recalls),
            result,
        };
        if total >= LONG && self.disks[io.disk.index()].guest.long_request(&slow) {
            self.needs_sector = Some(io.disk);
        }
        if is_slow {
            self.slow.record(now, slow);
        }
    }

    /// When the oldest open request of each disk was submitted. The time that an old one has waited for the limits of its disk is left
    /// out: that is meant.
    pub(super) fn oldest(&self, now: Instant) -> Vec<Option<Instant>> {
        let mut oldest = vec![None; self.disks.len()];
        for request in self.requests.iter().filter(|request| request.state != State::Free) {
            let (disk, phase) = (request.io.disk, request.phase(request.state));
            let pauses = || self.scheduler.pauses(now, disk);
            let limit = || request.history.stages(now, phase, pauses(), &self.host_time).limit;
            let limited = if request.age(now) >= OLD_REQUEST { limit() } else { Duration::ZERO };
            let oldest = &mut oldest[disk.index()];
            *oldest = earlier(*oldest, Some(request.history.submitted_at + limited));
        }
        oldest
    }

    #[cold]
    pub(super) fn publish_oldest(&mut self, now: Instant) {
        for (disk, oldest) in self.disks.iter().zip(self.oldest(now)) {
            disk.oldest.publish(oldest);
        }
        self.publish_oldest_at = now + PUBLISH_EVERY;
        self.has_published_oldest = self.open > 0;
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
        self.slow.needs_sector || self.needs_sector.is_some()
    }

    /// Sets the first sector of the request that finished last; `None` if it has none. Only the driver knows it.
    pub fn set_slow_sector(&mut self, sector: Option<u64>) {
        if self.slow.needs_sector {
            self.slow.set_sector(sector);
        }
        if let Some(disk) = self.needs_sector.take() {
            self.disks[disk.index()].guest.set_sector(sector);
        }
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
