//! Decides: the I/O thread of a virtqueue is told to stop (`stop`).
//!
//! The disk of a front-end, and its virtqueues on their way to the I/O threads.

use std::sync::Arc;

use mpath_config::PolicyChange;
use mpath_core::{DiskId, FlowId};
use reactor::{IoThreadHandle, StoppingQueue};
use vhost_user_blk::{Queue, QueueRunner, SetPolicyError, VirtioDisk};

use crate::disk::Disk;
use crate::subsystem::{PolicySetBy, Subsystem, vendor_window};

/// A disk with a known namespace, as the vhost-user side uses it.
#[derive(Clone)]
pub(crate) struct ServedDisk {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) id: DiskId,
}

impl ServedDisk {
    pub(super) fn disk(&self) -> &Disk {
        self.subsystem.disk(self.id)
    }

    pub(super) fn frontend_disk(&self) -> &Arc<VirtioDisk> {
        &self.disk().backing().expect("its namespace is known").frontend
    }

    /// The I/O thread of a virtqueue that runs.
    fn thread(&self, flow: FlowId) -> &IoThreadHandle {
        // No thread gives a virtqueue back that does not run.
        let thread = self.subsystem.virtqueues().thread_of(flow).unwrap_or(0);
        &self.subsystem.threads()[thread]
    }
}

impl QueueRunner for ServedDisk {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        let flow = self.disk().flow(queue.index());
        let thread = self.subsystem.virtqueues().start(self.id, queue.index(), flow);
        let started = self.subsystem.threads()[thread].start_queue(&self.disk().queues, self.id, flow, queue);
        started.map_err(|queue| {
            self.subsystem.virtqueues().stopped(flow);
            *queue
        })
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        let flows: Vec<_> = indices.iter().map(|&index| self.disk().flow(index)).collect();
        let begin = |&flow: &FlowId| self.thread(flow).begin_stop(&self.disk().queues, flow);
        let stopping: Vec<_> = flows.iter().map(begin).collect();
        let stopped = stopping.into_iter().map(StoppingQueue::wait).collect();
        for flow in flows {
            self.subsystem.virtqueues().stopped(flow);
        }
        stopped
    }

    fn set_policy(&self, id: u16) -> Result<(), SetPolicyError> {
        if self.id != DiskId(0) {
            return Err(SetPolicyError::OwnedByOtherDisk);
        }
        let kind = vendor_window::policy(id).ok_or(SetPolicyError::Unknown(id))?;
        let change = PolicyChange::new(kind, None, []).expect("there is no parameter to be wrong");
        // The front-end is blocked until it gets an answer, so do not wait for the I/O threads.
        self.subsystem.change(self.id, |live| live.policy.change(&change), PolicySetBy::FrontEnd);
        Ok(())
    }
}
