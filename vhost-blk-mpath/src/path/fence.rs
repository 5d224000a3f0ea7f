//! Drives the fences of a subsystem's lost associations: time, the drain of their sockets, and the paths that can have their
//! controllers reset.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use mpath_host::{AssociationId, DRAIN_MAX, Ended, Left, Lifted};
use nvme_tcp::wire::ControllerInstance;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::subsystem::Subsystem;
use crate::transport::AdminConnection;

/// Lifts the fences of a subsystem until its end.
pub(crate) async fn run(subsystem: Arc<Subsystem>) {
    let mut shutdown = subsystem.shutdown.clone();
    loop {
        let Lifted { of, by, after } = tokio::select! {
            lifted = subsystem.fences.next_lifted() => lifted,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        subsystem.path_fence_lifted(of.path, by, after);
        subsystem.threads().iter().for_each(|thread| thread.fence_lifted(of.path, of.epoch));
        // The next one may be due while the record is being written.
        let subsystem = Arc::clone(&subsystem);
        tokio::spawn(async move { subsystem.record_ended(of.path, of.epoch).await });
    }
}

/// Nothing of an association that needs no fence can be executed any more.
pub(crate) async fn lift(subsystem: &Subsystem, path: PathId, epoch: Epoch) {
    subsystem.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
    subsystem.record_ended(path, epoch).await;
}

/// An association that gets nothing more to do, and whose controller is to close the connections.
pub(crate) struct Draining {
    /// Open as long as the others: with it the controller would go.
    pub(crate) admin: AdminConnection,
    /// The sockets of its I/O queues, whose sending side is shut down.
    pub(crate) queues: Vec<OwnedFd>,
}

/// Begins the fence of an association whose sockets are all closed except for those that drain: the task that sees to these.
pub(crate) fn begin(
    subsystem: &Arc<Subsystem>,
    path: PathId,
    left: &LeftBehind,
    draining: Option<Draining>,
) -> Option<JoinHandle<()>> {
    let of = AssociationId { path, epoch: left.epoch };
    let ended = Ended { of, fence_time: left.fence_time, instance: left.instance, is_draining: draining.is_some() };
    subsystem.fences.begin(ended);
    let draining = draining?;
    let subsystem = Arc::clone(subsystem);
    Some(tokio::spawn(async move {
        let executed = tokio::select! {
            // What does not drain is closed with the future, with RST.
            drained = timeout(DRAIN_MAX, drain(draining)) => drained == Ok(true),
            () = subsystem.fences.lifted_of(of) => return,
        };
        subsystem.fences.drained(of, executed);
    }))
}

/// What the fence of an association has to know of it.
pub(crate) struct LeftBehind {
    epoch: Epoch,
    fence_time: Duration,
    instance: Option<ControllerInstance>,
}

impl From<&Left> for LeftBehind {
    fn from(left: &Left) -> Self {
        let fence_time = if cfg!(feature = "without-fence") { Duration::ZERO } else { left.info.fence_time() };
        Self { epoch: left.epoch, fence_time, instance: left.info.instance() }
    }
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
