//! Decides: events that repeat are dropped, or not logged (`add`).
//! Decides: events are kept, and a client is told how many it missed (`after`).
//!
//! Numbered events, kept for the API and written to the log.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use monotonic::{Duration, Instant};
use mpath_api::types::{Event, EventKind, EventPath, Events, Severity};
use mpath_api_server::caller;
use tokio::sync::watch;
use uuid::Uuid;

use crate::host_stalls::HostStalls;

/// The number of events kept. A client that asks too seldom is told how many it has missed.
const EVENTS_MAX: usize = 1024;
/// The number of events kept of one kind, disk and path. Anything that repeats without end, such as a front-end that
/// connects and disconnects, must not push out everything else.
const ALIKE_MAX: usize = 32;
/// The number of events of one kind and disk that are kept of front-ends within [`LOG_PERIOD`]. QEMU may connect once a second.
const FRONT_ENDS_MAX: usize = 4;
/// If as many events of one kind, disk and path as are kept happened within this time, one of them per this time is logged.
const LOG_PERIOD: Duration = Duration::from_secs(60);
/// The most bytes of a message. A longer one is cut: an error may quote a value of any length.
const MESSAGE_BYTES_MAX: usize = 4096;
/// The target of log lines of events, which have a limit of their own.
pub(crate) const LOG_TARGET: &str = module_path!();

/// The events of the daemon.
pub(crate) struct EventLog {
    /// Tells numbers from others that may be given again: see [`saved_events`](crate::saved_events).
    boot_id: String,
    ring: Mutex<EventRing>,
    /// The number of the last event. A change wakes waiting clients.
    last: watch::Sender<u64>,
    /// The number of the last event of other daemons.
    restored: u64,
    /// True once the daemon ends. No client waits after that.
    ended: watch::Sender<bool>,
    /// Times in which this host did not run the daemon. Events tell of them.
    pub(crate) stalls: HostStalls,
}

#[derive(Default)]
struct EventRing {
    events: VecDeque<Kept>,
    last: u64,
}

struct Kept {
    event: Event,
    at: Instant,
    /// When an event of its kind, disk and path was logged last.
    logged_at: Instant,
    /// The number of such events since then.
    unlogged: u64,
}

impl Kept {
    fn is_like(&self, other: &Event) -> bool {
        // Another port may have the index of an earlier one.
        let address = |event: &Event| event.path.as_ref().map(|path| path.address.clone());
        self.event.kind == other.kind && self.event.disk == other.disk && address(&self.event) == address(other)
    }
}

impl EventRing {
    /// Adds an event. If the event is to be logged, returns how many events like it were left out of the log since the
    /// last one that was logged.
    fn add(&mut self, event: Event, now: Instant) -> Option<u64> {
        let alike: Vec<_> = (0..self.events.len()).filter(|at| self.events[*at].is_like(&event)).collect();
        let is_of_front_end = matches!(event.kind, EventKind::FrontEndConnected | EventKind::FrontEndDisconnected);
        let recent_max = if is_of_front_end { FRONT_ENDS_MAX } else { ALIKE_MAX };
        let recent = alike.len().checked_sub(recent_max).map(|first| alike[first]);
        let is_frequent = recent.is_some_and(|first| now - self.events[first].at < LOG_PERIOD);
        let mut new = Kept { event, at: now, logged_at: now, unlogged: 0 };
        let mut logs = Some(0);
        if let Some(&last) = alike.last() {
            let last = &self.events[last];
            if is_frequent && now - last.logged_at < LOG_PERIOD {
                (new.logged_at, new.unlogged, logs) = (last.logged_at, last.unlogged + 1, None);
            } else {
                logs = Some(last.unlogged);
            }
        }
        let (oldest, is_full) = (recent.filter(|_| is_frequent), alike.len() >= ALIKE_MAX);
        if let Some(oldest) = oldest.or_else(|| is_full.then(|| alike[0])) {
            let next = alike[alike.partition_point(|at| *at <= oldest)];
            let dropped = self.events[oldest].event.repeated.saturating_add(1);
            let next = &mut self.events[next].event.repeated;
            *next = next.saturating_add(dropped);
            self.events.remove(oldest);
        } else if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(new);
        logs
    }
}

impl EventLog {
    pub(crate) fn new() -> Self {
        Self::after_others(0, Vec::new())
    }

    /// A log that begins with the events of other daemons, up to number `last`.
    pub(crate) fn after_others(last: u64, events: Vec<Event>) -> Self {
        let now = Instant::now();
        // They are no reason to leave the next ones out of the log.
        let at = now.checked_sub(LOG_PERIOD).unwrap_or(now);
        let keep = |event| Kept { event, at, logged_at: at, unlogged: 0 };
        let first = events.len().saturating_sub(EVENTS_MAX);
        let events = events.into_iter().skip(first).map(keep).collect();
        Self {
            boot_id: Uuid::new_v4().to_string(),
            ring: Mutex::new(EventRing { events, last }),
            last: watch::Sender::new(last),
            restored: last,
            ended: watch::Sender::new(false),
            stalls: HostStalls::new(),
        }
    }

    /// Takes the boot id of the daemon before: this one gives none of its numbers again.
    pub(crate) fn go_on_as(&mut self, boot_id: String) {
        self.boot_id = boot_id;
    }

    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// The number of the last event of other daemons.
    pub(crate) fn restored(&self) -> u64 {
        self.restored
    }

    /// The number of the last event, and the events that are kept.
    pub(crate) fn kept(&self) -> (u64, Vec<Event>) {
        let ring = self.ring();
        (ring.last, ring.events.iter().map(|kept| kept.event.clone()).collect())
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// Waits for an event after number `after`.
    pub(crate) async fn happened_after(&self, after: u64) {
        let _ = self.last.subscribe().wait_for(|last| *last > after).await;
    }

    /// Records an event of a disk and logs it.
    pub(crate) fn record(&self, disk: &str, path: Option<EventPath>, kind: EventKind, message: String) {
        self.add(Some(disk), path, kind, message);
    }

    /// Records an event of the daemon and logs it.
    pub(crate) fn record_of_daemon(&self, kind: EventKind, message: String) {
        self.add(None, None, kind, message);
    }

    fn add(&self, disk: Option<&str>, path: Option<EventPath>, kind: EventKind, message: String) {
        let (severity, by, message) = (kind.severity(), caller(), cut(message));
        let (last, logged) = {
            let mut ring = self.ring();
            ring.last += 1;
            let (seq, time) = (ring.last, utc(SystemTime::now()));
            let event = Event { seq, time, kind, severity, disk: disk.map(Into::into), path, message, by, repeated: 0 };
            (seq, ring.add(event.clone(), Instant::now()).map(|unlogged| (event, unlogged)))
        };
        if let Some((Event { path, message, by, .. }, unlogged)) = logged {
            let path = path.as_ref().map(|path| tracing::field::display(&path.address));
            // As a text, so that the log puts it in quotes.
            let (by, unlogged) = (by.map(|by| by.to_string()), (unlogged > 0).then_some(unlogged));
            let by = by.as_deref();
            match severity {
                Severity::Error => tracing::error!(disk, path, by, unlogged, "{message}"),
                Severity::Warning => tracing::warn!(disk, path, by, unlogged, "{message}"),
                Severity::Info => tracing::info!(disk, path, by, unlogged, "{message}"),
            }
        }
        // Two concurrent events may arrive here in either order.
        self.last.send_if_modified(|known| std::mem::replace(known, last.max(*known)) < last);
    }

    /// The events after number `after`. A number that is not in use yet came from an earlier daemon, so all events are
    /// returned.
    pub(crate) fn after(&self, after: u64) -> Events {
        let ring = self.ring();
        let after = if after > ring.last { 0 } else { after };
        let known = ring.events.partition_point(|kept| kept.event.seq <= after);
        let events: Vec<_> = ring.events.iter().skip(known).map(|kept| kept.event.clone()).collect();
        let lost = ring.last - after - events.len() as u64;
        Events { boot_id: self.boot_id.clone(), events, lost, last: ring.last }
    }

    /// Waits for an event after number `after`. `false` once the daemon ends.
    pub(crate) async fn more(&self, after: u64) -> bool {
        let (mut last, mut ended) = (self.last.subscribe(), self.ended.subscribe());
        tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => false,
            _ = last.wait_for(|last| *last > after) => true,
        }
    }

    /// Ends the waits of all clients.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    fn ring(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// At most the first [`MESSAGE_BYTES_MAX`] bytes of a message. A message that is cut ends with `...`.
fn cut(mut message: String) -> String {
    const MARK: &str = "...";
    if message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX - MARK.len()).rev().find(|at| message.is_char_boundary(*at));
        message.truncate(end.unwrap_or(0));
        message.push_str(MARK);
    }
    message
}

/// UTC in RFC 3339 format, with milliseconds.
pub(crate) fn utc(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mpath_api::types::Caller;
    use mpath_api_server::{on_behalf_of, on_own_behalf};

    use super::*;

    fn note(log: &EventLog, n: u64) {
        log.record(&format!("disk{n}"), None, EventKind::PolicySet, format!("{n}"));
    }

    fn of_kind(kind: EventKind) -> Event {
        let (disk, time, message) = (Some("disk0".into()), String::new(), String::new());
        Event { seq: 1, time, kind, severity: kind.severity(), disk, path: None, message, by: None, repeated: 0 }
    }

    fn seqs(events: &Events) -> Vec<u64> {
        events.events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn a_slow_client_learns_how_many_events_it_missed() {
        let log = EventLog::new();
        let none = log.after(0);
        assert_eq!((seqs(&none), none.lost, none.last), (vec![], 0, 0));
        let other = EventLog::new().after(0);
        assert_ne!(none.boot_id, other.boot_id, "each run has its own");
        (1..=3).for_each(|n| note(&log, n));
        let all = log.after(0);
        assert_eq!((seqs(&all), all.lost, all.last), (vec![1, 2, 3], 0, 3));
        assert_eq!(all.events[2].message, "3");
        assert_eq!(seqs(&log.after(2)), [3]);
        assert_eq!(seqs(&log.after(3)), [0; 0]);
        assert_eq!(seqs(&log.after(4)), [1, 2, 3], "another daemon's number");
        (4..=2000).for_each(|n| note(&log, n));
        let rest = log.after(3);
        assert_eq!((rest.events.len(), rest.lost, rest.last), (EVENTS_MAX, 2000 - 1024 - 3, 2000));
        assert_eq!((rest.events[0].seq, log.ring().events.capacity() <= 2 * EVENTS_MAX), (2000 - 1023, true));
        assert_eq!(seqs(&log.after(1998)), [1999, 2000]);
    }

    #[test]
    fn a_long_message_is_cut() {
        let log = EventLog::new();
        for message in ["x".repeat(MESSAGE_BYTES_MAX), "x".repeat(MESSAGE_BYTES_MAX + 1), "\u{e4}".repeat(1 << 20)] {
            log.record_of_daemon(EventKind::ConfigNotReloaded, message);
        }
        let kept: Vec<_> = log.after(0).events.into_iter().map(|event| event.message).collect();
        assert_eq!(kept[0], "x".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(kept[1], "x".repeat(MESSAGE_BYTES_MAX - 3) + "...");
        assert_eq!(kept[2], "\u{e4}".repeat((MESSAGE_BYTES_MAX - 3) / 2) + "...");
    }

    #[test]
    fn an_event_that_repeats_leaves_the_others_in_place() {
        let log = EventLog::new();
        note(&log, 0);
        for _ in 0..5000 {
            log.record("disk0", None, EventKind::PathLive, "live".into());
            log.record("disk0", None, EventKind::PathLost, "lost".into());
        }
        log.record("disk1", None, EventKind::PathLive, "live".into());
        let all = log.after(0);
        let shown: Vec<_> = all.events.iter().map(|of| (of.disk.as_deref().unwrap(), of.kind, of.repeated)).collect();
        let (live, lost) = (EventKind::PathLive, EventKind::PathLost);
        let dropped = 5000 - ALIKE_MAX as u64;
        let begin = [
            ("disk0", EventKind::PolicySet, 0),
            ("disk0", live, dropped),
            ("disk0", lost, dropped),
            ("disk0", live, 0),
        ];
        assert_eq!((&shown[..4], shown.last()), (&begin[..], Some(&("disk1", live, 0))));
        assert_eq!((shown.len(), all.lost, all.last), (2 + 2 * ALIKE_MAX, 2 * dropped, 10_002));
        let late = log.after(9_000);
        assert_eq!((late.events.len(), late.lost), (1 + 2 * ALIKE_MAX, 1002 - 1 - 2 * ALIKE_MAX as u64));
    }

    #[test]
    fn front_ends_that_come_and_leave_each_second_are_held_back() {
        let (mut ring, start) = (EventRing::default(), Instant::now());
        let kinds = [EventKind::FrontEndConnected, EventKind::FrontEndDisconnected];
        let mut logged = 0;
        for second in 0..22 {
            for kind in kinds {
                logged += u32::from(ring.add(of_kind(kind), start + Duration::from_secs(second)).is_some());
            }
        }
        let repeated: Vec<_> = ring.events.iter().map(|kept| kept.event.repeated).collect();
        assert_eq!((logged, repeated), (2 * FRONT_ENDS_MAX as u32, vec![18, 18, 0, 0, 0, 0, 0, 0]));
        // A guest that is restarted each day.
        for day in 1..=10 {
            let at = start + Duration::from_secs(86_400 * day);
            assert!(kinds.into_iter().all(|kind| ring.add(of_kind(kind), at).is_some()));
        }
        assert_eq!(ring.events.len(), 8 + 20);
    }

    #[test]
    fn frequent_events_are_logged_once_a_minute() {
        let (mut ring, start) = (EventRing::default(), Instant::now());
        let mut add = |seconds: f64| ring.add(of_kind(EventKind::PathLive), start + Duration::from_secs_f64(seconds));
        // One a second: the first, and then one a minute after the last that was logged.
        let logged: Vec<_> = (0..200).filter_map(|n| Some((n, add(n.into())?))).skip(ALIKE_MAX - 1).collect();
        assert_eq!(logged, [(31, 0), (91, 59), (151, 59)]);
        // When they become rare, each is logged.
        let logged: Vec<_> = (0..40).map(|n| add(1000.0 + 10.0 * f64::from(n))).collect();
        assert_eq!((logged[0], &logged[1..]), (Some(48), &[Some(0); 39][..]));
    }

    #[tokio::test]
    async fn an_event_names_the_client_of_the_request() {
        let (log, by) = (EventLog::new(), Caller::new(7, Some(4711)));
        on_behalf_of(Some(by.clone()), async {
            note(&log, 1);
            on_own_behalf(|| note(&log, 2));
        })
        .await;
        note(&log, 2);
        let callers: Vec<_> = log.after(0).events.iter().map(|of| of.by.clone()).collect();
        assert_eq!(callers, [Some(by), None, None]);
    }

    #[tokio::test]
    async fn waiting_ends_on_an_event_or_the_end() {
        let log = Arc::new(EventLog::new());
        let waiting = |after| {
            tokio::spawn({
                let log = Arc::clone(&log);
                async move { log.more(after).await }
            })
        };
        let first = waiting(0);
        tokio::task::yield_now().await;
        note(&log, 1);
        assert!(first.await.unwrap() && log.more(0).await);
        let second = waiting(1);
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        log.end();
        assert!(!second.await.unwrap() && !log.more(0).await);
    }

    #[test]
    fn the_first_events_of_a_daemon_are_logged_whatever_others_have_kept() {
        let mut log = EventLog::new();
        for seconds in 0..2 * ALIKE_MAX as u64 {
            log.record("disk0", None, EventKind::FrontEndConnected, seconds.to_string());
        }
        let (last, events) = log.kept();
        log = EventLog::after_others(last, events.clone());
        assert_eq!((log.kept(), log.restored()), ((last, events.clone()), last));
        let event = events.last().unwrap().clone();
        assert_eq!(log.ring().add(event, Instant::now()), Some(0));
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(
            utc(SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_250_000_007).into()),
            "2026-11-21T08:33:20.007Z"
        );
    }
}
