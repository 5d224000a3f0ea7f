//! The front-end's side of one disk: its listening socket, and virtqueues on their way to the I/O threads.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use mpath_api::socket::ListeningSocket;
use mpath_api::types::EventKind;
use mpath_core::DiskId;
use reactor::IoThreadHandle;
use vhost_user_blk::{Disk as FrontendDisk, Queue, QueueSink, serve_connection};

use crate::disk::Disk;
use crate::subsystem::Subsystem;

/// After a failure to accept (out of descriptors, say) the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A disk whose namespace is known.
#[derive(Clone)]
pub(crate) struct ServedDisk {
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) id: DiskId,
}

impl ServedDisk {
    fn disk(&self) -> &Disk {
        self.subsystem.disk(self.id)
    }

    fn shown(&self) -> &Arc<FrontendDisk> {
        &self.disk().served().expect("its namespace is known").frontend
    }

    /// Deals out virtqueues to the I/O threads by their index. Disks with one virtqueue each are not all on the first thread.
    fn thread(&self, queue: u16) -> &IoThreadHandle {
        let threads = self.subsystem.threads();
        &threads[(usize::from(self.id.0) + usize::from(queue)) % threads.len()]
    }
}

impl QueueSink for ServedDisk {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        let (thread, flow) = (self.thread(queue.index()), self.disk().flow(queue.index()));
        thread.start_queue(self.id, flow, queue).map_err(|queue| *queue)
    }

    fn stop(&self, index: u16) -> Option<Queue> {
        self.thread(index).stop_queue(self.disk().flow(index))
    }
}

/// The thread that serves the vhost-user socket of one disk: one front-end at a time, the next one when it has left.
pub(crate) struct FrontendThread {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
    socket: ListeningSocket,
}

#[derive(Default)]
struct Shared {
    ending: AtomicBool,
    /// The connection being served, to hang up on it.
    connection: Mutex<Option<UnixStream>>,
}

impl FrontendThread {
    /// Starts to accept front-ends.
    pub(crate) fn start(disk: ServedDisk, socket: ListeningSocket) -> io::Result<Self> {
        let listener = socket.listener()?;
        listener.set_nonblocking(false)?;
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("vhost-user".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&disk, &listener)
        })?;
        Ok(Self { thread, shared, socket })
    }

    /// Hangs up on the front-end, takes the virtqueues back and ends. The I/O threads must still run.
    pub(crate) fn shutdown(self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        // Ends a wait in accept; there is no other way to fail.
        let _ = self.socket.end_accept();
        if let Some(connection) = &*self.shared.connection.lock().unwrap_or_else(PoisonError::into_inner) {
            // Fails only if the front-end hung up first.
            let _ = connection.shutdown(Shutdown::Both);
        }
        if self.thread.join().is_err() {
            tracing::error!("vhost-user thread panicked");
        }
    }
}

impl Shared {
    fn accept(&self, disk: &ServedDisk, listener: &UnixListener) {
        while !self.ending.load(Ordering::SeqCst) {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) if self.ending.load(Ordering::SeqCst) => return,
                Err(error) => {
                    tracing::warn!(disk = disk.disk().name(), %error, "the vhost-user socket does not accept");
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            self.serve(disk, stream);
        }
    }

    fn serve(&self, served: &ServedDisk, stream: UnixStream) {
        let (subsystem, disk) = (&served.subsystem, served.disk());
        let hang_up = stream.try_clone().ok();
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = hang_up;
        // Whoever ended us before the line above did not see the connection; whoever comes after does.
        if self.ending.load(Ordering::SeqCst) {
            return;
        }
        disk.set_connected(true);
        disk.event(EventKind::FrontEndConnected, "front-end connected");
        // What a daemon before this one had in flight may still be executed. The front-end is answered meanwhile: a QEMU that waits
        // for an answer stands still, and its guest with it.
        if let Some(until) = subsystem.inherited_fence() {
            subsystem.threads().iter().for_each(|thread| thread.hold_disk(disk.id, until));
        }
        // The one before may have left writes behind whose fate is not known: what this one writes shall not be overwritten
        // by them.
        subsystem.threads().iter().for_each(|thread| thread.settle_doubts(disk.id));
        let end = serve_connection(stream, served.shown(), served);
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
        disk.set_connected(false);
        let message = match end {
            Ok(()) => "front-end disconnected".into(),
            Err(error) => format!("front-end lost: {error}"),
        };
        disk.event(EventKind::FrontEndDisconnected, message);
    }
}
