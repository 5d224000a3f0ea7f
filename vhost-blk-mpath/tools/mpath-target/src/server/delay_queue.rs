//! A queue of delayed commands.

use std::collections::BTreeMap;

use monotonic::Instant;

/// Items by due time. Items with the same due time keep their order of arrival.
pub(super) struct DelayQueue<T> {
    /// By due time and number.
    items: BTreeMap<(Instant, u64), T>,
    next_number: u64,
}

impl<T> DelayQueue<T> {
    pub(super) fn new() -> Self {
        Self { items: BTreeMap::new(), next_number: 0 }
    }

    pub(super) fn push(&mut self, due: Instant, item: T) {
        self.items.insert((due, self.next_number), item);
        self.next_number += 1;
    }

    /// The next item that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<T> {
        let first = self.items.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.items.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use monotonic::Duration;

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
