//! A connection of a front-end, served by the shipping code on a thread of its own. The thread runs only while the simulator waits
//! for it, so that each run of a seed is the same.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use vhost_user_blk::{DiskGeometry, Queue, QueueRunner, SECTOR_BYTES, VirtioDisk, serve_connection};

use super::plan::DiskPlan;

/// The longest real time until the thread has its next event.
const EVENT_MAX: Duration = Duration::from_secs(30);

/// An order to drain virtqueues and give them back.
pub(super) struct StopQueues {
    pub(super) indices: Vec<u16>,
    reply: mpsc::SyncSender<Vec<Option<Queue>>>,
}

impl StopQueues {
    /// The virtqueues are drained.
    pub(super) fn drained(self, queues: Vec<Option<Queue>>) {
        self.reply.send(queues).expect("it waits for them");
    }
}

/// An event of the connection.
pub(super) enum FrontEndEvent {
    /// Virtqueues are to stop.
    Stop(StopQueues),
    /// The front-end has got an answer, such as the base of a virtqueue that it has stopped. Or the daemon has hung up on it.
    Answer(Result<u32, vhost::Error>),
    /// The connection has ended.
    Ended,
}

/// Sends [`FrontEndEvent::Ended`] when it is dropped, so that no end of the connection is missed.
struct EndNotice(mpsc::Sender<FrontEndEvent>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        // The receiver is gone if the daemon was killed.
        let _ = self.0.send(FrontEndEvent::Ended);
    }
}

/// Passes virtqueues on, and takes them back unless the daemon is killed before.
struct QueueSink {
    started: mpsc::Sender<Queue>,
    events: mpsc::Sender<FrontEndEvent>,
}

impl QueueRunner for QueueSink {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.started.send(queue).map_err(|mpsc::SendError(queue)| queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        if indices.is_empty() {
            return Vec::new();
        }
        let (reply, drained) = mpsc::sync_channel(1);
        let is_killed = self.events.send(FrontEndEvent::Stop(StopQueues { indices: indices.to_vec(), reply })).is_err();
        let drained = drained.recv().ok().filter(|_| !is_killed);
        drained.unwrap_or_else(|| indices.iter().map(|_| None).collect())
    }
}

/// A connection of a front-end.
pub(super) struct FrontEndConnection {
    disk: Arc<VirtioDisk>,
    started: mpsc::Receiver<Queue>,
    events: mpsc::Receiver<FrontEndEvent>,
    event_sender: mpsc::Sender<FrontEndEvent>,
    thread: JoinHandle<()>,
}

impl FrontEndConnection {
    /// Serves a front-end: the daemon's end of the connection, and the front-end's.
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
        let ((started, queues), (event_sender, events)) = (mpsc::channel(), mpsc::channel());
        let sink = QueueSink { started, events: event_sender.clone() };
        let served = Arc::clone(&disk);
        let serve = {
            let notice = EndNotice(event_sender.clone());
            move || {
                // Every end of the connection is legal.
                let _ = serve_connection(ours, &served, &sink);
                drop(notice);
            }
        };
        (Self { disk, started: queues, events, event_sender, thread: std::thread::spawn(serve) }, theirs)
    }

    /// The disk grows to `blocks` blocks.
    pub(super) fn grow(&self, plan: &DiskPlan, blocks: u64) {
        self.disk.grow(sectors(plan, blocks)).expect("a size as the daemon shows it");
    }

    /// The virtqueues that the front-end has started.
    pub(super) fn started(&self) -> impl Iterator<Item = Queue> {
        self.started.try_iter()
    }

    /// Has the front-end wait for an answer, on a thread of its own. The answer comes as an event.
    pub(super) fn await_answer(&self, answer: impl FnOnce() -> Result<u32, vhost::Error> + Send + 'static) {
        let events = self.event_sender.clone();
        // The receiver is gone if the daemon is killed or the front-end hangs up.
        std::thread::spawn(move || drop(events.send(FrontEndEvent::Answer(answer()))));
    }

    /// Waits for the next event. There must be one.
    pub(super) fn next(&self) -> FrontEndEvent {
        self.events.recv_timeout(EVENT_MAX).expect("a connection that ends says so")
    }

    /// Waits for the thread of a connection that has ended.
    pub(super) fn join(self) {
        self.thread.join().expect("it serves to the end");
    }

    /// Forgets the connection, because the daemon is killed. Returns its thread, which ends when the front-end has hung up.
    pub(super) fn kill(self) -> JoinHandle<()> {
        self.thread
    }
}

fn sectors(plan: &DiskPlan, blocks: u64) -> u64 {
    blocks * u64::from(plan.block_bytes) / SECTOR_BYTES
}
