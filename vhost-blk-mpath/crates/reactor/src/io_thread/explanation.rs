//! The explanation of an I/O thread.

use monotonic::Instant;
use mpath_core::DiskId;

use super::IoThread;
use crate::ring::Ring;
use crate::thread_explanation::ThreadExplanation;

impl<R: Ring> IoThread<R> {
    pub(super) fn explain(&self, now: Instant, disk: DiskId) -> ThreadExplanation {
        let state = self.disks.get(disk);
        let held_until = state.and_then(|state| state.held_until).filter(|until| now < *until);
        let of_disk = self.queues.iter().filter(|(_, slot)| slot.disk == disk);
        ThreadExplanation {
            queues: of_disk.map(|(flow, _)| flow).collect(),
            held_for: held_until.map(|until| until - now),
            is_suspended: state.is_some_and(|state| state.is_suspended),
            group: self.group.explain(now, disk),
        }
    }
}
