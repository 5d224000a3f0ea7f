//! The messages to an I/O thread. Other threads reach it only with these.

use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};

use monotonic::Instant;
use mpath_core::{
    Association, ClassPolicies, DiskId, FlowId, GroupStats, Hedging, Injection, MinuteStats, OpClass, PathId,
    SchedulerSpec, SlowRequest,
};
use mpath_lifecycle::ThreadMessage;
use vhost_user_blk::Queue;

use crate::connected_queue_pair::ConnectedQueuePair;
use crate::disk_queues::{DiskQueues, DrainTime};
use crate::thread_explanation::ThreadExplanation;

/// An instruction to an I/O thread. [`IoThreadHandle`](crate::IoThreadHandle) sends it.
#[expect(missing_docs, reason = "the types of the fields say what they are")]
pub enum IoThreadMessage<S = OwnedFd> {
    /// Serve a virtqueue of the disk as `flow`.
    StartQueue { disk: DiskId, flow: FlowId, queue: Box<Queue> },
    /// Drain a virtqueue and give it back. `None` if the thread does not have it.
    StopQueue { flow: FlowId, drain: DrainTime, reply: mpsc::SyncSender<Option<Queue>> },
    /// The disk's name in the log, its block size, and the record of its virtqueues.
    AddDisk { disk: DiskId, name: Arc<str>, block_size_bytes: u32, queues: Arc<DiskQueues> },
    /// Take nothing from the virtqueues of the disk before `until`.
    HoldDisk { disk: DiskId, until: Instant },
    /// Take nothing from the virtqueues of the disk until [`Self::ResumeDisk`].
    SuspendDisk(DiskId),
    /// End [`Self::SuspendDisk`].
    ResumeDisk(DiskId),
    /// Add a path that is not up.
    AddPath(PathId),
    /// Use a queue pair of a path. It is connected and ready, with its socket in blocking mode.
    PathUp { path: PathId, association: Association, link: Box<ConnectedQueuePair<S>> },
    /// What the control of a path decides.
    Path(ThreadMessage),
    /// Set the policies, from the next request on.
    SetPolicy(Box<ClassPolicies>),
    /// Set the scheduler, from the next request on.
    SetScheduler(Box<SchedulerSpec>),
    /// Set the weight of a disk.
    SetWeight { disk: DiskId, weight: u16 },
    /// Set how slow reads are hedged. `None` disables hedging.
    SetHedging(Option<Hedging>),
    /// Set whether a path may come up.
    SetPathsExpected(bool),
    /// Impair a path.
    SetInjection { path: PathId, class: Option<OpClass>, injection: Injection },
    /// Stop impairing a path.
    ClearInjection(PathId),
    /// End one injection of a path.
    EndInjection { path: PathId, class: Option<OpClass> },
    /// Stop or resume new requests to a path.
    SetDraining { path: PathId, draining: bool },
    /// Call back when all earlier messages have been carried out.
    Barrier(Box<dyn FnOnce() + Send>),
    /// Call back when the disk is settled: none of its requests that were given up can still change data.
    WhenSettled { disk: DiskId, settled: Box<dyn FnOnce() + Send> },
    /// Call back with a copy of the statistics.
    Stats(Box<dyn FnOnce(GroupStats) + Send>),
    /// Call back with what has happened in this minute. The next one begins if the minute is taken.
    Minute { is_taken: bool, reply: Box<dyn FnOnce(MinuteStats) + Send> },
    /// Call back with what would happen to the next requests of a disk, and what its requests wait for.
    Explain { disk: DiskId, reply: Box<dyn FnOnce(ThreadExplanation) + Send> },
    /// Call back with the slowest requests of the last minutes.
    SlowRequests(Box<dyn FnOnce(Vec<SlowRequest>) + Send>),
    /// Drain the virtqueues for a short time, and have the controllers flush.
    Shutdown,
    /// Call back when drain and flushes are over. Comes after [`Self::Shutdown`].
    WhenFlushed(Box<dyn FnOnce() + Send>),
    /// Close the connections once drain and flushes are over, and end. Comes after [`Self::Shutdown`].
    End,
}

impl<S> From<ThreadMessage> for IoThreadMessage<S> {
    fn from(message: ThreadMessage) -> Self {
        Self::Path(message)
    }
}
