//! Test helper: an I/O thread with two paths.

use std::sync::mpsc;

use monotonic::{Duration, Instant};
use mpath_core::{
    AnaState, Association, Epoch, Group, GroupConfig, GroupStats, PathConfig, PathId, PolicyKind, SharedDisk,
};

use super::{Controller, Guest, eventually, start_thread};
use crate::IoThreadHandle;

/// A thread with two paths. The first one is preferred.
pub(crate) fn two_paths(config: &GroupConfig) -> (IoThreadHandle, [Controller; 2]) {
    let config = GroupConfig { policy: PolicyKind::Numa.into(), ..*config };
    let mut group = Group::new(Instant::now(), config, &[SharedDisk::default()]);
    let paths = [PathId(0), PathId(1)];
    for path in paths {
        group.add_path(path, PathConfig::default());
    }
    let thread = start_thread(group, Duration::ZERO, drop);
    let association =
        Association { epoch: Epoch(1), ana: AnaState::Optimized.into(), volatile_write_cache: false, queue_depth: 15 };
    let controllers = paths.map(|path| {
        let (controller, link) = Controller::connect();
        thread.path_up(path, association, link);
        controller
    });
    (thread, controllers)
}

/// The statistics of a thread.
pub(crate) fn stats(thread: &IoThreadHandle) -> GroupStats {
    let (reply, stats) = mpsc::channel();
    thread.stats(Box::new(move |stats| reply.send(stats).unwrap()));
    stats.recv().unwrap()
}

/// Waits for the guest's only read, which must succeed.
pub(crate) fn completes(guest: &mut Guest) {
    let mut results = Vec::new();
    eventually("the read completes", || {
        results = guest.results();
        !results.is_empty()
    });
    assert_eq!(results, [0]);
}
