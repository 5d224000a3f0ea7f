//! Drives the fences of a subsystem: time, draining sockets, and Cross-Controller Resets over other paths.

use std::future::pending;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use mpath_host::{AssociationId, LiftedFence};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

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

/// An association that drains: the host has ended its connections, and the controller is to close them.
pub(crate) struct Draining {
    pub(crate) admin: AdminConnection,
    pub(crate) queues: Vec<DrainingSocket>,
}

/// The socket of an I/O queue whose sending side is shut down. Dropping it resets the connection, so that undelivered
/// bytes are never delivered.
pub(crate) struct DrainingSocket(pub(crate) OwnedFd);

impl DrainingSocket {
    /// Reads and discards what still arrives, until the end of the stream. The answered requests are held, and will be
    /// repeated. Cancel-safe.
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

/// Watches the sockets of an association that drains, until its fence is lifted or the daemon ends. The connections are
/// reset then.
pub(crate) async fn watch(subsystem: Arc<Subsystem>, of: AssociationId, draining: Draining) {
    let mut shutdown = subsystem.shutdown.clone();
    let executed = tokio::select! {
        executed = drain(draining) => executed,
        () = subsystem.fences.lifted_of(of) => return,
        _ = shutdown.wait_for(|shutdown| *shutdown) => return,
    };
    subsystem.fences.drained(of, executed);
}

/// Runs the controller to its end. Returns whether it has executed everything.
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
