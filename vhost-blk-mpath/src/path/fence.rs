//! Drives the fences of a subsystem: time, draining sockets, and Cross-Controller Resets over other paths.

use std::future::pending;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpath_core::{Epoch, PathId};
use mpath_host::{AssociationId, ClosedAssociation, EndedAssociation, LiftedFence};
use nvme_tcp::wire::ControllerInstance;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

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
    pub(crate) admin: AdminConnection,
    pub(crate) queues: Vec<DrainingSocket>,
}

/// The socket of an I/O queue whose sending side is shut down. Dropping it resets the connection, so that undelivered
/// bytes are never delivered.
pub(crate) struct DrainingSocket(pub(crate) OwnedFd);

impl DrainingSocket {
    /// Reads and discards what still arrives, until the end of the stream. The requests it answers are held, and will
    /// be repeated. Cancel-safe.
    async fn read_to_end(&self) -> io::Result<()> {
        let socket = StdTcpStream::from(self.0.try_clone()?);
        socket.set_nonblocking(true)?;
        let mut socket = TcpStream::from_std(socket)?;
        let mut buffer = vec![0; 64 << 10];
        while socket.read(&mut buffer).await? > 0 {}
        Ok(())
    }
}

impl Drop for DrainingSocket {
    fn drop(&mut self) {
        reactor::reset(&self.0);
    }
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
            executed = drain(draining) => executed,
            // The dropped future resets the connections.
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

/// Drives the end of the controller. Returns whether it has executed everything. The connections are reset then.
async fn drain(Draining { mut admin, queues }: Draining) -> bool {
    let mut open = queues.iter();
    let mut queue = open.next();
    loop {
        let end = async {
            match queue {
                Some(queue) => queue.read_to_end().await,
                None => pending().await,
            }
        };
        tokio::select! {
            end = end => {
                admin.controller.queue_ended(Instant::now(), end.is_ok());
                queue = open.next();
            }
            confirmed = admin.confirmed() => match confirmed {
                Ok(confirmed) => return confirmed,
                Err(_) => admin.controller.admin_ended(),
            },
        }
    }
}
