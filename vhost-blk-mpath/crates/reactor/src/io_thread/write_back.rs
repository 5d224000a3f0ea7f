//! Write-back at the end of the daemon: before the connections are closed, controllers get a flush for writes that no
//! flush has covered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, PathId, Tag};
use nvme_tcp::host::IoCommand;

use super::IoThread;
use crate::ring::Ring;

/// Time limit of the write-back. Writes that are not flushed by then count as lost.
const WRITE_BACK_MAX: Duration = Duration::from_secs(5);

/// The flush commands of the write-back.
#[derive(Debug, Default)]
pub(super) struct WriteBacks {
    /// Its deadline. `None` before it starts.
    until: Option<Instant>,
    /// Flushes that wait for room in a queue pair.
    waiting: Vec<(PathId, DiskId)>,
    open: BTreeSet<(PathId, DiskId)>,
}

impl WriteBacks {
    pub(super) fn answered(&mut self, path: PathId, disk: DiskId) {
        self.open.remove(&(path, disk));
    }

    pub(super) fn path_lost(&mut self, path: PathId) {
        self.open.retain(|(of, _)| *of != path);
        self.waiting.retain(|(of, _)| *of != path);
    }

    /// The deadline, while flushes are unanswered.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|_| !(self.open.is_empty() && self.waiting.is_empty()))
    }
}

impl<R: Ring> IoThread<R> {
    /// Starts or continues the write-back, once no virtqueue is left. Returns whether it is over.
    pub(super) fn write_back(&mut self, now: Instant) -> bool {
        if self.write_backs.until.is_none() {
            self.write_backs.until = Some(now + WRITE_BACK_MAX);
            for &path in self.connections.keys() {
                let disks = self.group.begin_write_back(path);
                self.write_backs.waiting.extend(disks.into_iter().map(|disk| (path, disk)));
            }
        }
        let WriteBacks { waiting, open, .. } = &mut self.write_backs;
        let before = open.len();
        waiting.retain(|&(path, disk)| {
            let connection = self.connections.get_mut(&path).filter(|connection| !connection.is_closing());
            let Some(connection) = connection else { return false };
            let is_sent = connection.submit(Tag::of_write_back(disk), disk, IoCommand::Flush).is_ok();
            if is_sent {
                open.insert((path, disk));
            }
            !is_sent
        });
        if open.len() > before {
            self.transmit(now);
        }
        let is_over = self.write_backs.until().is_none_or(|until| until <= now);
        if is_over {
            // The deadline no longer matters.
            self.write_backs.open.clear();
            self.write_backs.waiting.clear();
        }
        is_over
    }
}
