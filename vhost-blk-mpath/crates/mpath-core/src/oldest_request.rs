//! The oldest request of a disk without an answer, for readers outside the I/O threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use monotonic::{Duration, Instant};

/// A request without an answer for this time is old. The operator hears of it.
pub const OLD_REQUEST: Duration = Duration::from_secs(1);

/// No request is open.
const NONE: u64 = u64::MAX;

/// When the oldest open request of a disk was submitted, as each [`crate::Group`] of the disk says four times a second. An I/O
/// thread that stands still says nothing new, and its requests grow older.
#[derive(Debug, Default)]
pub struct OldestRequest(Mutex<Vec<Arc<Place>>>);

#[derive(Debug)]
struct Place {
    started: Instant,
    /// The submission, in ns after `started`.
    submitted_ns: AtomicU64,
}

/// The place where one group publishes its oldest request.
#[derive(Debug)]
pub(crate) struct PublishedRequest(Arc<Place>);

impl OldestRequest {
    /// A place for one more group, which starts now.
    pub(crate) fn publisher(&self, now: Instant) -> PublishedRequest {
        let place = Arc::new(Place { started: now, submitted_ns: AtomicU64::new(NONE) });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&place));
        PublishedRequest(place)
    }

    /// The age of the oldest request. `None` if none is open, or none was when the I/O threads last looked.
    #[must_use]
    pub fn age(&self, now: Instant) -> Option<Duration> {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = groups.iter().filter_map(|group| match group.submitted_ns.load(Ordering::Relaxed) {
            NONE => None,
            ns => Some(now.saturating_duration_since(group.started + Duration::from_nanos(ns))),
        });
        ages.max()
    }
}

impl PublishedRequest {
    /// Publishes when the oldest open request was submitted.
    pub(crate) fn publish(&self, submitted_at: Option<Instant>) {
        let ns = |at: Instant| at.saturating_duration_since(self.0.started).as_nanos();
        self.0.submitted_ns.store(submitted_at.map_or(NONE, ns), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_request_of_all_groups_grows_older() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let oldest = OldestRequest::default();
        let (one, other) = (oldest.publisher(start), oldest.publisher(start + second));
        assert_eq!(oldest.age(start + second), None);
        other.publish(Some(start + 3 * second));
        assert_eq!(oldest.age(start + 5 * second), Some(2 * second));
        one.publish(Some(start + 2 * second));
        assert_eq!(oldest.age(start + 7 * second), Some(5 * second));
        one.publish(None);
        assert_eq!(oldest.age(start + 7 * second), Some(4 * second));
    }
}
