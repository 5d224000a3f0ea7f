//! Assigns virtqueues to I/O threads, and suspends disks while an earlier front-end's writes are in doubt.

use mpath_core::DiskId;

/// The index of the I/O thread that serves a virtqueue. The disk id is part of it, so disks with one virtqueue each
/// use different threads.
#[must_use]
pub fn io_thread_of(disk: DiskId, queue: u16, threads: usize) -> usize {
    (usize::from(disk.0) + usize::from(queue)) % threads
}

/// Suspends a disk while writes that an earlier front-end abandoned may still be executed. Such a write must not
/// overwrite what the next front-end writes.
#[derive(Debug, Default)]
pub struct Suspension {
    /// The number of I/O threads that may still have such writes.
    unsettled: usize,
}

impl Suspension {
    /// Records that a front-end has connected. Returns whether each of the `threads` I/O threads must now suspend the
    /// disk and report when it has settled. A suspension that is under way is enough: no requests were fetched since
    /// it began, so no more writes can be in doubt. Front-ends that connect again and again therefore leave one
    /// suspension, not many.
    pub fn begin(&mut self, threads: usize) -> bool {
        let begins = self.unsettled == 0;
        if begins {
            self.unsettled = threads;
        }
        begins
    }

    /// Records that an I/O thread has settled. Returns true for the last one: the disk is to be resumed.
    pub fn settled(&mut self) -> bool {
        self.unsettled -= 1;
        self.unsettled == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_suspended_once_until_all_threads_have_settled() {
        let mut suspension = Suspension::default();
        assert!(suspension.begin(2) && !suspension.begin(2));
        assert!(!suspension.settled() && !suspension.begin(2));
        assert!(suspension.settled());
        assert!(suspension.begin(2));
    }

    #[test]
    fn virtqueues_of_all_disks_are_spread_over_all_threads() {
        let of = |disk, queue| io_thread_of(DiskId(disk), queue, 2);
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [0, 1, 1, 0]);
    }
}
