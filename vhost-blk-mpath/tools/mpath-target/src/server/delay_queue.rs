//! A queue of delayed commands.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Items ordered by due time. Items with the same due time keep their order of arrival.
pub(super) struct DelayQueue<T> {
    heap: BinaryHeap<Reverse<DelayedItem<T>>>,
    next_seq: u64,
}

struct DelayedItem<T> {
    due: Instant,
    seq: u64,
    item: T,
}

impl<T> DelayedItem<T> {
    fn key(&self) -> (Instant, u64) {
        (self.due, self.seq)
    }
}

impl<T> PartialEq for DelayedItem<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for DelayedItem<T> {}

impl<T> PartialOrd for DelayedItem<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for DelayedItem<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl<T> DelayQueue<T> {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), next_seq: 0 }
    }

    pub(super) fn push(&mut self, due: Instant, item: T) {
        self.heap.push(Reverse(DelayedItem { due, seq: self.next_seq, item }));
        self.next_seq += 1;
    }

    /// The next item that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(delayed)| delayed.item)
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(delayed)| delayed.due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn items_are_returned_when_due_and_in_order() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut queue = DelayQueue::new();
        queue.push(at(30), 'c');
        queue.push(at(10), 'a');
        queue.push(at(10), 'b');
        assert_eq!(queue.next_due(), Some(at(10)));
        assert_eq!(queue.pop_due(at(9)), None);
        assert_eq!(queue.pop_due(at(10)), Some('a'));
        assert_eq!(queue.pop_due(at(10)), Some('b'));
        assert_eq!(queue.pop_due(at(29)), None);
        assert_eq!(queue.pop_due(at(31)), Some('c'));
        assert!(queue.is_empty());
    }
}
