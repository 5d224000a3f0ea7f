//! The fence of an association that has ended: writes that it was sent and has not answered are held until none of them can
//! be executed any more. The first of these counts:
//!
//! * a cross-controller reset by way of another path has succeeded;
//! * the controller has closed all I/O connections in answer to our end of them, having promised (`drain-fence`) to do so only
//!   when everything it received is executed;
//! * time has passed since the last socket was closed.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use nvme_tcp::host::ControllerInfo;
use nvme_tcp::wire::ControllerInstance;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::subsystem::Subsystem;
use crate::transport::AdminConnection;

/// How long a controller may take to close its connections. Linux nvmet was seen to take 3.7 s. Time counts only from the end of
/// that, so longer would not always be better.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// What has lifted a fence.
#[derive(Clone, Copy)]
pub(crate) enum FencedBy {
    /// A cross-controller reset by way of this path.
    Reset(PathId),
    Drain,
    Time,
}

/// An association that gets nothing more to do, and whose controller is to close the connections.
pub(crate) struct Draining {
    /// Open as long as the others: with it the controller would go.
    pub(crate) admin: AdminConnection,
    /// The sockets of its I/O queues, whose sending side is shut down.
    pub(crate) queues: Vec<OwnedFd>,
}

/// Begins the fence of an association whose sockets are all closed but for those that drain, and sees to its end, which is that
/// of the task.
pub(crate) fn begin(
    subsystem: &Arc<Subsystem>,
    path: PathId,
    epoch: Epoch,
    info: &ControllerInfo,
    draining: Option<Draining>,
) -> JoinHandle<()> {
    let subsystem = Arc::clone(subsystem);
    let time = if cfg!(feature = "without-fence") { Duration::ZERO } else { info.fence_time() };
    let instance = info.instance();
    tokio::spawn(async move {
        let begun = Instant::now();
        let by = tokio::select! {
            by = reset(&subsystem, instance) => FencedBy::Reset(by),
            by = drain_or_time(draining, time) => by,
        };
        subsystem.path_fence_lifted(path, by, begun.elapsed());
        lift(&subsystem, path, epoch).await;
    })
}

/// Nothing of an association that has ended can be executed any more.
pub(crate) async fn lift(subsystem: &Subsystem, path: PathId, epoch: Epoch) {
    subsystem.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
    subsystem.record_ended(path, epoch).await;
}

/// Waits until another path's controller has reset the lost one, perhaps for ever; which path that was.
async fn reset(subsystem: &Subsystem, instance: Option<ControllerInstance>) -> PathId {
    match instance {
        Some(instance) => subsystem.resetters.reset(instance).await,
        None => std::future::pending().await,
    }
}

async fn drain_or_time(draining: Option<Draining>, time: Duration) -> FencedBy {
    if let Some(draining) = draining {
        // What does not drain is closed with the future, with RST.
        if timeout(DRAIN_MAX, drain(draining)).await == Ok(true) {
            return FencedBy::Drain;
        }
    }
    sleep(time).await;
    FencedBy::Time
}

/// Whether the controller has executed everything and said so.
async fn drain(Draining { mut admin, queues }: Draining) -> bool {
    let mut ends = pin!(read_to_end(queues));
    loop {
        tokio::select! {
            ended = &mut ends => match ended {
                Ok(()) => break,
                Err(_) => return false,
            },
            // Its keep-alives go on.
            event = admin.next_event() => if event.is_err() {
                return false;
            },
        }
    }
    // A controller that is taken down, or whose keep-alive timer has expired while this host stood still, closes its connections
    // too, and may do so before it has executed everything. This one was there after it had closed them.
    admin.shutdown().await
}

/// Reads what still comes, which is for nobody any more: the requests it answers are held, and repeated.
async fn read_to_end(sockets: Vec<OwnedFd>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    let sockets: Vec<_> = sockets.into_iter().map(ResetOnDrop).collect();
    for ResetOnDrop(socket) in &sockets {
        let socket = StdTcpStream::from(socket.try_clone()?);
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket)?;
        while socket.read(&mut buffer).await? > 0 {}
    }
    Ok(())
}

/// What has not been delivered when the time to drain is over never is.
struct ResetOnDrop(OwnedFd);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        reactor::reset(&self.0);
    }
}
