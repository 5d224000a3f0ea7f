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
use reactor::IoThreadHandle;
use vhost_user_blk::{Disk as FrontendDisk, Queue, QueueSink, serve_connection};

use crate::disk::Disk;

/// After a failure to accept (out of descriptors, say) the next attempt waits this long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a wait for inherited fences looks whether the daemon ends.
const FENCE_PAUSE: Duration = Duration::from_millis(50);

/// Deals out virtqueues to the I/O threads by their index.
struct Dealer(Arc<Disk>);

impl Dealer {
    fn thread(&self, index: u16) -> &IoThreadHandle {
        let threads = self.0.threads();
        &threads[usize::from(index) % threads.len()]
    }
}

impl QueueSink for Dealer {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.thread(queue.index()).start_queue(queue).map_err(|queue| *queue)
    }

    fn stop(&self, index: u16) -> Option<Queue> {
        self.thread(index).stop_queue(index)
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
    /// Starts to accept front-ends for a disk whose namespace is known.
    pub(crate) fn start(disk: Arc<Disk>, shown: Arc<FrontendDisk>, socket: ListeningSocket) -> io::Result<Self> {
        let listener = socket.listener()?;
        listener.set_nonblocking(false)?;
        let shared = Arc::new(Shared::default());
        let thread = thread::Builder::new().name("vhost-user".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.accept(&disk, &shown, &listener)
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
    fn accept(&self, disk: &Arc<Disk>, shown: &Arc<FrontendDisk>, listener: &UnixListener) {
        let sink = Dealer(Arc::clone(disk));
        while !self.ending.load(Ordering::SeqCst) {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(_) if self.ending.load(Ordering::SeqCst) => return,
                Err(error) => {
                    tracing::warn!(disk = %disk.config.name, %error, "the vhost-user socket does not accept");
                    thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            self.serve(disk, shown, stream, &sink);
        }
    }

    fn serve(&self, disk: &Disk, shown: &Arc<FrontendDisk>, stream: UnixStream, sink: &Dealer) {
        let hang_up = stream.try_clone().ok();
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = hang_up;
        // Whoever ended us before the line above did not see the connection; whoever comes after does.
        if self.ending.load(Ordering::SeqCst) {
            return;
        }
        disk.set_connected(true);
        disk.event(None, EventKind::FrontEndConnected, "front-end connected");
        while let Some(wait) = disk.inherited_fence() {
            if self.ending.load(Ordering::SeqCst) {
                return;
            }
            thread::sleep(wait.min(FENCE_PAUSE));
        }
        // The one before may have left writes behind whose fate is not known: what this one writes shall not be overwritten
        // by them.
        disk.threads().iter().for_each(IoThreadHandle::settle_doubts);
        let served = serve_connection(stream, shown, sink);
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = None;
        disk.set_connected(false);
        let message = match served {
            Ok(()) => "front-end disconnected".into(),
            Err(error) => format!("front-end lost: {error}"),
        };
        disk.event(None, EventKind::FrontEndDisconnected, message);
    }
}
