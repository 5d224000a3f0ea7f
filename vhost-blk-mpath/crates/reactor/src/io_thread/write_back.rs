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
    open: BTreeSet<(PathId, DiskId)>,
}

impl WriteBacks {
    pub(super) fn answered(&mut self, path: PathId, disk: DiskId) {
        self.open.remove(&(path, disk));
    }

    pub(super) fn path_lost(&mut self, path: PathId) {
        self.open.retain(|(of, _)| *of != path);
    }

    /// Until when they are waited for, if they are.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|_| !self.open.is_empty())
    }
}

impl<R: Ring> IoThread<R> {
    /// Begins it, when no virtqueue is left, or goes on: whether it is over.
    pub(super) fn write_back(&mut self, now: Instant) -> bool {
        if self.write_backs.until.is_none() {
            self.write_backs.until = Some(now + WRITE_BACK_MAX);
            for (&path, connection) in self.connections.iter_mut().filter(|(_, connection)| !connection.is_closing()) {
                for disk in self.group.begin_write_back(path) {
                    if connection.submit(Tag::of_write_back(disk), disk, IoCommand::Flush).is_ok() {
                        self.write_backs.open.insert((path, disk));
                    }
                }
            }
            self.transmit(now);
        }
        let is_over = self.write_backs.until().is_none_or(|until| until <= now);
        if is_over {
            // There is no more time to wait for.
            self.write_backs.open.clear();
        }
        is_over
    }
}
