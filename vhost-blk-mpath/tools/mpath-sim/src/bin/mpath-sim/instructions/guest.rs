//! A guest, and the device's side of its virtqueue. Only the work of the device's side is counted.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread;

use mpath_sim::{BlockGuest, BlockOp};
use vhost_user_blk::{BlkStatus, DiskGeometry, Queue, QueueRunner, SECTOR_BYTES, VirtioDisk, serve_connection};

use super::meter::Work;

pub(super) const BLOCK_BYTES: u32 = 4096;
pub(super) const BLOCKS: u64 = 1024;

struct QueueSink(mpsc::Sender<Queue>);

impl QueueRunner for QueueSink {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        self.0.send(queue).map_err(|mpsc::SendError(queue)| queue)
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        indices.iter().map(|_| None).collect()
    }
}

/// Returns a guest that is connected, and the device's side of its virtqueue.
pub(super) fn connected(op: BlockOp, are_packed: bool, depth: usize) -> (BlockGuest, Queue) {
    let (device, driver) = UnixStream::pair().expect("a socket");
    let geometry = DiskGeometry::new(BLOCKS * u64::from(BLOCK_BYTES) / SECTOR_BYTES, BLOCK_BYTES);
    let disk = Arc::new(VirtioDisk::new(geometry).expect("a plain disk"));
    let (started, queues) = mpsc::channel();
    thread::spawn(move || serve_connection(device, &disk, &QueueSink(started)));
    let guest = BlockGuest::connect(&driver, op, are_packed, depth);
    (guest, queues.recv().expect("the virtqueue has started"))
}

/// The device takes a request and answers it.
pub(super) fn walk(op: BlockOp, are_packed: bool) -> Work {
    let (mut guest, mut queue) = connected(op, are_packed, 1);
    Box::new(move |meter, requests| {
        for _ in 0..requests {
            guest.submit(0);
            meter.count(|| {
                let request = queue.pop().expect("the ring is sound").expect("a request is available");
                queue.complete(request, BlkStatus::Ok);
                queue.publish();
            });
            assert_eq!(guest.reap(), 1);
        }
    })
}
