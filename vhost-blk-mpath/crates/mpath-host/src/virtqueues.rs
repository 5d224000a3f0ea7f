//! Which I/O thread has a virtqueue, and when virtqueues may be fetched from while front-ends come and go.

use mpath_core::DiskId;

/// The I/O thread of a virtqueue, of so many threads. Disks with one virtqueue each are not all on the first thread.
#[must_use]
pub fn io_thread_of(disk: DiskId, queue: u16, threads: usize) -> usize {
    (usize::from(disk.0) + usize::from(queue)) % threads
}

/// A disk's virtqueues are not fetched from while writes that an earlier front-end gave up may still be executed: such a write must not
/// overwrite what the next front-end writes.
#[derive(Debug, Default)]
pub struct Suspension {
    /// I/O threads that may still have such writes.
    unsettled: usize,
}

impl Suspension {
    /// A front-end has come: whether the I/O threads, so many, are to suspend the disk, and each of them to say when it has settled.
    /// A suspension that is under way will do: nothing was fetched since it began, so no more writes can be in doubt. Front-ends that
    /// come and go would else leave one suspension each, until the fence.
    pub fn begin(&mut self, threads: usize) -> bool {
        let begins = self.unsettled == 0;
        if begins {
            self.unsettled = threads;
        }
        begins
    }

    /// An I/O thread has settled: whether it is the last one, and the disk is to be resumed.
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
    fn virtqueues_of_all_disks_are_dealt_out_to_all_threads() {
        let of = |disk, queue| io_thread_of(DiskId(disk), queue, 2);
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [0, 1, 1, 0]);
    }
}
