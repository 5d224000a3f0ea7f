//! What enters and leaves an I/O thread: the only way other threads reach it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use mpath_core::{
    AnaState, Association, ClassPolicies, DiskId, Epoch, FlowId, GroupStats, Hedging, Injection, OpClass, PathId,
    SchedulerSpec,
};
use nvme_tcp::host::{HostQueue, NamespaceLimits, QueueError};
use vhost_user_blk::Queue;

use crate::unanswered::Unanswered;

/// An instruction to an I/O thread: what a method of [`IoThreadHandle`](crate::IoThreadHandle) says.
#[expect(missing_docs, reason = "fields are named as their types are, which say what they are")]
pub enum Message<S = OwnedFd> {
    /// A virtqueue of that disk to serve from now on, under that name.
    StartQueue { disk: DiskId, flow: FlowId, queue: Box<Queue> },
    /// Drain a virtqueue and give it back; `None` if it is not here.
    StopQueue { flow: FlowId, reply: mpsc::SyncSender<Option<Queue>> },
    /// What a disk is called, what a block of it is, and where to say what its guest was not answered.
    AddDisk { disk: DiskId, name: Arc<str>, block_size_bytes: u32, unanswered: Arc<Unanswered> },
    /// Nothing is taken from the virtqueues of that disk before.
    HoldDisk { disk: DiskId, until: Instant },
    /// Nothing is taken from the virtqueues of that disk before [`Message::ResumeDisk`] came as often as this.
    SuspendDisk(DiskId),
    /// One [`Message::SuspendDisk`] ends.
    ResumeDisk(DiskId),
    /// There is a path, not yet up.
    AddPath(PathId),
    /// There is no such path any more; see [`mpath_core::Group::remove_path`].
    RemovePath(PathId),
    /// A queue pair of a path, connected and ready, with its socket in blocking mode.
    PathUp { path: PathId, association: Association, link: Box<Link<S>> },
    /// The association is gone or going: close this thread's queue pair of it and report [`PathEventKind::Closed`].
    PathDown { path: PathId, epoch: Epoch, ending: Ending },
    /// Nothing sent under this association can change data any more.
    FenceLifted { path: PathId, epoch: Epoch },
    /// That disk's namespace can be used on this path from now on.
    AddNamespace { path: PathId, epoch: Epoch, disk: DiskId, limits: NamespaceLimits },
    /// The ANA state of that disk's namespace on this path.
    Ana { path: PathId, epoch: Epoch, disk: DiskId, state: AnaState },
    /// The policies of the very next request.
    SetPolicy(Box<ClassPolicies>),
    /// Whose turn it is, from the very next request on.
    SetScheduler(Box<SchedulerSpec>),
    /// A disk's part of the service beside others.
    SetWeight { disk: DiskId, weight: u16 },
    /// How slow reads are hedged from now on, if they are.
    SetHedging(Option<Hedging>),
    /// Whether a path may come back.
    SetPathsExpected(bool),
    /// Impair a path.
    SetInjection { path: PathId, class: Option<OpClass>, injection: Injection },
    /// Stop impairing it.
    ClearInjection(PathId),
    /// Give a path no new requests, or do again.
    SetDraining { path: PathId, draining: bool },
    /// Call back when everything sent before has been carried out.
    Barrier(Box<dyn FnOnce() + Send>),
    /// Call back when nothing that was given up with a virtqueue of the disk can change data any more.
    WhenSettled { disk: DiskId, settled: Box<dyn FnOnce() + Send> },
    /// A copy of the statistics.
    Stats(Box<dyn FnOnce(GroupStats) + Send>),
    /// Finish what the sockets hold, at most for a moment, and end.
    Shutdown,
}

/// A queue pair of a path on its way into an I/O thread.
pub struct Link<S = OwnedFd> {
    /// Connected, in blocking mode as `io_uring` wants it, and with no delay of small segments (`TCP_NODELAY`).
    pub socket: S,
    /// Its Connect has succeeded.
    pub queue: HostQueue,
    /// How long to wait before a retry that the controller asks for: `CRDT1` to `CRDT3` (Identify Controller, bytes 128–133).
    pub retry_delays: [Duration; 3],
    /// How it is closed if it works and answers too late; one that has failed is closed with [`Ending::Reset`].
    pub ending: Ending,
}

/// How a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With RST: what the kernel has not delivered yet never is.
    Reset,
    /// Only the sending side at first: whoever gets the socket waits for the controller to close its own, which it may have
    /// promised to do only once everything it received is executed.
    Drain,
}

/// What an I/O thread reports about the queue pair of one path.
#[derive(Debug)]
pub struct PathEvent<S = OwnedFd> {
    /// Which path.
    pub path: PathId,
    /// Which life of it.
    pub epoch: Epoch,
    /// What happened.
    pub kind: PathEventKind<S>,
}

/// What happened to a queue pair.
#[derive(Debug)]
pub enum PathEventKind<S = OwnedFd> {
    /// The connection failed; [`PathEventKind::Closed`] follows when its socket is closed.
    Lost(LossReason),
    /// It owes answers and has been silent for too long.
    Suspect,
    /// It has given a sign of life, and is suspect no more.
    Recovered,
    /// A command ended with an error about its ANA state, which may have changed without notice.
    AnaError,
    /// The controller, which reports no MDTS, has refused larger reads or writes. They were repeated in commands of that size.
    SmallerTransfer {
        /// The most data of one command from now on.
        bytes: u32,
    },
    /// Socket closed, or given away if it is to drain; kernel out of all buffers, every request re-queued or held: from
    /// here the fence counts.
    Closed {
        /// The socket of [`Ending::Drain`], in blocking mode, on which nothing more can be sent. `None` too if the controller
        /// was first to close it: that is no answer to our end.
        draining: Option<S>,
        /// Commands that change data were on it without an answer: they may be executed until the fence is lifted.
        in_doubt: bool,
    },
}

/// Why a queue pair was lost.
#[derive(Debug, thiserror::Error)]
pub enum LossReason {
    /// The socket failed or was closed by the controller.
    #[error("connection lost: {0}")]
    Socket(#[source] io::Error),
    /// The controller broke the protocol.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// A command has waited for its answer for longer than the I/O timeout, while the path may have answered others.
    #[error("a command was not answered within the io-timeout of {} s", _0.as_secs_f64())]
    TimedOut(Duration),
    /// A virtqueue had to stop and this path held requests of it for too long.
    #[error("requests did not complete within the time a virtqueue has to drain")]
    Abandoned,
}
