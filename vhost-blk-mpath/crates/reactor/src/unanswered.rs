//! Requests of a disk's guest that nobody has answered, and that its front-end has executed by whoever is next.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use vhost_user_blk::Queue;

/// The virtqueues of one disk whose in-flight log may have requests while nobody runs them, or that have some which were not taken when
/// the front-end was hung up on: whoever it connects to next executes these. The I/O threads of the disk share it.
#[derive(Debug)]
pub struct Unanswered {
    queues: Mutex<Queues>,
    /// Front-ends are hung up on.
    cut: AtomicBool,
    /// This process has the disk since then.
    began: Instant,
}

#[derive(Debug)]
struct Queues {
    /// Each with the number of the time it was left.
    left: BTreeMap<u16, u64>,
    times: u64,
}

impl Unanswered {
    /// Of a disk that this process has since `began`. An earlier process may have left requests in any of `before` virtqueues; 0 if none
    /// has served the disk.
    #[must_use]
    pub fn new(before: u16, began: Instant) -> Self {
        let left = (0..before).map(|index| (index, 0)).collect();
        Self { queues: Mutex::new(Queues { left, times: 0 }), cut: AtomicBool::new(false), began }
    }

    /// Since when this process has the disk. What waits in a virtqueue that it runs for the first time may be older.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Whether there may be such requests.
    #[must_use]
    pub fn are_there(&self) -> bool {
        !self.queues().left.is_empty()
    }

    /// From now on it is not the front-ends that stop virtqueues: what waits in one of them is for whoever is next.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// A virtqueue is run from now on, and with it all that its log has. What the front-end has of the others tells which of them are left:
    /// none, if it keeps a new log since its guest was reset. Who keeps no log says nothing of a guest that does: it may be a probe.
    pub(crate) fn taken_up(&self, queue: &Queue) {
        if !queue.keeps_log() {
            return;
        }
        let before = self.queues().left.clone();
        // Of megabytes at most: other I/O threads do not wait for that.
        let is_done = |index| index == queue.index() || !queue.other_left_requests(index);
        let done: Vec<_> = before.into_iter().filter(|&(index, _)| is_done(index)).collect();
        // Then what was read of the log may be zeroes.
        if queue.has_faulted() {
            return;
        }
        let mut queues = self.queues();
        for (index, time) in done {
            // Unless another thread has left it since.
            if queues.left.get(&index) == Some(&time) {
                queues.left.remove(&index);
            }
        }
    }

    /// A virtqueue is not run any more.
    pub(crate) fn left(&self, queue: &Queue) {
        if queue.leaves_requests() || self.cut.load(Ordering::SeqCst) && queue.leaves_waiting() {
            let mut queues = self.queues();
            queues.times += 1;
            let time = queues.times;
            queues.left.insert(queue.index(), time);
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

    /// What ones that do come back for is shown by the daemon's tests.
    #[test]
    fn a_front_end_without_a_log_leaves_and_clears_nothing() {
        let mut guest = Guest::new();
        let mut queue = guest.queue();
        let unanswered = Unanswered::new(0, Instant::now());
        assert!(!unanswered.are_there());
        guest.read(0, 4096);
        guest.read(0, 4096);
        let _given_up = pop(&mut queue);
        unanswered.cut();
        unanswered.left(&queue);
        assert!(queue.outstanding() == 1 && !unanswered.are_there());
        let unanswered = Unanswered::new(1, Instant::now());
        unanswered.taken_up(&queue);
        assert!(unanswered.are_there());
    }
}
