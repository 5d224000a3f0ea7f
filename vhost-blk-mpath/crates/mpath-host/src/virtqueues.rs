//! Assigns virtqueues to I/O threads.

use mpath_core::DiskId;

/// The index of the I/O thread that serves a virtqueue. The disk id is part of it, so disks with one virtqueue each
/// use different threads.
#[must_use]
pub fn io_thread_of(disk: DiskId, queue: u16, threads: usize) -> usize {
    (usize::from(disk.0) + usize::from(queue)) % threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtqueues_of_all_disks_are_spread_over_all_threads() {
        let of = |disk, queue| io_thread_of(DiskId(disk), queue, 2);
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [0, 1, 1, 0]);
    }
}
