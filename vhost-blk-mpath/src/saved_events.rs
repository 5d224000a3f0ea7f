//! Decides: the next daemon has these events, and its numbers go on (`restore`).
//!
//! Events in the state file next to the API socket.
//!
//! The file is written some seconds after an event, and at the end. So a killed daemon may have given numbers that the file does not
//! have. The next daemon then has another boot id, by which clients know that these numbers are given again.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mpath_api::types::{Event, EventKind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::disk_files::lock::{Lock, LockError};
use crate::disk_files::state_file::StateFile;
use crate::disk_files::with_suffix;
use crate::events::EventLog;

/// The section of the state file.
const SECTION: &str = "events";
/// The file is written once in this time at most.
const INTERVAL: Duration = Duration::from_secs(5);
/// The most bytes of saved events without the blanks of the file. A state file has 1 MiB at most.
const BYTES_MAX: usize = 512 << 10;
/// No daemon counts that far, so such a number is damage.
const NUMBER_MAX: u64 = u64::MAX / 2;

/// The section of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SavedEvents {
    boot_id: String,
    /// The number of the last event.
    last: u64,
    /// The daemon has ended in order, so it gave no later number.
    has_ended: bool,
    /// The last events. Another version may have written some that this one cannot read.
    events: Vec<Value>,
}

impl SavedEvents {
    fn of(log: &EventLog, has_ended: bool) -> Self {
        let (last, kept) = log.kept();
        let (mut events, mut bytes) = (Vec::new(), 0);
        for event in kept.iter().rev() {
            let value = serde_json::to_value(event).unwrap_or_default();
            bytes += value.to_string().len();
            if bytes > BYTES_MAX {
                break;
            }
            events.push(value);
        }
        events.reverse();
        Self { boot_id: log.boot_id().into(), last, has_ended, events }
    }

    /// The events that this version can read, in the order of their numbers.
    fn events(&self) -> Vec<Event> {
        let mut events: Vec<Event> = Vec::new();
        for event in self.events.iter().filter_map(|value| Event::deserialize(value).ok()) {
            if event.seq <= self.last && events.last().is_none_or(|before| before.seq < event.seq) {
                events.push(event);
            }
        }
        events
    }
}

/// The state file of the API, for one daemon: another one that ends saves its last events first.
pub(crate) struct EventFile {
    file: Arc<StateFile>,
    _lock: Lock,
}

/// The events of the daemons before, and the file for those of this one. `None` if the file cannot be used within this time: the events
/// begin anew, and are not saved.
pub(crate) async fn restore(api: &Path, at_most: Duration) -> (EventLog, Option<EventFile>) {
    let path = with_suffix(api, ".state.lock");
    let api = api.to_owned();
    let restored = spawn_blocking(move || {
        let lock = Lock::wait_for(path, (at_most / 2).into())
            .inspect_err(|error| tracing::warn!(%error, "events are not saved"))?;
        let file = Arc::new(StateFile::open(&api));
        Ok::<_, LockError>((read(&file), EventFile { file, _lock: lock }))
    });
    match timeout(at_most, restored).await {
        Ok(Ok(Ok((log, file)))) => (log, Some(file)),
        Ok(_) => (EventLog::new(), None),
        Err(_) => {
            tracing::warn!("events are not saved: the directory of the API socket does not answer");
            (EventLog::new(), None)
        }
    }
}

/// The events in the file. Their numbers go on. The boot id stays, unless numbers may have been given that the file does not have.
fn read(file: &StateFile) -> EventLog {
    let saved = file
        .get(SECTION)
        .filter(|saved: &SavedEvents| saved.last <= NUMBER_MAX && Uuid::parse_str(&saved.boot_id).is_ok());
    let Some(saved) = saved else { return EventLog::new() };
    let events = saved.events();
    let mut log = EventLog::after_others(saved.last, events);
    if saved.has_ended {
        // A daemon that is killed from now on may have given numbers that the file does not have.
        match write(file, &SavedEvents { has_ended: false, ..saved.clone() }) {
            Ok(()) => log.go_on_as(saved.boot_id),
            Err(error) => report(file, &error),
        }
    }
    log
}

/// Records that another daemon has recorded the events before this one.
pub(crate) fn record_restart(log: &EventLog, version: &str) {
    if log.last() > 0 {
        let message = format!("the daemon has started again: process {}, version {version}", std::process::id());
        log.record_of_daemon(EventKind::Restarted, message);
    }
}

/// Saves events until the end, and then the last ones.
pub(crate) async fn keep_saved(log: Arc<EventLog>, file: Option<EventFile>, mut ends: oneshot::Receiver<()>) {
    let Some(EventFile { file, _lock }) = file else { return };
    let (mut saved, mut has_failed, mut has_ended) = (log.restored(), false, false);
    while !has_ended {
        let due = async {
            log.happened_after(saved).await;
            sleep(INTERVAL).await;
        };
        has_ended = tokio::select! {
            // A dropped sender is the end too.
            _ = &mut ends => true,
            () = due => false,
        };
        let last = log.last();
        if last == 0 {
            continue;
        }
        let written = spawn_blocking({
            let (log, file) = (Arc::clone(&log), Arc::clone(&file));
            move || write(&file, &SavedEvents::of(&log, has_ended))
        });
        match written.await.unwrap_or_else(|failed| Err(io::Error::other(failed))) {
            Ok(()) => (saved, has_failed) = (last, false),
            Err(error) if !std::mem::replace(&mut has_failed, true) => report(&file, &error),
            Err(_) => {}
        }
    }
}

fn write(file: &StateFile, saved: &SavedEvents) -> io::Result<()> {
    file.set_now(SECTION, serde_json::to_value(saved)?)
}

fn report(file: &StateFile, error: &io::Error) {
    tracing::warn!(
        file = %file.path().display(),
        %error,
        "cannot save events; the next daemon will lack some; let the daemon write to the directory of its API socket"
    );
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use mpath_api::types::Events;
    use serde_json::json;

    use super::*;

    const BOOT_ID: &str = "6f2a1d0e-3c55-4f8e-9a41-0d8f5b6c7e21";

    fn record(log: &EventLog, message: &str) {
        log.record("disk0", None, EventKind::PolicySet, message.into());
    }

    fn messages(events: &Events) -> Vec<(u64, &str)> {
        events.events.iter().map(|event| (event.seq, &*event.message)).collect()
    }

    /// A daemon that records this event and ends, in order or killed.
    fn run(api: &Path, message: &str, has_ended: bool) -> Events {
        let file = StateFile::open(api);
        let log = read(&file);
        record(&log, message);
        write(&file, &SavedEvents::of(&log, has_ended)).unwrap();
        log.after(0)
    }

    #[test]
    fn events_and_numbers_go_on_after_an_end_in_order() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let first = run(&api, "one", true);
        let second = run(&api, "two", true);
        assert_eq!(messages(&second), [(1, "one"), (2, "two")]);
        assert_eq!((&second.boot_id, second.last, second.lost), (&first.boot_id, 2, 0));
        assert_eq!(second.events[0], first.events[0]);
    }

    #[test]
    fn after_a_kill_events_stay_under_another_boot_id() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let first = run(&api, "one", false);
        let second = run(&api, "two", true);
        assert_eq!(messages(&second), [(1, "one"), (2, "two")]);
        assert_ne!(second.boot_id, first.boot_id, "the first may have given number 2 as well");
        // Killed before it has saved anything.
        let third = read(&StateFile::open(&api)).after(0);
        assert_eq!(third.boot_id, second.boot_id);
        assert_ne!(read(&StateFile::open(&api)).after(0).boot_id, third.boot_id);
    }

    #[test]
    fn a_file_of_another_version_is_read_as_far_as_possible() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let known = run(&api, "one", true).events.remove(0);
        let mut later = serde_json::to_value(&known).unwrap();
        (later["seq"], later["kind"], later["more"]) = (2.into(), "quota".into(), 1.into());
        let mut unreadable = later.clone();
        (unreadable["seq"], unreadable["severity"]) = (3.into(), "fatal".into());
        let (mut beyond, mut twice) = (later.clone(), later.clone());
        (beyond["seq"], twice["seq"]) = (9.into(), 1.into());
        let events = json!([known, later, unreadable, beyond, twice, 7]);
        let file = StateFile::open(&api);
        file.set_now(SECTION, json!({"boot-id": BOOT_ID, "last": 4, "has-ended": true, "events": events, "more": 1}))
            .unwrap();
        let read = read(&StateFile::open(&api)).after(0);
        let kinds: Vec<_> = read.events.iter().map(|event| (event.seq, event.kind)).collect();
        assert_eq!(kinds, [(1, EventKind::PolicySet), (2, EventKind::Other)]);
        assert_eq!((&*read.boot_id, read.last, read.lost), (BOOT_ID, 4, 2));
    }

    #[test]
    fn a_damaged_file_begins_anew() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let last = format!(
            "{{\"version\": 1, \"events\": {{\"boot-id\": \"{BOOT_ID}\", \"last\": {}, \"has-ended\": true, \"events\": []}}}}",
            u64::MAX
        );
        let boot_id = last.replace(&u64::MAX.to_string(), "1").replace(BOOT_ID, "a\\nb");
        for text in ["", "{", "{\"version\": 1, \"events\": 1}", &last, &boot_id] {
            fs::write(StateFile::open(&api).path(), text).unwrap();
            let events = run(&api, "one", true);
            assert_eq!(messages(&events), [(1, "one")], "{text}");
        }
    }

    #[test]
    fn saved_events_fit_the_file() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let (file, log) = (StateFile::open(&api), EventLog::new());
        (0..1000).for_each(|n| log.record(&format!("disk{n}"), None, EventKind::PolicySet, "\u{1b}".repeat(4000)));
        write(&file, &SavedEvents::of(&log, true)).unwrap();
        let read = read(&file).after(0);
        assert!((1..100).contains(&read.events.len()) && read.last == 1000, "{}", read.events.len());
        assert_eq!(read.lost, 1000 - read.events.len() as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_saved_some_seconds_after_they_happen_and_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let api = place.path().join("api.sock");
        let (log, file) = (Arc::new(EventLog::new()), Arc::new(StateFile::open(&api)));
        let lock = Lock::wait_for(place.path().join("lock"), INTERVAL.into()).unwrap();
        let saved = EventFile { file: Arc::clone(&file), _lock: lock };
        let (end, ends) = oneshot::channel();
        let keeping = tokio::spawn(keep_saved(Arc::clone(&log), Some(saved), ends));
        let last = |has_ended| move |of: &SavedEvents| (of.last, of.has_ended) == (1, has_ended);
        record(&log, "one");
        sleep(INTERVAL * 9 / 10).await;
        assert_eq!(file.get::<SavedEvents>(SECTION), None);
        while !file.get::<SavedEvents>(SECTION).is_some_and(|of| last(false)(&of)) {
            sleep(Duration::from_millis(1)).await;
        }
        end.send(()).unwrap();
        keeping.await.unwrap();
        assert!(last(true)(&file.get(SECTION).unwrap()));
    }
}
