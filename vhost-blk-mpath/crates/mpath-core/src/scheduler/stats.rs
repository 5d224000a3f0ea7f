//! Statistics of a scheduler.

use super::{DiskSchedulerStats, FlowStats, SchedulerSpec, Tier};
use crate::DiskId;

/// Statistics of a scheduler.
#[derive(Clone, Debug)]
pub struct SchedulerStats {
    /// The scheduler in force.
    pub spec: SchedulerSpec,
    /// The disks, by id.
    pub disks: Vec<DiskSchedulerStats>,
    /// The flows that have had requests, in the order of their ids.
    pub flows: Vec<FlowStats>,
}
impl SchedulerStats {
    /// The statistics of a disk, if the group has the disk.
    #[must_use]
    pub fn disk(&self, disk: DiskId) -> Option<&DiskSchedulerStats> {
        self.disks.get(disk.index())
    }

    /// The flows of a disk, in the order of their ids.
    pub fn flows_of(&self, disk: DiskId) -> impl Iterator<Item = &FlowStats> {
        self.flows.iter().filter(move |flow| flow.disk == disk)
    }

    /// Adds the counters of another group of the same disks.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.disks.iter_mut().zip(&other.disks) {
            mine.throttled = mine.throttled.max(theirs.throttled);
            mine.tier = if theirs.tier == Tier::Bulk { Tier::Bulk } else { mine.tier };
        }
        for theirs in &other.flows {
            match self.flows.binary_search_by_key(&theirs.flow, |mine| mine.flow) {
                Ok(index) => self.flows[index].merge(theirs),
                Err(index) => self.flows.insert(index, theirs.clone()),
            }
        }
    }
}
