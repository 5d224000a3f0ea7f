//! The vhost-user side of the daemon for one disk: the code that ships, on a thread of its own. It runs only while the simulator
//! waits for it, so that a seed is the same run each time.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use vhost_user_blk::{Disk, DiskGeometry, Queue, QueueSink, SECTOR_BYTES, serve_connection};

use super::DiskPlan;

/// Hands virtqueues on. They come back only with the end of the daemon, which is a kill.
struct Sink(mpsc::Sender<Queue>);

impl QueueSink for Sink {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.0.send(queue).map_err(|mpsc::SendError(queue)| queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        indices.iter().map(|_| None).collect()
    }
}

/// A connection of a front-end.
#[derive(Debug)]
pub(super) struct Served {
    started: mpsc::Receiver<Queue>,
    thread: JoinHandle<()>,
}

impl Served {
    /// Serves a front-end: the daemon's end of the connection, and the machine's.
    pub(super) fn start(plan: &DiskPlan) -> (Self, UnixStream) {
        let sectors = plan.namespace.blocks * u64::from(plan.block_bytes) / SECTOR_BYTES;
        let geometry = DiskGeometry {
            num_queues: plan.queues,
            queue_size_max: 64,
            max_discard_sectors: sectors as u32,
            max_write_zeroes_sectors: sectors as u32,
            ..DiskGeometry::new(sectors, plan.block_bytes)
        };
        let disk = Arc::new(Disk::new(geometry).expect("a disk as the daemon makes it"));
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        let (sink, started) = mpsc::channel();
        let serve = move || {
            // It ends with the daemon.
            let _ = serve_connection(ours, &disk, &Sink(sink));
        };
        (Self { started, thread: std::thread::spawn(serve) }, theirs)
    }

    /// The virtqueues that the front-end has running.
    pub(super) fn started(&self) -> impl Iterator<Item = Queue> {
        self.started.try_iter()
    }

    /// The machine has hung up, as the daemon is gone.
    pub(super) fn end(self) {
        self.thread.join().expect("it serves to the end");
    }
}
