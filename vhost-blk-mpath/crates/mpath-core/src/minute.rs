//! One minute of a group, for a history that outlives the group. A minute ends when its reader takes it.

use monotonic::Duration;

use crate::recent_latencies::add_recent;
use crate::{LatencyCounts, PathId, SlowRequest, Stages};

/// Latencies by class, in the order of [`crate::OpClass::ALL`]. `None` without a request.
pub type ClassLatencies = [Option<Box<LatencyCounts>>; 3];

/// One minute.
#[derive(Clone, Debug, Default)]
pub struct MinuteStats {
    /// How long it is.
    pub covered: Duration,
    /// By disk.
    pub disks: Vec<DiskMinute>,
    /// The paths with requests that succeeded.
    pub paths: Vec<PathMinute>,
    /// How long this host did not run the I/O threads: the sum over the threads.
    pub stalled: Duration,
}

/// One minute of one disk.
#[derive(Clone, Debug, Default)]
pub struct DiskMinute {
    /// From the virtqueue to the answer.
    pub latencies: ClassLatencies,
    /// The times of all requests of 10 ms or more, by stage.
    pub long_stages: Stages,
    /// The slowest request of 10 ms or more that ended.
    pub slowest: Option<SlowRequest>,
    /// The age of the oldest request without an answer, at the end.
    pub oldest: Option<Duration>,
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
            mine.oldest = mine.oldest.max(theirs.oldest);
        }
        for theirs in &other.paths {
            match self.paths.iter_mut().find(|mine| mine.path == theirs.path) {
                Some(mine) => merge(&mut mine.latencies, &theirs.latencies),
                None => self.paths.push(theirs.clone()),
            }
        }
        self.stalled += other.stalled;
        self.covered = self.covered.max(other.covered);
    }
}

fn merge(mine: &mut ClassLatencies, theirs: &ClassLatencies) {
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        add_recent(mine, theirs.as_deref());
    }
}
