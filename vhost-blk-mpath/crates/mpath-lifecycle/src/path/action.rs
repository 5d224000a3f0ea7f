//! Actions that a path asks of its driver.

use monotonic::{Duration, Instant};
use mpath_core::{Association, Epoch, PathId};
use nvme_tcp::host::{ControllerInfo, CrossResetOutcome, HostController, HostQueue};

use super::PathNews;
use crate::disks::NamespaceUpdate;
use crate::{AssociationId, ControllerShutdown, EndedAssociation};

/// An action that [`PathDriver`](crate::PathDriver) carries out for a path, in the order given.
#[derive(Debug)]
pub enum Action<E: std::error::Error> {
    /// Connect a socket for this queue; 0 is the admin queue.
    /// [`connected`](super::Path::connected) or [`failed`](super::Path::failed) follows.
    Connect {
        /// QID.
        qid: u16,
    },
    /// Send an `H2CTermReq` on the socket of this queue, as far as the socket takes it at once.
    SendTermReq {
        /// QID.
        qid: u16,
        /// The PDU.
        term_req: Vec<u8>,
    },
    /// Close all sockets of the association with RST. The I/O threads have none of them.
    Close,
    /// Record durably that this association may leave a fence, and make sure that all I/O threads know the path.
    /// [`recorded`](super::Path::recorded) follows.
    Record {
        /// The number of the association.
        epoch: Epoch,
        /// CNTLID.
        cntlid: u16,
        /// How long after its sockets are closed its controller may execute commands.
        fence_time: Duration,
    },
    /// Remove the record of an association that was never used, or of which nothing can be executed any more.
    RemoveRecord {
        /// The number of the association.
        epoch: Epoch,
    },
    /// Give I/O threads their queue pairs: the association is live.
    GoLive(Box<LiveAssociation>),
    /// Tell the I/O threads about a change of a disk's namespace.
    UpdateNamespace {
        /// The number of the association.
        epoch: Epoch,
        /// The change.
        update: NamespaceUpdate,
    },
    /// The association is over: have every I/O thread close its queue pair and report
    /// [`Report::Closed`](super::Report::Closed).
    CloseQueues {
        /// The number of the association.
        epoch: Epoch,
        /// Shut down only the sending sides at first, and keep the admin socket.
        half_close: bool,
    },
    /// Every I/O thread has closed its queue pair. [`ClosedAssociation::end`] says what follows. A controller that has
    /// ended in order is shut down before the next action: some targets have room for one controller of a host.
    Ended(Box<ClosedAssociation>),
    /// The outcome of a Cross-Controller Reset that the controller was asked for.
    ResetAnswered(CrossResetOutcome),
    /// Ask every I/O thread for its statistics of the path. [`threads_answered`](super::Path::threads_answered) follows,
    /// unless another question comes first. An answer after [`Self::CloseQueues`] counts for nothing.
    AskThreads,
    /// Have one I/O thread send a flush for the writes that the controller of the path may cache.
    DaemonFlush,
    /// Tell those who watch the path.
    News(PathNews<E>),
    /// Wait until the fences of the path are lifted. [`removal_step_done`](super::Path::removal_step_done) follows.
    AwaitFences,
    /// Have every I/O thread remove the path. [`removal_step_done`](super::Path::removal_step_done) follows.
    RemoveFromThreads,
    /// The removal is complete.
    RemovalDone,
}

/// An association that has become live.
#[derive(Debug)]
pub struct LiveAssociation {
    /// The association, for the I/O threads.
    pub association: Association,
    /// The queue pairs by I/O thread. The first thread has the socket of QID 1. There may be more threads, without virtqueues.
    pub queues: Vec<HostQueue>,
    /// The controller.
    pub info: ControllerInfo,
    /// The state of each disk's namespace.
    pub namespaces: Vec<NamespaceUpdate>,
}

/// An association after all I/O threads have closed their queue pairs.
#[derive(Debug)]
pub struct ClosedAssociation {
    /// The number of the association.
    pub epoch: Epoch,
    /// The controller as it was at the beginning.
    pub info: ControllerInfo,
    /// The admin queue. Its socket is still open.
    pub admin: HostController,
    /// The association ended by order and nothing sent on it can still be executed. It needs no fence, and its
    /// controller can be shut down.
    pub is_clean: bool,
    /// Every I/O socket is half-closed, so the admin socket may be, too.
    pub is_half_closed: bool,
}

impl ClosedAssociation {
    /// Ends the association of this path. Returns what its fence needs, and the shutdown of its controller, if that is
    /// possible. `half_closed`: the number of half-closed I/O sockets; `None` if the admin socket has failed.
    ///
    /// Unless [`is_half_closed`](EndedAssociation::is_half_closed), the I/O sockets have to be closed, and without a shutdown the
    /// admin socket too. [`Fences::begin`](crate::Fences::begin) follows. If the sockets are half-closed, the outcome of the shutdown
    /// is for [`Fences::sockets_closed`](crate::Fences::sockets_closed).
    #[must_use]
    pub fn end(
        self,
        now: Instant,
        path: PathId,
        half_closed: Option<usize>,
    ) -> (EndedAssociation, Option<ControllerShutdown>) {
        let Self { epoch, info, admin, is_clean, is_half_closed } = self;
        let queues = half_closed.filter(|_| is_clean || is_half_closed).map(|queues| if is_clean { 0 } else { queues });
        let ended = EndedAssociation {
            of: AssociationId { path, epoch },
            is_clean,
            fence_time: if cfg!(without_fence) { Duration::ZERO } else { info.fence_time() },
            instance: info.instance(),
            is_half_closed: queues.is_some() && !is_clean,
        };
        (ended, queues.map(|queues| ControllerShutdown::new(now, admin, queues)))
    }
}
