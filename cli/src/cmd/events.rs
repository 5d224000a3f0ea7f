//! `mpathctl events`

use std::thread;
use std::time::{Duration, SystemTime};

use mpath_api::client::{Client, ClientError, EventStream, Position};
use mpath_api::types::{ErrorCode, Event, Events, Severity};
use mpath_config::one_of;

use crate::Failure;
use crate::output::{Column, Output, note, or_dash, table};
use crate::when::{self, NoPoint};

/// The first pause before a daemon that does not answer is asked again. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Keep printing events as they happen, until interrupted, also after a restart of the daemon; -o json prints one event per line
    #[arg(short, long)]
    follow: bool,
    /// Only events after this number from column SEQ, or from this time (UTC) on: `03:12`, `2026-11-25 03:12` or `2h` (ago)
    #[arg(long, value_name = "SEQ|TIME", default_value = "0", allow_negative_numbers = true, value_parser = since)]
    since: Since,
    /// Only events until this time (UTC): `03:12`, `2026-11-25 03:12` or `2h` (ago)
    #[arg(long, value_name = "TIME", value_parser = when::point_now, conflicts_with = "follow")]
    until: Option<SystemTime>,
    /// Only events of this disk, and of the daemon
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
    /// Only events that are at least this serious: info, warning or error
    #[arg(long, value_name = "SEVERITY", default_value = "info", value_parser = one_of::<Severity>(Severity::NAMES))]
    severity: Severity,
}

/// Where events begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// After the event of this number.
    Number(u64),
    Time(SystemTime),
}

/// A text is neither a number nor a time.
#[derive(Debug, thiserror::Error)]
#[error("{0}, or the number of an event from column SEQ")]
struct NoStart(#[from] NoPoint);

fn since(text: &str) -> Result<Since, NoStart> {
    match text.parse() {
        Ok(number) => Ok(Since::Number(number)),
        Err(_) => Ok(Since::Time(when::point_now(text)?)),
    }
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        if let Since::Time(since) = self.since {
            when::check_order(Some(since), self.until)?;
        }
        let after = match self.since {
            Since::Number(number) => number,
            Since::Time(_) => 0,
        };
        if !self.follow {
            let all = client.events(after)?;
            let is_known = |disk: &String| all.events.iter().any(|event| event.disk.as_ref() == Some(disk));
            if let Some(disk) = self.disk.as_ref().filter(|disk| !is_known(disk)) {
                // Reports an unknown disk. A removed one may have events.
                client.disk(disk)?;
            }
            let batch = self.wanted(all);
            return Ok(output.print(&batch.events, |events| table(COLUMNS, events.iter().map(row)))?);
        }
        let (mut follower, mut position) = (Follower::new(client), Position::After(after));
        loop {
            let batch = self.wanted(follower.next(&position)?);
            // At first, older events are not asked for.
            let asks_for_all = matches!(position, Position::After(0));
            if batch.lost > 0 && !asks_for_all {
                note(format_args!("the daemon has dropped {} older events", batch.lost));
            }
            for event in &batch.events {
                output.print_one(event, |event| row(event).join("  ") + "\n")?;
            }
            position = Position::Seen { boot_id: batch.boot_id, last: batch.last };
        }
    }

    fn wanted(&self, mut batch: Events) -> Events {
        let is_of_disk =
            |event: &Event| self.disk.as_ref().is_none_or(|disk| event.disk.as_ref().is_none_or(|of| of == disk));
        let from = match self.since {
            Since::Number(_) => None,
            Since::Time(from) => Some(from),
        };
        batch.events.retain(|event| {
            is_of_disk(event) && event.severity >= self.severity && when::is_within(&event.time, from, self.until)
        });
        batch
    }
}

/// Follows events from one daemon to the next.
struct Follower<'a> {
    client: &'a Client,
    /// `None` while no daemon answers.
    stream: Option<EventStream<'a>>,
    has_begun: bool,
}

impl<'a> Follower<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, stream: None, has_begun: false }
    }

    /// Returns the events after this position. Waits while no daemon answers, unless none has answered yet. If another daemon has
    /// started since then and counts anew, all of its events are returned.
    fn next(&mut self, position: &Position) -> Result<Events, ClientError> {
        let (mut pause, mut is_away) = (PAUSE_MIN, false);
        loop {
            let is_new = self.stream.is_none();
            match self.try_next(position) {
                Ok(Some(events)) => {
                    if let Position::Seen { boot_id, .. } = position
                        && is_new
                    {
                        if events.boot_id != *boot_id {
                            note("the daemon has started again; all events that it keeps follow");
                        } else if is_away {
                            note("the daemon answers again");
                        }
                    }
                    self.has_begun = true;
                    return Ok(events);
                }
                // The daemon ends, and its socket is gone soon.
                Ok(None) => {
                    self.stream = None;
                    thread::sleep(PAUSE_MIN);
                }
                Err(error) if self.has_begun && is_passing(&error) => {
                    self.stream = None;
                    if !std::mem::replace(&mut is_away, true) {
                        note(format_args!("{error}; waiting for the daemon"));
                    }
                    thread::sleep(pause);
                    pause = PAUSE_MAX.min(pause * 2);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_next(&mut self, position: &Position) -> Result<Option<Events>, ClientError> {
        if self.stream.is_none() {
            self.stream = Some(self.client.follow(position)?);
        }
        self.stream.as_mut().map_or(Ok(None), EventStream::read)
    }
}

/// Whether the daemon may answer later: it is busy, ends or starts.
fn is_passing(error: &ClientError) -> bool {
    match error {
        ClientError::Refused(refusal) => refusal.code == ErrorCode::Unavailable,
        ClientError::NotRunning { .. } | ClientError::Timeout { .. } | ClientError::Http { .. } => true,
        ClientError::Connect { .. }
        | ClientError::Denied { .. }
        | ClientError::TooLong { .. }
        | ClientError::Unreadable { .. } => false,
    }
}

const COLUMNS: [Column; 7] = [
    Column::Number("SEQ"),
    Column::Text("TIME(UTC)"),
    Column::Text("DISK"),
    Column::Text("PATH"),
    Column::Text("EVENT"),
    Column::Text("BY"),
    Column::Text("WHAT"),
];

fn row(event: &Event) -> [String; 7] {
    let repeated = if event.repeated == 0 { String::new() } else { format!(" (and {} earlier ones)", event.repeated) };
    [
        event.seq.to_string(),
        event.time.clone(),
        or_dash(event.disk.as_ref()),
        or_dash(event.path.as_ref().map(|path| &path.address)),
        event.kind.to_string(),
        or_dash(event.by.as_ref()),
        format!("{}{repeated}", event.message),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use mpath_api::types::EventKind;

    use super::*;

    const ALL: Command =
        Command { follow: false, since: Since::Number(0), until: None, disk: None, severity: Severity::Info };

    fn event(second: u32, kind: EventKind, disk: Option<&str>) -> Event {
        let (disk, time, message) = (disk.map(Into::into), format!("2026-11-25T03:12:{second:02}.500Z"), String::new());
        let severity = kind.severity();
        Event { seq: second.into(), time, kind, severity, disk, path: None, message, by: None, repeated: 0 }
    }

    fn shown(command: &Command, events: Vec<Event>) -> Vec<u64> {
        let batch = Events { boot_id: String::new(), events, lost: 0, last: 9 };
        command.wanted(batch).events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn events_of_the_daemon_are_shown_with_those_of_any_disk() {
        let of = |second, disk| event(second, EventKind::Upgraded, disk);
        let events = vec![of(1, Some("disk0")), of(2, None), of(3, Some("disk1"))];
        let command = Command { disk: Some("disk0".into()), ..ALL };
        assert_eq!(shown(&command, events), [1, 2]);
    }

    #[test]
    fn events_are_shown_by_time_and_severity() {
        let kinds = [EventKind::PathLive, EventKind::PathLost, EventKind::DiskWaiting, EventKind::PathLive];
        let events = || (1..).zip(kinds).map(|(second, kind)| event(second, kind, None)).collect();
        let at = |text| when::point(text, UNIX_EPOCH).unwrap();
        let command = Command {
            since: Since::Time(at("2026-11-25T03:12:02Z")),
            until: Some(at("2026-11-25T03:12:03.5Z")),
            ..ALL
        };
        assert_eq!(shown(&command, events()), [2, 3]);
        assert_eq!(shown(&Command { severity: Severity::Warning, ..ALL }, events()), [2, 3]);
        assert_eq!(shown(&Command { severity: Severity::Error, ..ALL }, events()), [3]);
    }

    #[test]
    fn a_start_is_a_number_or_a_time() {
        assert_eq!(since("9").unwrap(), Since::Number(9));
        assert!(matches!(since("03:12").unwrap(), Since::Time(_)));
        for text in ["-1", "1.5", "x"] {
            assert!(
                since(text).unwrap_err().to_string().ends_with("or the number of an event from column SEQ"),
                "{text}"
            );
        }
    }
}
