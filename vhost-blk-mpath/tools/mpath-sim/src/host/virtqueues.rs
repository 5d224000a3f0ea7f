//! The vhost-user side of the daemon for one disk: the code that ships, on a thread of its own. It runs only while the simulator
//! waits for it, so that a seed is the same run each time.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use vhost_user_blk::{DiskGeometry, Queue, QueueRunner, SECTOR_BYTES, VirtioDisk, serve_connection};

use super::DiskPlan;

/// How long a thread may take, of real time, that has nothing to wait for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Virtqueues that are to be given back, drained.
pub(super) struct Stop {
    pub(super) indices: Vec<u16>,
    reply: mpsc::SyncSender<Vec<Option<Queue>>>,
}

impl Stop {
    /// The virtqueues are drained.
    pub(super) fn drained(self, queues: Vec<Option<Queue>>) {
        self.reply.send(queues).expect("it waits for them");
    }
}

/// The effect of a front-end's message, or of its end.
pub(super) enum Said {
    Stop(Stop),
    /// The front-end hears where a virtqueue stands that it has stopped, or is hung up on.
    Base(Result<u32, vhost::Error>),
    /// The connection is over.
    Over,
}

/// Says so however the connection ends.
struct Over(mpsc::Sender<Said>);

impl Drop for Over {
    fn drop(&mut self) {
        // The daemon may have been killed.
        let _ = self.0.send(Said::Over);
    }
}

/// Hands virtqueues on, and takes them back unless the daemon is killed before.
struct Sink {
    started: mpsc::Sender<Queue>,
    said: mpsc::Sender<Said>,
}

impl QueueRunner for Sink {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.started.send(queue).map_err(|mpsc::SendError(queue)| queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        if indices.is_empty() {
            return Vec::new();
        }
        let (reply, drained) = mpsc::sync_channel(1);
        let is_killed = self.said.send(Said::Stop(Stop { indices: indices.to_vec(), reply })).is_err();
        let drained = drained.recv().ok().filter(|_| !is_killed);
        drained.unwrap_or_else(|| indices.iter().map(|_| None).collect())
    }
}

/// A connection of a front-end.
pub(super) struct Served {
    disk: Arc<VirtioDisk>,
    started: mpsc::Receiver<Queue>,
    said: mpsc::Receiver<Said>,
    say: mpsc::Sender<Said>,
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
        let disk = Arc::new(VirtioDisk::new(geometry).expect("a disk as the daemon makes it"));
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        let ((started, queues), (say, said)) = (mpsc::channel(), mpsc::channel());
        let sink = Sink { started, said: say.clone() };
        let served = Arc::clone(&disk);
        let serve = {
            let over = Over(say.clone());
            move || {
                // How it ended is the front-end's affair.
                let _ = serve_connection(ours, &served, &sink);
                drop(over);
            }
        };
        (Self { disk, started: queues, said, say, thread: std::thread::spawn(serve) }, theirs)
    }

    /// The disk grows to `blocks` blocks.
    pub(super) fn grow(&self, plan: &DiskPlan, blocks: u64) {
        self.disk.grow(sectors(plan, blocks)).expect("a size as the daemon shows it");
    }

    /// The virtqueues that the front-end has running.
    pub(super) fn started(&self) -> impl Iterator<Item = Queue> {
        self.started.try_iter()
    }

    /// The front-end asks where a virtqueue stands and waits for the answer, on a thread of its own.
    pub(super) fn ask(&self, base: impl FnOnce() -> Result<u32, vhost::Error> + Send + 'static) {
        let say = self.say.clone();
        // The receiver is gone if the daemon is killed or the front-end hangs up.
        std::thread::spawn(move || drop(say.send(Said::Base(base()))));
    }

    /// Waits for what it says next. There must be something that it does.
    pub(super) fn next(&self) -> Said {
        self.said.recv_timeout(PATIENCE).expect("it says when it is over")
    }

    /// The connection is over.
    pub(super) fn over(self) {
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
