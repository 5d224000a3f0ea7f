//! Drives the fences of a subsystem: time, draining sockets, and Cross-Controller Resets over other paths.

use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mpath_core::{Epoch, PathId};
use mpath_host::{AssociationId, ClosedAssociation, DRAIN_MAX, EndedAssociation, LiftedFence};
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
        let LiftedFence { of, by, after } = tokio::select! {
            lifted = subsystem.fences.next_lifted() => lifted,
            _ = shutdown.wait_for(|shutdown| *shutdown) => return,
        };
        subsystem.path_fence_lifted(of.path, by, after);
        subsystem.threads().iter().for_each(|thread| thread.fence_lifted(of.path, of.epoch));
        // Another fence may be due while the record is being written.
        let subsystem = Arc::clone(&subsystem);
        tokio::spawn(async move { subsystem.record_ended(of.path, of.epoch).await });
    }
}

/// Lifts an association that needs no fence.
pub(crate) async fn lift(subsystem: &Subsystem, path: PathId, epoch: Epoch) {
    subsystem.threads().iter().for_each(|thread| thread.fence_lifted(path, epoch));
    subsystem.record_ended(path, epoch).await;
}

/// An association that drains: the host has ended its connections, and the controller is to close them.
pub(crate) struct Draining {
    /// Kept open with the I/O sockets. Without it the controller would go away.
    pub(crate) admin: AdminConnection,
    /// The sockets of the I/O queues. Their sending side is shut down.
    pub(crate) queues: Vec<OwnedFd>,
}

/// Begins the fence of an association. Its sockets are closed, except for those that drain. Returns the task that
/// watches these.
pub(crate) fn begin(
    subsystem: &Arc<Subsystem>,
    path: PathId,
    left: &FenceParameters,
    draining: Option<Draining>,
) -> Option<JoinHandle<()>> {
    let of = AssociationId { path, epoch: left.epoch };
    let ended =
        EndedAssociation { of, fence_time: left.fence_time, instance: left.instance, is_draining: draining.is_some() };
    subsystem.fences.begin(ended);
    let draining = draining?;
    let subsystem = Arc::clone(subsystem);
    Some(tokio::spawn(async move {
        let executed = tokio::select! {
            // On a timeout the dropped future closes the sockets with RST.
            drained = timeout(DRAIN_MAX, drain(draining)) => drained == Ok(true),
            () = subsystem.fences.lifted_of(of) => return,
        };
        subsystem.fences.drained(of, executed);
    }))
}

/// The parameters of an association's fence.
pub(crate) struct FenceParameters {
    epoch: Epoch,
    fence_time: Duration,
    instance: Option<ControllerInstance>,
}

impl From<&ClosedAssociation> for FenceParameters {
    fn from(left: &ClosedAssociation) -> Self {
        let fence_time = if cfg!(without_fence) { Duration::ZERO } else { left.info.fence_time() };
        Self { epoch: left.epoch, fence_time, instance: left.info.instance() }
    }
}

/// Waits until the controller has closed the connections. Returns whether it has executed everything.
async fn drain(Draining { mut admin, queues }: Draining) -> bool {
    let mut ends = pin!(read_to_end(queues));
    loop {
        tokio::select! {
            ended = &mut ends => match ended {
                Ok(()) => break,
                Err(_) => return false,
            },
            // Keep-alives go on.
            event = admin.next_event() => if event.is_err() {
                return false;
            },
        }
    }
    // A controller also closes its connections when it is taken down, or when its keep-alive timer expires while this
    // host stands still, perhaps before it has executed everything. This controller still answered after it had
    // closed them.
    admin.shutdown().await
}

/// Reads and discards what still arrives. The requests it answers are held, and will be repeated.
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

/// Resets the socket when dropped, so that undelivered bytes are never delivered.
struct ResetOnDrop(OwnedFd);

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        reactor::reset(&self.0);
    }
}
