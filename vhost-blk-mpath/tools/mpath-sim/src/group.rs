//! A group alone, without virtqueues and network.

use monotonic::Instant;
use mpath_core::{AnaState, Association, Epoch, Group, GroupConfig, PathConfig, PathId, SharedDisk};

/// Requests a queue pair takes: more than any scenario has in flight.
pub const QUEUE_DEPTH: u16 = 1024;

/// A group with this number of live paths.
#[must_use]
pub fn with_paths(now: Instant, config: GroupConfig, disks: &[SharedDisk], paths: usize) -> Group {
    let mut group = Group::new(now, config, disks);
    for id in (0..paths as u16).map(PathId) {
        group.add_path(id, PathConfig::default());
        let association = Association {
            epoch: Epoch(0),
            ana: AnaState::Optimized.into(),
            volatile_write_cache: false,
            queue_depth: QUEUE_DEPTH,
        };
        group.path_up(now, id, association);
    }
    group
}
