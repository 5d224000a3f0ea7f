//! `mpathctl events`

use std::thread;
use std::time::Duration;

use mpath_api::client::{Client, ClientError, EventStream, Position};
use mpath_api::types::{ErrorCode, Event, Events};

use crate::Failure;
use crate::output::{Column, Output, note, or_dash, table};

/// The first pause before a daemon that does not answer is asked again. Each further pause is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Keep printing events as they happen, until interrupted, also after a restart of the daemon; -o json prints one event per line
    #[arg(short, long)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, allow_negative_numbers = true, value_parser = number)]
    since: u64,
    /// Only events of this disk, and of the daemon
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

/// The number of an event, or 0 for all.
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "give the number of an event from column SEQ, or 0 for all".into())
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        if let Some(disk) = &self.disk {
            // Reports an unknown disk.
            client.disk(disk)?;
        }
        if !self.follow {
            let batch = self.of_disk(client.events(self.since)?);
            return Ok(output.print(&batch.events, |events| table(COLUMNS, events.iter().map(row)))?);
        }
        let (mut follower, mut position) = (Follower::new(client), Position::After(self.since));
        loop {
            let batch = self.of_disk(follower.next(&position)?);
            if batch.lost > 0 {
                note(format_args!("the daemon has dropped {} older events", batch.lost));
            }
            for event in &batch.events {
                output.print_one(event, |event| row(event).join("  ") + "\n")?;
            }
            position = Position::Seen { boot_id: batch.boot_id, last: batch.last };
        }
    }

    fn of_disk(&self, mut batch: Events) -> Events {
        batch
            .events
            .retain(|event| self.disk.as_ref().is_none_or(|disk| event.disk.as_ref().is_none_or(|of| of == disk)));
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
    /// started since then, all of its events are returned: their numbers count from 1.
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
                            note("the daemon has started again; its events count from 1");
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
        or_dash(event.by),
        format!("{}{repeated}", event.message),
    ]
}

#[cfg(test)]
mod tests {
    use mpath_api::types::EventKind;

    use super::*;

    #[test]
    fn events_of_the_daemon_are_shown_with_those_of_any_disk() {
        let event = |disk: Option<&str>| {
            let (kind, disk, time, message) = (EventKind::Upgraded, disk.map(Into::into), String::new(), String::new());
            let severity = kind.severity();
            Event { seq: 1, time, kind, severity, disk, path: None, message, by: None, repeated: 0 }
        };
        let events = vec![event(Some("disk0")), event(None), event(Some("disk1"))];
        let all = Events { boot_id: String::new(), events, lost: 0, last: 3 };
        let command = Command { follow: false, since: 0, disk: Some("disk0".into()) };
        let shown: Vec<_> = command.of_disk(all).events.iter().map(|event| row(event)[2].clone()).collect();
        assert_eq!(shown, ["disk0", "-"]);
    }
}
