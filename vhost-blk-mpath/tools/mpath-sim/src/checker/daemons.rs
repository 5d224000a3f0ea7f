//! The end of a daemon. The next daemon does not know everything, so the checker expects less of it.

use monotonic::Duration;

use super::Checker;
use super::first_attempts::FirstAttempts;
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
        self.ended_in_order(at, is_written);
        self.history.note_all(at, || "the daemon has ended in order".into());
    }

    /// All disks were removed, and their guests are gone. `is_known`: nothing is left, or the next disks find the fence records, which say
    /// what is left.
    pub(crate) fn disks_removed(&mut self, at: Duration, is_known: bool) {
        self.counts.disks_replaced += 1;
        if is_known {
            self.first_attempts.daemon_replaced(true);
        } else {
            self.first_attempts = FirstAttempts::new(self.disks.len());
        }
        self.ended_in_order(at, is_known);
        self.history.note_all(at, || "all disks were removed".into());
    }

    fn ended_in_order(&mut self, at: Duration, is_known: bool) {
        self.forget_daemon(at);
        for (index, _) in self.disks.iter().enumerate().filter(|(_, disk)| disk.durability.has_unknown_writes()) {
            // The daemon presumes unflushed writes of an earlier one. If it cannot flush them, it tells the next daemon.
            self.flushes.may_have_lost(index);
        }
        if self.open.values().any(|request| request.operation.changes_data()) {
            self.disks.iter_mut().for_each(|disk| disk.durability.ended_in_doubt());
        }
        if !is_known {
            self.forget_promises();
        }
    }

    /// Expects no flush of the next daemon to cover earlier writes. That daemon does not know which controllers hold them.
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
        self.lost_attempts.forget();
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
