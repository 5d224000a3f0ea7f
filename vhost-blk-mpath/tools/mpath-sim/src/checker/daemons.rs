//! The end of a daemon: the next daemon knows less, and promises less.

use std::time::Duration;

use super::Checker;
use super::limits::LimitUse;

impl Checker {
    /// The daemon was killed. It alone knew which controllers hold writes that no flush has covered.
    pub(crate) fn daemon_killed(&mut self, at: Duration) {
        self.counts.kills += 1;
        self.first_attempts.daemon_replaced(self.config.shared_write_cache);
        self.forget_daemon(at);
        self.forget_promises();
        self.history.note_all(at, || "the daemon was killed".into());
    }

    /// The daemon has ended in order; `is_written` if its fence records say what it leaves.
    pub(crate) fn daemon_ended(&mut self, at: Duration, is_written: bool) {
        self.counts.restarts += 1;
        self.first_attempts.daemon_replaced(is_written || self.config.shared_write_cache);
        self.forget_daemon(at);
        for (index, _) in self.disks.iter().enumerate().filter(|(_, disk)| disk.durability.has_unknown_writes()) {
            // The daemon presumes unflushed writes of a killed one. If it cannot flush them, it tells the next daemon.
            self.flushes.may_have_lost(index);
        }
        if !is_written {
            self.forget_promises();
        }
        self.history.note_all(at, || "the daemon has ended in order".into());
    }

    /// The daemon that follows does not know which controllers hold writes that no flush has covered.
    fn forget_promises(&mut self) {
        if !self.config.shared_write_cache {
            let moment = self.tick();
            self.disks.iter_mut().for_each(|disk| disk.durability.daemon_forgot(moment));
        }
    }

    fn forget_daemon(&mut self, at: Duration) {
        let moment = self.tick();
        self.disks.iter_mut().for_each(|disk| disk.durability.ended(moment));
        self.flushes.daemon_replaced();
        let open: Vec<_> = self.open.iter().map(|(&id, request)| (request.disk, id, request.operation)).collect();
        for (disk, id, operation) in open {
            self.add_to_flushes(disk, id, operation);
        }
        for disk in &mut self.disks {
            disk.limit_use = LimitUse::default();
            disk.reasons.killed(at);
            disk.stopped = None;
        }
    }

    /// A flush of a disk is about to succeed, and it had to reach every controller.
    pub(crate) fn recovered(&mut self, disk: usize) {
        self.disks[disk].durability.recovered();
    }
}
