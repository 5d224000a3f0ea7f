//! The first attempts to connect paths after a kill, seen from their sockets.
//!
//! A killed daemon may have left unflushed writes in any controller. So the next daemon executes no request of a disk before each path
//! had a chance. A path had a chance if it is live, or if an attempt that began late enough has failed. An attempt began late
//! enough if it began no earlier than a second before the first attempt that made any path lead to the disk. A live path without
//! the namespace of a disk does not lead to that disk.

use std::collections::BTreeMap;

use monotonic::Duration;

/// Attempts that begin within this time count as concurrent.
const CONCURRENT: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct PathAttempts {
    /// The beginning of the attempt that is under way, or of the one that made the path live.
    began: Duration,
    is_live: bool,
    /// The beginning of the latest attempt that has failed.
    failed: Option<Duration>,
}

#[derive(Debug, Default, Clone, Copy)]
struct DiskAttempts {
    /// The daemon has to wait with requests of the disk.
    is_waiting: bool,
    /// The beginning of the first attempt that made a path lead to the disk.
    first: Option<Duration>,
}

/// The attempts of a daemon.
#[derive(Debug)]
pub(crate) struct FirstAttempts {
    disks: Vec<DiskAttempts>,
    /// By path.
    paths: BTreeMap<usize, PathAttempts>,
}

impl FirstAttempts {
    pub(super) fn new(disks: usize) -> Self {
        Self { disks: vec![DiskAttempts::default(); disks], paths: BTreeMap::new() }
    }

    /// Another daemon follows. `is_known`: its predecessor has told where unflushed writes are, or has flushed them.
    pub(super) fn daemon_replaced(&mut self, is_known: bool) {
        for disk in &mut self.disks {
            // A daemon without a path to the disk has written nothing.
            let is_waiting = disk.is_waiting || disk.first.is_some() && !is_known;
            *disk = DiskAttempts { is_waiting, first: None };
        }
        self.paths.clear();
    }

    /// The socket of an admin queue is connected.
    pub(crate) fn begun(&mut self, at: Duration, path: usize) {
        let attempts = self.paths.entry(path).or_default();
        (attempts.began, attempts.is_live) = (at, false);
    }

    /// The I/O threads are given the sockets of the path, which leads to these disks.
    pub(crate) fn succeeded(&mut self, path: usize, disks: impl Iterator<Item = usize>) {
        self.paths.entry(path).or_default().is_live = true;
        disks.for_each(|disk| self.leads_to(path, disk));
    }

    /// The live path leads to a disk.
    pub(crate) fn leads_to(&mut self, path: usize, disk: usize) {
        let began = self.paths.entry(path).or_default().began;
        let first = &mut self.disks[disk].first;
        *first = Some(first.map_or(began, |first| first.min(began)));
    }

    /// The sockets of the path are closed.
    pub(crate) fn closed(&mut self, path: usize) {
        let attempts = self.paths.entry(path).or_default();
        (attempts.failed, attempts.is_live) = (Some(attempts.began), false);
    }

    /// Ends the wait of each disk if all of these paths have had their chance.
    pub(crate) fn judge(&mut self, paths: &[usize]) {
        for DiskAttempts { is_waiting, first } in &mut self.disks {
            let Some(first) = first.filter(|_| *is_waiting) else { continue };
            let had_a_chance = |attempts: &PathAttempts| {
                attempts.is_live || attempts.failed.is_some_and(|began| began + CONCURRENT >= first)
            };
            *is_waiting = !paths.iter().all(|path| self.paths.get(path).is_some_and(had_a_chance));
        }
    }

    /// Whether requests of any disk have to wait.
    pub(crate) fn are_waiting(&self) -> bool {
        self.disks.iter().any(|disk| disk.is_waiting)
    }

    /// Whether requests of a disk have to wait.
    pub(crate) fn is_waiting(&self, disk: usize) -> bool {
        self.disks[disk].is_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// The successor of a killed daemon that had a path to both disks.
    fn after_a_kill() -> FirstAttempts {
        let mut attempts = FirstAttempts::new(2);
        attempts.begun(Duration::ZERO, 0);
        attempts.succeeded(0, 0..2);
        attempts.daemon_replaced(false);
        assert!(attempts.is_waiting(0) && attempts.is_waiting(1));
        attempts
    }

    #[test]
    fn each_path_has_to_be_tried_since_the_first_one_worked() {
        let mut attempts = after_a_kill();
        attempts.begun(SECOND, 0);
        attempts.closed(0);
        attempts.judge(&[0]);
        assert!(attempts.is_waiting(0), "no path works");
        attempts.begun(5 * SECOND, 1);
        attempts.succeeded(1, 0..2);
        attempts.judge(&[0, 1]);
        assert!(attempts.is_waiting(0), "path 0 was tried long before");
        attempts.begun(4 * SECOND, 0);
        attempts.judge(&[0, 1]);
        assert!(attempts.is_waiting(0), "the attempt is under way");
        attempts.closed(0);
        attempts.judge(&[0, 1, 2]);
        assert!(attempts.is_waiting(0), "path 2 was never tried");
        attempts.judge(&[0, 1]);
        assert!(!attempts.is_waiting(0) && !attempts.is_waiting(1));
    }

    #[test]
    fn each_disk_waits_for_the_attempts_since_its_own_first_path() {
        let mut attempts = after_a_kill();
        attempts.begun(SECOND, 1);
        attempts.closed(1);
        attempts.begun(SECOND, 0);
        attempts.succeeded(0, 0..1);
        attempts.judge(&[0, 1]);
        assert!(!attempts.is_waiting(0) && attempts.is_waiting(1), "no path leads to disk 1");
        attempts.begun(5 * SECOND, 2);
        attempts.succeeded(2, 0..2);
        attempts.judge(&[0, 1, 2]);
        assert!(attempts.is_waiting(1), "path 1 was tried long before");
        attempts.leads_to(0, 1);
        attempts.judge(&[0, 1, 2]);
        assert!(!attempts.is_waiting(1), "path 0 leads there too, and was tried when path 1 was");
    }

    #[test]
    fn the_wait_goes_on_in_the_next_daemon() {
        let mut attempts = after_a_kill();
        attempts.daemon_replaced(true);
        assert!(attempts.is_waiting(0));
        attempts.begun(SECOND, 0);
        attempts.succeeded(0, 0..2);
        attempts.judge(&[0]);
        attempts.daemon_replaced(true);
        assert!(!attempts.is_waiting(0));
        attempts.daemon_replaced(false);
        assert!(!attempts.is_waiting(0), "it had no path");
    }
}
