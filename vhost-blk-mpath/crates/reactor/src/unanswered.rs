//! Requests of a disk's guest that nobody has answered, and that its front-end has a log of.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vhost_user_blk::Queue;

/// The virtqueues of one disk whose in-flight log may have requests while nobody runs them: whoever the front-end connects to next
/// executes these. The I/O threads of the disk share it.
#[derive(Debug)]
pub struct Unanswered(Mutex<BTreeSet<u16>>);

impl Unanswered {
    /// None yet; or any of them, if somebody has served the disk `before` and what that left is not known.
    #[must_use]
    pub fn new(before: bool) -> Self {
        let any = 0..=u8::MAX.into();
        Self(Mutex::new(any.filter(|_| before).collect()))
    }

    /// Whether there may be such requests.
    #[must_use]
    pub fn are_there(&self) -> bool {
        !self.queues().is_empty()
    }

    /// A virtqueue is run from now on, and with it all that its log has. What the front-end has of the others tells which of them are left:
    /// none, if it keeps no log, or a new one since its guest was reset.
    pub(crate) fn taken_up(&self, queue: &Queue) {
        self.queues().retain(|&index| index != queue.index() && queue.other_left_requests(index));
    }

    /// A virtqueue is not run any more.
    pub(crate) fn left(&self, queue: &Queue) {
        if queue.leaves_requests() {
            self.queues().insert(queue.index());
        }
    }

    fn queues(&self) -> MutexGuard<'_, BTreeSet<u16>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Guest, pop};

    /// What ones that do come back for is shown by the daemon's tests.
    #[test]
    fn a_front_end_without_a_log_comes_back_for_nothing() {
        let mut guest = Guest::new();
        let mut queue = guest.queue();
        assert!(!Unanswered::new(false).are_there());
        let unanswered = Unanswered::new(true);
        assert!(unanswered.are_there());
        unanswered.taken_up(&queue);
        assert!(!unanswered.are_there());
        guest.read(0, 4096);
        let _given_up = pop(&mut queue);
        unanswered.left(&queue);
        assert!(queue.outstanding() == 1 && !unanswered.are_there());
    }
}
