//! Decides: a request is slow.
//!
//! The slowest requests of the last minutes.
//!
//! Time is divided into windows of [`WINDOW`]. Each window keeps its [`PER_WINDOW`] slowest requests, and the last
//! [`WINDOWS`] windows are kept. So memory is bounded, and one bad minute does not displace another.
//!
//! Most requests are no candidates, and one comparison of times says so: a request that was submitted after `cutoff`
//! is quicker than the window's requests. The cutoff follows the time in steps of an eighth of the least kept latency.
//! So a request that is left out is at most an eighth slower than the least of its window.

use std::collections::VecDeque;
use std::fmt;

use monotonic::{Duration, Instant};

use crate::{Io, IoError, PathId, Stages};

/// The length of a window.
const WINDOW: Duration = Duration::from_secs(10);
/// The windows that are kept: five minutes.
const WINDOWS: usize = 30;
/// The requests that a window keeps.
const PER_WINDOW: usize = 16;
/// The cutoff may be late by the least kept latency divided by this.
const LATE: u32 = 8;

/// A slow request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct SlowRequest {
    /// When it ended.
    pub ended_at: Instant,
    /// The request.
    pub io: Io,
    /// The first sector on the disk; `None` for a flush, or if the driver said nothing.
    pub sector: Option<u64>,
    /// From submission to end.
    pub total: Duration,
    /// The time from submission to end, by stage.
    pub stages: Stages,
    /// The path of the last attempt; `None`: there was none.
    pub path: Option<PathId>,
    /// All paths that got the request, hedges included, as a set.
    pub paths: u64,
    /// Attempts. A flush counts as one.
    pub attempts: u32,
    /// What the guest got.
    pub result: Result<(), IoError>,
}

/// A window, with its requests in no order.
struct Window {
    began: Instant,
    requests: Vec<SlowRequest>,
}

/// The slow requests of a group.
pub(crate) struct SlowRequests {
    /// The oldest first.
    windows: VecDeque<Window>,
    /// Until `next_cutoff`, requests that were submitted later are quicker than those of the window.
    cutoff: Instant,
    next_cutoff: Instant,
    window_ends: Instant,
    /// The least latency of the newest window if the window is full, and its place.
    least: Duration,
    least_at: usize,
    /// The request that was recorded last still has no sector.
    pub(crate) needs_sector: bool,
    /// Its place in the newest window.
    newest: usize,
}

/// Empty: the debug text of a [`crate::Group`] shows only what affects decisions.
impl fmt::Debug for SlowRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlowRequests").finish_non_exhaustive()
    }
}

impl SlowRequests {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            windows: VecDeque::new(),
            cutoff: now,
            next_cutoff: now,
            window_ends: now,
            least: Duration::ZERO,
            least_at: 0,
            needs_sector: false,
            newest: 0,
        }
    }

    /// Whether a request that ends now may be one of the slowest.
    #[inline]
    pub(crate) fn is_candidate(&self, now: Instant, submitted_at: Instant) -> bool {
        now >= self.next_cutoff || submitted_at < self.cutoff
    }

    /// Moves the cutoff to now. Returns whether a request that ends now is one of the slowest: record it then.
    pub(crate) fn is_slow(&mut self, now: Instant, total: Duration) -> bool {
        if now >= self.window_ends || total > self.least {
            return true;
        }
        self.set_cutoff(now);
        false
    }

    fn set_cutoff(&mut self, now: Instant) {
        // The clock may be younger than the latency.
        self.cutoff = now.checked_sub(self.least).unwrap_or(now);
        self.next_cutoff = (now + self.least / LATE).min(self.window_ends);
    }

    /// Records a request that ends now and is one of the slowest.
    #[cold]
    pub(crate) fn record(&mut self, now: Instant, request: SlowRequest) {
        if self.windows.back().is_none_or(|window| now - window.began >= WINDOW) {
            let recycled = if self.windows.len() == WINDOWS { self.windows.pop_front() } else { None };
            let mut requests = recycled.map_or_else(|| Vec::with_capacity(PER_WINDOW), |window| window.requests);
            requests.clear();
            self.windows.push_back(Window { began: now, requests });
        }
        let window = self.windows.back_mut().expect("a window was just begun");
        self.window_ends = window.began + WINDOW;
        self.needs_sector = true;
        if window.requests.len() < PER_WINDOW {
            self.newest = window.requests.len();
            window.requests.push(request);
        } else {
            self.newest = self.least_at;
            window.requests[self.newest] = request;
        }
        let totals = window.requests.iter().zip(0..).map(|(request, at)| (request.total, at));
        (self.least, self.least_at) =
            totals.min().filter(|_| window.requests.len() == PER_WINDOW).unwrap_or((Duration::ZERO, 0));
        self.set_cutoff(now);
    }

    /// Adds the first sector of the request that was recorded last.
    #[cold]
    pub(crate) fn set_sector(&mut self, sector: Option<u64>) {
        self.needs_sector = false;
        if let Some(window) = self.windows.back_mut() {
            window.requests[self.newest].sector = sector;
        }
    }

    /// The slow requests of the last five minutes, in no order.
    pub(crate) fn recent(&self, now: Instant) -> impl Iterator<Item = &SlowRequest> {
        let is_recent = move |request: &&SlowRequest| now - request.ended_at < WINDOW * WINDOWS as u32;
        self.windows.iter().flat_map(|window| &window.requests).filter(is_recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DiskId, FlowId, Op, Tag};

    const MS: Duration = Duration::from_millis(1);

    fn request(ended_at: Instant, total: Duration) -> SlowRequest {
        let io = Io { tag: Tag(0), op: Op::Read, bytes: 0, disk: DiskId(0), flow: FlowId(0), fua: false };
        let stages = Stages::default();
        let result = Ok(());
        SlowRequest { ended_at, io, sector: None, total, stages, path: None, paths: 0, attempts: 1, result }
    }

    /// A request ends after `total`. Returns whether it was looked at.
    fn end(slow: &mut SlowRequests, now: Instant, total: Duration) -> bool {
        let submitted_at = now.checked_sub(total).expect("the test starts later");
        let candidate = slow.is_candidate(now, submitted_at);
        if candidate && slow.is_slow(now, total) {
            slow.record(now, request(now, total));
        }
        candidate
    }

    fn totals(slow: &SlowRequests, now: Instant) -> Vec<u64> {
        let mut totals: Vec<_> = slow.recent(now).map(|request| request.total.as_millis()).collect();
        totals.sort_unstable_by(|a, b| b.cmp(a));
        totals
    }

    #[test]
    fn the_slowest_of_a_window_are_kept() {
        let (start, mut slow) = (Instant::now() + WINDOW, SlowRequests::new(Instant::now()));
        let mut looked_at = 0;
        for n in 0..5000_u32 {
            let total = if n % 25 == 7 { (100 + n / 10) * MS } else { MS };
            looked_at += u32::from(end(&mut slow, start + n * MS, total));
        }
        // 200 of 5000 are slow, the latest are the slowest, and 16 are kept.
        let kept: Vec<u64> = (0..PER_WINDOW as u64).map(|n| 100 + (4982 - 25 * n) / 10).collect();
        assert_eq!(totals(&slow, start), kept);
        assert!(looked_at < 1000, "{looked_at} of 5000 were looked at");
    }

    #[test]
    fn windows_are_kept_for_five_minutes_and_memory_is_bounded() {
        let (start, mut slow) = (Instant::now() + WINDOW, SlowRequests::new(Instant::now()));
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            for _ in 0..3 {
                end(&mut slow, now, (second as u32 + 1) * MS);
            }
        }
        let now = start + Duration::from_secs(1000);
        assert_eq!(slow.windows.len(), WINDOWS);
        assert!(slow.windows.iter().all(|window| window.requests.capacity() == PER_WINDOW));
        assert_eq!(totals(&slow, now)[0], 1000);
        assert_eq!(totals(&slow, now).len(), WINDOWS * PER_WINDOW);
        assert!(totals(&slow, now + 400 * Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn a_quick_request_is_not_looked_at_again() {
        let (start, mut slow) = (Instant::now() + WINDOW, SlowRequests::new(Instant::now()));
        (0..PER_WINDOW).for_each(|_| assert!(end(&mut slow, start, 80 * MS)));
        assert!(!end(&mut slow, start + 9 * MS, 79 * MS));
        assert!(end(&mut slow, start + 9 * MS, 100 * MS));
        assert!(end(&mut slow, start + WINDOW, MS), "a new window takes all");
    }
}
