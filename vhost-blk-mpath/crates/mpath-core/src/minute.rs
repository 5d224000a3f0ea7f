//! One minute of a group, for a history that outlives the group.

use std::time::Duration;

use crate::recent_latencies::add_recent;
use crate::{LatencyCounts, PathId, SlowRequest, Stages};

/// Latencies by class, in the order of [`crate::OpClass::ALL`]. `None` without a request.
pub type ClassLatencies = [Option<Box<LatencyCounts>>; 3];

/// What happened in one minute.
#[derive(Clone, Debug, Default)]
pub struct MinuteStats {
    /// By disk.
    pub disks: Vec<DiskMinute>,
    /// The paths with requests that succeeded.
    pub paths: Vec<PathMinute>,
    /// How long this host did not run the I/O threads, since their start: the sum over the threads.
    pub stalled: Duration,
}

/// What the guest of one disk got in one minute.
#[derive(Clone, Debug, Default)]
pub struct DiskMinute {
    /// From the virtqueue to the answer.
    pub latencies: ClassLatencies,
    /// The times of all requests of 10 ms or more, by stage, since the start.
    pub long_stages: Stages,
    /// The slowest request that ended in the minute.
    pub slowest: Option<SlowRequest>,
}

/// The requests that succeeded on one path in one minute.
#[derive(Clone, Debug)]
pub struct PathMinute {
    /// The path.
    pub path: PathId,
    /// From bind to completion.
    pub latencies: ClassLatencies,
}

impl MinuteStats {
    /// Adds the same minute of another group of the same disks.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.disks.iter_mut().zip(&other.disks) {
            merge(&mut mine.latencies, &theirs.latencies);
            mine.long_stages += theirs.long_stages;
            let slowest = [mine.slowest, theirs.slowest].into_iter().flatten().max_by_key(|request| request.total);
            mine.slowest = slowest;
        }
        for theirs in &other.paths {
            match self.paths.iter_mut().find(|mine| mine.path == theirs.path) {
                Some(mine) => merge(&mut mine.latencies, &theirs.latencies),
                None => self.paths.push(theirs.clone()),
            }
        }
        self.stalled += other.stalled;
    }
}

fn merge(mine: &mut ClassLatencies, theirs: &ClassLatencies) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        add_recent(mine, theirs.as_deref());
    }
}
