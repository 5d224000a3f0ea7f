//! Decides: the daemon flushes a path before it is closed, and all paths at its end.
//!
//! Flushes of the daemon itself for writes that no flush has covered. The daemon sends them before it closes a path, and at its
//! own end before it closes all connections.

use std::collections::BTreeSet;

use monotonic::{Duration, Instant};
use mpath_core::{DiskId, Group, Outcome, PathId, Tag};
use nvme_tcp::host::IoCommand;

use super::IoThread;
use crate::ring::Ring;

/// Time limit of the daemon flush. Writes that are not flushed by then count as lost.
const DAEMON_FLUSH_MAX: Duration = Duration::from_secs(5);

/// The daemon flushes of an I/O thread.
#[derive(Debug, Default)]
pub(super) struct DaemonFlushes {
    /// The deadline at the end of the daemon. `None` before that.
    until: Option<Instant>,
    /// Flushes that wait for room in a queue pair.
    waiting: Vec<(PathId, DiskId)>,
    open: BTreeSet<(PathId, DiskId)>,
    /// Flushes that had begun when the daemon began to end. They do not cover the last writes, so others follow.
    stale: BTreeSet<(PathId, DiskId)>,
}

impl DaemonFlushes {
    /// Begins to flush what the controller of a path may hold.
    pub(super) fn begin(&mut self, now: Instant, group: &mut Group, path: PathId) {
        self.waiting.extend(group.begin_daemon_flush(now, path).into_iter().map(|disk| (path, disk)));
    }

    /// Takes the answer to a flush command.
    pub(super) fn answered(&mut self, now: Instant, group: &mut Group, path: PathId, disk: DiskId, outcome: Outcome) {
        self.open.remove(&(path, disk));
        group.daemon_flushed(now, path, disk, outcome);
        if self.stale.remove(&(path, disk)) {
            self.begin(now, group, path);
        }
    }

    pub(super) fn path_lost(&mut self, path: PathId) {
        self.open.retain(|(of, _)| *of != path);
        self.stale.retain(|(of, _)| *of != path);
        self.waiting.retain(|(of, _)| *of != path);
    }

    /// The deadline at the end of the daemon, while flushes are unanswered.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until.filter(|_| !(self.open.is_empty() && self.waiting.is_empty()))
    }
}

impl<R: Ring> IoThread<R> {
    /// Sends waiting flush commands, as far as the queue pairs of their paths have room.
    pub(super) fn submit_daemon_flushes(&mut self) {
        let DaemonFlushes { waiting, open, .. } = &mut self.daemon_flushes;
        waiting.retain(|&(path, disk)| {
            let Some(connection) = self.connections.open_mut(path) else { return false };
            let is_sent = connection.submit(Tag::of_daemon_flush(disk), disk, IoCommand::Flush).is_ok();
            if is_sent {
                open.insert((path, disk));
            }
            !is_sent
        });
    }

    /// Starts or continues the daemon flush at the end of the daemon, once no virtqueue is left. Returns whether it is over.
    pub(super) fn daemon_flush(&mut self, now: Instant) -> bool {
        if self.daemon_flushes.until.is_none() {
            self.daemon_flushes.until = Some(now + DAEMON_FLUSH_MAX);
            let DaemonFlushes { open, waiting, stale, .. } = &mut self.daemon_flushes;
            stale.extend(open.iter().chain(&*waiting));
            self.connections.paths().for_each(|path| self.daemon_flushes.begin(now, &mut self.group, path));
        }
        self.submit_daemon_flushes();
        let is_over = self.daemon_flushes.until().is_none_or(|until| until <= now);
        if is_over {
            // The deadline no longer matters.
            self.daemon_flushes.open.clear();
            self.daemon_flushes.waiting.clear();
        }
        is_over
    }
}
