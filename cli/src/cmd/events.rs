//! `mpathctl events`

use mpath_api::client::Client;
use mpath_api::types::{Event, Events};

use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

/// The longest wait that the daemon allows. Then the command asks again.
const WAIT_S: u64 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Keep printing events as they happen, until interrupted; -o json prints one event per line
    #[arg(short, long)]
    follow: bool,
    /// Only events after this number
    #[arg(long, value_name = "SEQ", default_value_t = 0, allow_negative_numbers = true, value_parser = number)]
    since: u64,
    /// Only events of this disk
    #[arg(long, value_name = "DISK")]
    disk: Option<String>,
}

/// The number of an event, or 0 for all.
fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "give the number of an event from column SEQ, or 0 for all".into())
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        if self.disk.is_some() {
            // Reports an unknown disk.
            client.weights(self.disk.as_deref())?;
        }
        let mut batch = self.of_disk(client.events(self.since, 0)?);
        if !self.follow {
            return Ok(output.print(&batch.events, |events| table(COLUMNS, events.iter().map(row)))?);
        }
        loop {
            if batch.lost > 0 && batch.last != 0 {
                eprintln!("mpathctl: the daemon has dropped {} older events", batch.lost);
            }
            for event in &batch.events {
                output.print_one(event, |event| row(event).join("  ") + "\n")?;
            }
            batch = self.of_disk(client.events(batch.last, WAIT_S)?);
        }
    }

    fn of_disk(&self, mut batch: Events) -> Events {
        batch.events.retain(|event| self.disk.as_ref().is_none_or(|disk| *disk == event.disk));
        batch
    }
}

const COLUMNS: [Column; 6] = [
    Column::Number("SEQ"),
    Column::Text("TIME(UTC)"),
    Column::Text("DISK"),
    Column::Text("PATH"),
    Column::Text("EVENT"),
    Column::Text("WHAT"),
];

fn row(event: &Event) -> [String; 6] {
    [
        event.seq.to_string(),
        event.time.clone(),
        event.disk.clone(),
        or_dash(event.path.as_ref().map(|path| &path.address)),
        event.kind.to_string(),
        event.message.clone(),
    ]
}
