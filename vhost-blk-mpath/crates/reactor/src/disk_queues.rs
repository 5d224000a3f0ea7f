//! Decides: virtqueues that are stopped share this time (`begin_stop`).
//!
//! The record of a disk's virtqueues: those that left requests for the next back-end of the front-end to execute, and
//! those that are broken.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use monotonic::{Duration, Instant};
use vhost_user_blk::{Queue, QueueError};

/// How long virtqueues that a front-end stops one after the other may drain together, before their remaining requests
/// are given up. The front-end's main loop, and so the guest, stands still meanwhile.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);
/// A virtqueue that stops this long after the last one has a time of its own.
const DRAIN_REST: Duration = Duration::from_secs(1);

/// The virtqueues of one disk, of two kinds. The I/O threads of the disk share this record.
///
/// *Unanswered* ones do not run and may have unanswered requests: in their in-flight log, or still in the ring when this
/// process hung up on the front-end. The next back-end executes these. *Broken* ones run, and stand still until the guest
/// resets the device.
#[derive(Debug)]
pub struct DiskQueues {
    queues: Mutex<Queues>,
    /// Whether this process hangs up on front-ends.
    is_hanging_up: AtomicBool,
    served_since: Instant,
}

#[derive(Debug)]
struct Queues {
    /// The unanswered virtqueues by index, each with the number of its stop.
    unanswered: BTreeMap<u16, u64>,
    /// The broken virtqueues by index: when and why each broke.
    broken: BTreeMap<u16, (Instant, QueueError)>,
    /// The virtqueues by index that broke since the last call of [`DiskQueues::take_newly_broken`].
    newly_broken: BTreeMap<u16, QueueError>,
    /// The number of virtqueues that front-ends have started.
    starts: u64,
    /// The number of stops that left requests.
    stops: u64,
    /// The virtqueues that a front-end stops, since the last one started.
    drain: Option<Drain>,
}

/// The time that virtqueues have to drain.
#[derive(Clone, Copy, Debug)]
struct Drain {
    until: Instant,
    /// When one of them last began or ended.
    last: Instant,
}

/// The time that a virtqueue has to drain, from [`DiskQueues::begin_stop`].
#[derive(Clone, Copy, Debug)]
pub struct DrainTime {
    /// When the front-end stopped the virtqueue. The front-end stands still from then on.
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

impl DiskQueues {
    /// The record of a disk that this process serves since `served_since`. An earlier process may have left requests in
    /// any of the first `before` virtqueues. 0 if no process has served the disk before.
    #[must_use]
    pub fn new(before: u16, served_since: Instant) -> Self {
        let unanswered = (0..before).map(|index| (index, 0)).collect();
        Self {
            queues: Mutex::new(Queues {
                unanswered,
                broken: BTreeMap::new(),
                newly_broken: BTreeMap::new(),
                starts: 0,
                stops: 0,
                drain: None,
            }),
            is_hanging_up: AtomicBool::new(false),
            served_since,
        }
    }

    /// When this process began to serve the disk. Requests in a virtqueue that it runs for the first time may be older.
    #[must_use]
    pub fn served_since(&self) -> Instant {
        self.served_since
    }

    /// Whether any virtqueue may have unanswered requests.
    #[must_use]
    pub fn has_unanswered(&self) -> bool {
        !self.queues().unanswered.is_empty()
    }

    /// Forgets the unanswered requests: the operator says that no front-end can come back for them.
    pub fn forget_unanswered(&self) {
        self.queues().unanswered.clear();
    }

    /// Call this before hanging up on front-ends. Requests that still wait in a ring are unanswered from then on.
    pub fn begin_hang_up(&self) {
        self.is_hanging_up.store(true, Ordering::SeqCst);
    }

    /// The front-end starts a virtqueue: those that it stops from now on have a time of their own to drain. Call this before the I/O
    /// thread is told: the thread may hear of the start after another thread has heard of the next stop.
    pub fn begin_start(&self) {
        let mut queues = self.queues();
        (queues.drain, queues.starts) = (None, queues.starts + 1);
    }

    /// The number of virtqueues that front-ends have started.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.queues().starts
    }

    /// Forgets the virtqueues that have no unanswered requests any more, because `queue` has started.
    ///
    /// `queue` itself executes all requests of its in-flight log. Another virtqueue is forgotten if its log, in the
    /// same memory, is empty. After a reset of the guest the log is new, so all are. A front-end without a log says
    /// nothing: it may only test the socket, and the guest's own front-end may still have a log.
    pub(crate) fn queue_started(&self, queue: &Queue) {
        if !queue.has_inflight_log() {
            return;
        }
        let before = self.queues().unanswered.clone();
        // Reads up to megabytes of logs, so other I/O threads must not wait for the lock meanwhile.
        let is_done = |index| index == queue.index() || !queue.other_queue_has_requests(index);
        let done: Vec<_> = before.into_iter().filter(|&(index, _)| is_done(index)).collect();
        // After a fault the logs may have read as zeroes.
        if queue.has_faulted() {
            return;
        }
        let mut queues = self.queues();
        for (index, stop) in done {
            // Unless another thread has stopped it again since.
            if queues.unanswered.get(&index) == Some(&stop) {
                queues.unanswered.remove(&index);
            }
        }
    }

    /// The broken virtqueues by index, with the time and the cause. Each yields no requests until its front-end stops it.
    #[must_use]
    pub fn broken(&self) -> BTreeMap<u16, (Instant, QueueError)> {
        self.queues().broken.clone()
    }

    /// The virtqueues by index that broke since the last call, and why. They may have stopped since.
    #[must_use]
    pub fn take_newly_broken(&self) -> BTreeMap<u16, QueueError> {
        std::mem::take(&mut self.queues().newly_broken)
    }

    /// Records that a virtqueue yields no more requests, because of its driver.
    pub(crate) fn queue_broke(&self, queue: &Queue, at: Instant, error: QueueError) {
        let queues = &mut *self.queues();
        if let Entry::Vacant(entry) = queues.broken.entry(queue.index()) {
            entry.insert((at, error));
            queues.newly_broken.insert(queue.index(), error);
        }
    }

    /// The time of virtqueues that their front-end stops now. QEMU stops them one after the other. Call this before the I/O thread
    /// is told: a thread that stands still does not make the time longer.
    pub fn begin_stop(&self, now: Instant) -> DrainTime {
        let queues = &mut *self.queues();
        let same = queues.drain.filter(|drain| now < drain.last + DRAIN_REST);
        let until = same.map_or(now + DRAIN_MAX, |drain| drain.until);
        queues.drain = Some(Drain { until, last: now });
        DrainTime { since: now, until }
    }

    /// Records that a virtqueue has stopped, and whether it may have left unanswered requests.
    pub(crate) fn queue_stopped(&self, queue: &Queue, now: Instant) {
        {
            let queues = &mut *self.queues();
            queues.broken.remove(&queue.index());
            if let Some(drain) = &mut queues.drain {
                drain.last = now;
            }
        }
        let leaves_waiting = || self.is_hanging_up.load(Ordering::SeqCst) && queue.has_waiting_requests();
        if queue.has_unanswered_requests() || leaves_waiting() {
            let mut queues = self.queues();
            queues.stops += 1;
            let stop = queues.stops;
            queues.unanswered.insert(queue.index(), stop);
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Guest, pop};

    #[test]
    fn a_start_that_a_thread_hears_of_late_changes_no_time_to_drain() {
        let guest = Guest::new();
        let (queue, second) = (guest.queue(), Duration::from_secs(1));
        let (start, queues) = (Instant::now(), DiskQueues::new(0, Instant::now()));
        queues.begin_stop(start);
        queues.queue_stopped(&queue, start);
        queues.begin_start();
        let until = queues.begin_stop(start + second / 2).until;
        assert_eq!(until, start + second / 2 + DRAIN_MAX, "a virtqueue has started");
        queues.queue_started(&queue);
        queues.queue_stopped(&queue, until);
        assert_eq!(queues.begin_stop(until).until, until, "the front-end has used up its time");
    }

    /// The daemon's tests cover front-ends with a log.
    #[test]
    fn a_front_end_without_a_log_changes_nothing() {
        let mut guest = Guest::new();
        let mut queue = guest.queue();
        let queues = DiskQueues::new(0, Instant::now());
        assert!(!queues.has_unanswered());
        guest.read(0, 4096);
        guest.read(0, 4096);
        let _given_up = pop(&mut queue);
        queues.begin_hang_up();
        queues.queue_stopped(&queue, Instant::now());
        assert!(queue.outstanding() == 1 && !queues.has_unanswered());
        let queues = DiskQueues::new(1, Instant::now());
        queues.queue_started(&queue);
        assert!(queues.has_unanswered());
        queues.forget_unanswered();
        assert!(!queues.has_unanswered());
    }
}
