//! The vhost-user side of the daemon for one disk: the code that ships, on a thread of its own. It runs only while the simulator
//! waits for it, so that a seed is the same run each time.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use vhost_user_blk::{Disk, DiskGeometry, Queue, QueueSink, SECTOR_BYTES, serve_connection};

use super::DiskPlan;

/// Virtqueues that are to be given back, drained.
pub(super) struct Stop {
    pub(super) indices: Vec<u16>,
    reply: mpsc::SyncSender<Vec<Option<Queue>>>,
}

/// Hands virtqueues on, and takes them back unless the daemon is killed before.
struct Sink {
    started: mpsc::Sender<Queue>,
    stops: mpsc::Sender<Stop>,
}

impl QueueSink for Sink {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.started.send(queue).map_err(|mpsc::SendError(queue)| queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        if indices.is_empty() {
            return Vec::new();
        }
        let (reply, drained) = mpsc::sync_channel(1);
        let is_killed = self.stops.send(Stop { indices: indices.to_vec(), reply }).is_err();
        let drained = drained.recv().ok().filter(|_| !is_killed);
        drained.unwrap_or_else(|| indices.iter().map(|_| None).collect())
    }
}

/// A connection of a front-end.
pub(super) struct Served {
    disk: Arc<Disk>,
    started: mpsc::Receiver<Queue>,
    stops: mpsc::Receiver<Stop>,
    thread: JoinHandle<()>,
}

impl Served {
    /// Serves a front-end: the daemon's end of the connection, and the machine's.
    pub(super) fn start(plan: &DiskPlan, blocks: u64) -> (Self, UnixStream) {
        let sectors = sectors(plan, blocks);
        let geometry = DiskGeometry {
            num_queues: plan.queues,
            queue_size_max: 64,
            max_discard_sectors: sectors as u32,
            max_write_zeroes_sectors: sectors as u32,
            ..DiskGeometry::new(sectors, plan.block_bytes)
        };
        let disk = Arc::new(Disk::new(geometry).expect("a disk as the daemon makes it"));
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        let ((started, queues), (stops, to_stop)) = (mpsc::channel(), mpsc::channel());
        let served = Arc::clone(&disk);
        let serve = move || {
            // How it ended is the front-end's affair.
            let _ = serve_connection(ours, &served, &Sink { started, stops });
        };
        (Self { disk, started: queues, stops: to_stop, thread: std::thread::spawn(serve) }, theirs)
    }

    /// The disk has so many blocks from now on.
    pub(super) fn grow(&self, plan: &DiskPlan, blocks: u64) {
        self.disk.grow(sectors(plan, blocks)).expect("a size as the daemon shows it");
    }

    /// The virtqueues that the front-end has running.
    pub(super) fn started(&self) -> impl Iterator<Item = Queue> {
        self.started.try_iter()
    }

    /// The front-end has hung up: what is to be drained.
    pub(super) fn hung_up(&self) -> Stop {
        self.stops.recv().expect("virtqueues are taken back at the end of a connection")
    }

    /// The virtqueues are drained.
    pub(super) fn drained(self, stop: &Stop, queues: Vec<Option<Queue>>) {
        stop.reply.send(queues).expect("it waits for them");
        self.thread.join().expect("it serves to the end");
    }

    /// The daemon is killed. To be waited for when the front-end has hung up.
    pub(super) fn kill(self) -> JoinHandle<()> {
        self.thread
    }
}

fn sectors(plan: &DiskPlan, blocks: u64) -> u64 {
    blocks * u64::from(plan.block_bytes) / SECTOR_BYTES
}
