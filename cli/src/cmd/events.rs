//! `mpathctl events`

use mpath_api::client::Client;
use mpath_api::types::{Event, Events};

use crate::Failure;
use crate::output::{Column, Output, or_dash, table};

/// How long the daemon lets a client wait; it is asked again after that.
const WAIT_S: u64 = 4;

#[derive(Debug, clap::Args)]
pub(crate) struct Command {
    /// Go on with what happens from now on, until interrupted; with -o json one event a line
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
    text.parse().map_err(|_| "give the number of an event, as SEQ shows it, or 0 for all".into())
}

impl Command {
    pub(crate) fn run(&self, client: &Client, output: &mut Output) -> Result<(), Failure> {
        if self.disk.is_some() {
            // An unknown one is an error.
            client.weights(self.disk.as_deref())?;
        }
        let mut news = self.of_disk(client.events(self.since, 0)?);
        if !self.follow {
            return Ok(output.print(&news.events, |events| table(COLUMNS, events.iter().map(row)))?);
        }
        loop {
            if news.lost > 0 && (news.last != 0) {
                eprintln!("mpathctl: {} older events are not kept any more", news.lost);
            }
            for event in &news.events {
                output.print_one(event, |event| row(event).join("  ") + "\n")?;
            }
            news = self.of_disk(client.events(news.last, WAIT_S)?);
        }
    }

    fn of_disk(&self, mut news: Events) -> Events {
        news.events.retain(|event| self.disk.as_ref().is_none_or(|disk| *disk == event.disk));
        news
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
