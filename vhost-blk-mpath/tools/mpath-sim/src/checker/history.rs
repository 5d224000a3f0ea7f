//! The history of each block, for the report of a violation.

use std::ops::Range;

use monotonic::Duration;

use crate::blocks::Block;

/// Most lines of history in a report.
const HISTORY_MAX: usize = 100;

/// A number that grows with everything that happens. A smaller moment was earlier.
pub(crate) type Moment = u64;

/// Something that happened: when, to which request, on which blocks. It concerns all disks if it names none.
#[derive(Debug)]
struct Entry {
    at: Duration,
    id: u64,
    disk: Option<usize>,
    range: Range<u64>,
    text: String,
}

/// The events of a run, if they are recorded.
#[derive(Debug)]
pub(crate) struct History(Option<Vec<Entry>>);

impl History {
    pub(super) fn new(is_recorded: bool) -> Self {
        Self(is_recorded.then(Vec::new))
    }

    /// Something happened to a request of a disk, or to these blocks.
    pub(super) fn note(
        &mut self,
        at: Duration,
        id: u64,
        disk: usize,
        range: Range<u64>,
        text: impl FnOnce() -> String,
    ) {
        if let Some(entries) = &mut self.0 {
            entries.push(Entry { at, id, disk: Some(disk), range, text: text() });
        }
    }

    /// Something happened that concerns all disks.
    pub(super) fn note_all(&mut self, at: Duration, text: impl FnOnce() -> String) {
        if let Some(entries) = &mut self.0 {
            entries.push(Entry { at, id: 0, disk: None, range: 0..0, text: text() });
        }
    }

    /// The last lines about a block, or about everything.
    pub(crate) fn of(&self, block: Option<Block>) -> Vec<String> {
        let concerns = |entry: &&Entry| {
            let on = |block: Block| {
                let all = entry.range.is_empty() || entry.range.contains(&block.lba);
                entry.disk.is_none_or(|disk| disk == block.disk && all)
            };
            block.is_none_or(on)
        };
        let line = |Entry { at, id, disk, range, text }: &Entry| {
            let disk = disk.map_or(String::new(), |disk| format!("disk {disk} "));
            format!("{:>13.6} #{id:<5} {disk}{range:?} {text}", at.as_secs_f64())
        };
        let lines: Vec<String> = self.0.iter().flatten().filter(concerns).map(line).collect();
        lines[lines.len().saturating_sub(HISTORY_MAX)..].to_vec()
    }
}
