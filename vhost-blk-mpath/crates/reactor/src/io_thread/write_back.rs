//! At the end of the daemon: controllers are told to write back what no flush has covered, before their connections are closed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpath_core::{DiskId, PathId, Tag};
use nvme_tcp::host::IoCommand;

use super::IoThread;
use crate::ring::Ring;

/// How long that may take. What is not written back by then counts as lost.
const WRITE_BACK_MAX: Duration = Duration::from_secs(5);

/// The flush commands that are not answered.
#[derive(Debug, Default)]
pub(super) struct WriteBacks {
    /// `None` before the first is sent.
    until: Option<Instant>,
    /// Those that the queue pair has no room for yet.
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

    /// Until when they are waited for, if they are.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|_| !(self.open.is_empty() && self.waiting.is_empty()))
    }
}

impl<R: Ring> IoThread<R> {
    /// Begins it, when no virtqueue is left, or goes on: whether it is over.
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
            // There is no more time to wait for.
            self.write_backs.open.clear();
            self.write_backs.waiting.clear();
        }
        is_over
    }
}
