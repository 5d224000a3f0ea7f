//! Numbered events, kept for the API and written to the log.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use mpath_api::server::ControlError;
use mpath_api::types::{Event, EventKind, EventPath, Events, Severity};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use uuid::Uuid;

/// The number of events kept. A client that asks too seldom is told how many it has missed.
const EVENTS_MAX: usize = 1024;
/// The number of clients that may wait for events at once. The API has many more connections, and waiting clients
/// must not occupy all of them.
const WAITERS: usize = 16;

/// The events of the daemon.
pub(crate) struct EventLog {
    /// Tells this run's numbers from those of another run.
    boot_id: Uuid,
    ring: Mutex<EventRing>,
    /// The number of the last event. A change wakes waiting clients.
    last: watch::Sender<u64>,
    /// True once the daemon ends. No client waits after that.
    ended: watch::Sender<bool>,
    waiters: Semaphore,
}

#[derive(Default)]
struct EventRing {
    events: VecDeque<Event>,
    last: u64,
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self {
            boot_id: Uuid::new_v4(),
            ring: Mutex::default(),
            last: watch::Sender::new(0),
            ended: watch::Sender::new(false),
            waiters: Semaphore::new(WAITERS),
        }
    }

    /// Records an event and logs it.
    pub(crate) fn record(&self, disk: &str, path: Option<EventPath>, kind: EventKind, message: String) {
        let address = path.as_ref().map(|path| tracing::field::display(&path.address));
        let severity = kind.severity();
        match severity {
            Severity::Error => tracing::error!(disk, path = address, "{message}"),
            Severity::Warning => tracing::warn!(disk, path = address, "{message}"),
            Severity::Info => tracing::info!(disk, path = address, "{message}"),
        }
        let last = {
            let mut ring = self.ring();
            ring.last += 1;
            let (seq, time) = (ring.last, utc(SystemTime::now()));
            let event = Event { seq, time, kind, severity, disk: disk.into(), path, message };
            if ring.events.len() == EVENTS_MAX {
                ring.events.pop_front();
            }
            ring.events.push_back(event);
            ring.last
        };
        // Two concurrent events may arrive here in either order.
        self.last.send_if_modified(|known| std::mem::replace(known, last.max(*known)) < last);
    }

    /// Returns the events after number `after`. If there are none yet, waits at most `wait` for one. A number that is
    /// not in use yet came from an earlier daemon, so all events are returned.
    pub(crate) async fn after(&self, after: u64, wait: Duration) -> Result<Events, ControlError> {
        let mut last = self.last.subscribe();
        if *last.borrow_and_update() == after && !wait.is_zero() {
            let waits = self.waiters.try_acquire().map_err(|_| ControlError::TooManyWaiters { waiting: WAITERS })?;
            let mut ended = self.ended.subscribe();
            // A timeout or the daemon's end is no error: the answer is then empty.
            let _ = timeout(wait, async {
                tokio::select! {
                    _ = last.changed() => {}
                    _ = ended.wait_for(|ended| *ended) => {}
                }
            })
            .await;
            drop(waits);
        }
        let ring = self.ring();
        let after = if after > ring.last { 0 } else { after };
        let before_kept = ring.last - ring.events.len() as u64;
        let known = after.saturating_sub(before_kept) as usize;
        Ok(Events {
            boot_id: self.boot_id.to_string(),
            events: ring.events.iter().skip(known).cloned().collect(),
            lost: before_kept.saturating_sub(after),
            last: ring.last,
        })
    }

    /// Wakes all waiting clients.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    fn ring(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// UTC in RFC 3339 format, with milliseconds.
pub(crate) fn utc(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn note(log: &EventLog, n: u64) {
        log.record("disk0", None, EventKind::PolicySet, format!("{n}"));
    }

    fn seqs(events: &Events) -> Vec<u64> {
        events.events.iter().map(|event| event.seq).collect()
    }

    #[tokio::test]
    async fn a_slow_client_learns_how_many_events_it_missed() {
        let log = EventLog::new();
        let now = Duration::ZERO;
        let none = log.after(0, now).await.unwrap();
        assert_eq!((seqs(&none), none.lost, none.last), (vec![], 0, 0));
        let other = EventLog::new().after(0, now).await.unwrap();
        assert_ne!(none.boot_id, other.boot_id, "each run has its own");
        (1..=3).for_each(|n| note(&log, n));
        let all = log.after(0, now).await.unwrap();
        assert_eq!((seqs(&all), all.lost, all.last), (vec![1, 2, 3], 0, 3));
        assert_eq!(all.events[2].message, "3");
        assert_eq!(seqs(&log.after(2, now).await.unwrap()), [3]);
        assert_eq!(seqs(&log.after(3, now).await.unwrap()), [0; 0]);
        assert_eq!(seqs(&log.after(4, now).await.unwrap()), [1, 2, 3], "another daemon's number");
        (4..=2000).for_each(|n| note(&log, n));
        let rest = log.after(3, now).await.unwrap();
        assert_eq!((rest.events.len(), rest.lost, rest.last), (EVENTS_MAX, 2000 - 1024 - 3, 2000));
        assert_eq!((rest.events[0].seq, log.ring().events.capacity() <= 2 * EVENTS_MAX), (2000 - 1023, true));
        assert_eq!(seqs(&log.after(1998, now).await.unwrap()), [1999, 2000]);
    }

    #[tokio::test]
    async fn waiting_ends_on_an_event_a_timeout_or_the_end() {
        let log = Arc::new(EventLog::new());
        let wait = Duration::from_secs(4);
        let waiting = |after| {
            tokio::spawn({
                let log = Arc::clone(&log);
                async move { log.after(after, wait).await }
            })
        };
        let first = waiting(0);
        tokio::task::yield_now().await;
        note(&log, 1);
        assert_eq!(seqs(&first.await.unwrap().unwrap()), [1]);
        let brief = Duration::from_millis(1);
        assert_eq!(seqs(&log.after(1, brief).await.unwrap()), [0; 0], "in vain");
        let waiters: Vec<_> = (0..WAITERS).map(|_| waiting(1)).collect();
        tokio::task::yield_now().await;
        assert_eq!(log.after(1, wait).await, Err(ControlError::TooManyWaiters { waiting: WAITERS }));
        assert_eq!(seqs(&log.after(0, wait).await.unwrap()), [1], "a client that need not wait is answered");
        log.end();
        for waiter in waiters {
            assert_eq!(seqs(&waiter.await.unwrap().unwrap()), [0; 0]);
        }
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(utc(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_250_000_007)), "2026-11-21T08:33:20.007Z");
    }
}
