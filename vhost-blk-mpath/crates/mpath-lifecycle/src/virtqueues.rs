//! Decides: an I/O thread serves this virtqueue (`start`).
//! Decides: a controller grants too few I/O queues (`granted`).
//!
//! Assigns virtqueues to I/O threads.
//!
//! A virtqueue needs a queue pair of every path on its I/O thread: a flush has to reach each controller that the disk's writes have
//! reached. So virtqueues use only as many I/O threads as the least generous controller has granted I/O queues. A virtqueue keeps
//! its thread until it stops. A controller that grants fewer queues than the running virtqueues need is not used. So virtqueues that
//! start before any controller has answered, as after a restart in an outage, use the first thread alone: every controller suits it.

use std::collections::BTreeMap;

use mpath_core::{DiskId, FlowId, PathId};

/// The I/O threads of the virtqueues of disks that share paths.
#[derive(Debug)]
pub struct VirtqueueThreads {
    threads: usize,
    /// By path: the I/O queues that its controller has granted last.
    granted: BTreeMap<PathId, u16>,
    /// By virtqueue that runs.
    running: BTreeMap<FlowId, usize>,
}

impl VirtqueueThreads {
    /// No virtqueue runs, on this number of I/O threads.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { threads, granted: BTreeMap::new(), running: BTreeMap::new() }
    }

    /// Assigns a virtqueue that starts to an I/O thread, and returns the index of the thread. The disk id is part of the choice, so
    /// disks with one virtqueue each use different threads.
    pub fn start(&mut self, disk: DiskId, queue: u16, flow: FlowId) -> usize {
        let least = self.granted.values().min().map_or(1, |&granted| self.threads.min(granted.into()));
        let thread = (usize::from(disk.0) + usize::from(queue)) % least.max(1);
        self.running.insert(flow, thread);
        thread
    }

    /// The I/O thread of a virtqueue, if it runs.
    #[must_use]
    pub fn thread_of(&self, flow: FlowId) -> Option<usize> {
        self.running.get(&flow).copied()
    }

    /// Records that a virtqueue has stopped.
    pub fn stopped(&mut self, flow: FlowId) {
        self.running.remove(&flow);
    }

    /// The number of I/O threads up to the last one that has a virtqueue.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.running.values().max().map_or(0, |last| last + 1)
    }

    /// Records the number of I/O queues that the controller of a path has granted. Virtqueues that start later use no more threads.
    ///
    /// # Errors
    /// The number of I/O threads that running virtqueues need, if it is larger.
    pub fn granted(&mut self, path: PathId, queues: u16) -> Result<(), u16> {
        self.granted.insert(path, queues);
        let needed = self.needed();
        if needed > usize::from(queues) { Err(needed as u16) } else { Ok(()) }
    }

    /// Forgets a path that is removed, or that leads elsewhere.
    pub fn forget_path(&mut self, path: PathId) {
        self.granted.remove(&path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The threads of two virtqueues of each of two disks.
    fn start_all(threads: &mut VirtqueueThreads) -> [usize; 4] {
        [0, 1, 2, 3].map(|flow| threads.start(DiskId(flow / 2), flow % 2, FlowId(flow)))
    }

    #[test]
    fn virtqueues_of_all_disks_are_spread_over_all_threads() {
        let mut threads = VirtqueueThreads::new(2);
        assert_eq!(start_all(&mut threads), [0; 4], "any controller may be the first");
        assert_eq!(threads.granted(PathId(0), 2), Ok(()));
        assert_eq!(start_all(&mut threads), [0, 1, 1, 0]);
        assert_eq!((threads.thread_of(FlowId(2)), threads.needed()), (Some(1), 2));
    }

    #[test]
    fn the_least_generous_controller_decides_how_many_threads_are_used() {
        let mut threads = VirtqueueThreads::new(3);
        assert_eq!((threads.granted(PathId(0), 3), threads.granted(PathId(1), 2)), (Ok(()), Ok(())));
        assert_eq!(start_all(&mut threads), [0, 1, 1, 0]);
        // A later controller has too few for the virtqueues that run, and decides when they start again.
        assert_eq!(threads.granted(PathId(2), 1), Err(2));
        threads.stopped(FlowId(1));
        threads.stopped(FlowId(2));
        assert_eq!((threads.granted(PathId(2), 1), threads.needed()), (Ok(()), 1));
        assert_eq!(start_all(&mut threads), [0; 4]);
        threads.forget_path(PathId(2));
        // A controller that grants nothing at all cannot be used anyway.
        assert_eq!((threads.granted(PathId(1), 0), threads.start(DiskId(1), 1, FlowId(9))), (Err(1), 0));
    }
}
