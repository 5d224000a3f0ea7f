//! Test helpers: real requests of a real virtqueue, without a guest.

mod controller;
mod rig;
mod two_paths;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use memmap2::{MmapOptions, MmapRaw};
use monotonic::{Duration, Instant};
use mpath_core::{DiskId, FlowId, Group};
use rustix::fs::{MemfdFlags, memfd_create};
use vhost_user_blk::{DiskGeometry, Queue, QueueRunner, Request, VirtioDisk, serve_connection};
use virtio_driver::{VhostUser, VirtioBlkFeatureFlags, VirtioBlkQueue, VirtioBlkTransport, VirtioFeatureFlags};

use crate::{DiskQueues, IoThreadHandle, IoThreads, PathEvent, PathSetPart};

pub(crate) use controller::Controller;
pub(crate) use rig::Rig;
pub(crate) use two_paths::{completes, stats, two_paths};

/// The usual disk and its only virtqueue.
pub(crate) const DISK: DiskId = DiskId(0);
pub(crate) const FLOW: FlowId = FlowId(7);

pub(crate) use patience::{PATIENCE as TIMEOUT, eventually};

const BUFFER_BYTES: usize = 1 << 20;
const QUEUE_SIZE: u16 = 64;
const BLOCK_SIZE: u32 = 4096;

/// Holds the virtqueue until a test takes it.
#[derive(Default)]
struct QueueHolder(Mutex<Option<Queue>>);

impl QueueHolder {
    fn put(&self, queue: Option<Queue>) -> Option<Queue> {
        std::mem::replace(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), queue)
    }
}

impl QueueRunner for QueueHolder {
    fn start(&self, queue: Queue) -> Result<(), Queue> {
        assert!(self.put(Some(queue)).is_none(), "one virtqueue");
        Ok(())
    }

    fn stop(&self, indices: &[u16]) -> Vec<Option<Queue>> {
        indices.iter().map(|_| self.put(None)).collect()
    }
}

/// A driver and the virtqueue of its device.
pub(crate) struct Guest {
    /// Declared before the transport, which owns the memory of the queue.
    driver: VirtioBlkQueue<'static, usize>,
    transport: Box<VirtioBlkTransport>,
    memory: MmapRaw,
    /// The file behind that memory.
    buffers: File,
    holder: Arc<QueueHolder>,
}

impl Guest {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let holder = Arc::new(QueueHolder::default());
        let sink = Arc::clone(&holder);
        thread::spawn(move || {
            let geometry = DiskGeometry {
                max_discard_sectors: 2048,
                max_write_zeroes_sectors: 2048,
                ..DiskGeometry::new(8192, BLOCK_SIZE)
            };
            let disk = Arc::new(VirtioDisk::new(geometry).unwrap());
            let _ = serve_connection(listener.accept().unwrap().0, &disk, &*sink);
        });
        let features = VirtioFeatureFlags::VERSION_1.bits() | VirtioBlkFeatureFlags::all().bits();
        let transport = VhostUser::new(socket.to_str().unwrap(), features).unwrap();
        let mut transport: Box<VirtioBlkTransport> = Box::new(transport);
        let queues = VirtioBlkQueue::setup_queues(&mut *transport, 1, QUEUE_SIZE).unwrap();
        let file = File::from(memfd_create("buffers", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(BUFFER_BYTES as u64).unwrap();
        let memory = MmapOptions::new().len(BUFFER_BYTES).map_raw(&file).unwrap();
        transport.map_mem_region(memory.as_ptr() as usize, BUFFER_BYTES, file.as_raw_fd(), 0).unwrap();
        // An answer to any message shows that all earlier messages are carried out.
        transport.get_config().unwrap();
        Self { driver: queues.into_iter().next().unwrap(), transport, memory, buffers: file, holder }
    }

    /// Fills the buffer of reads and writes.
    pub(crate) fn fill(&self, byte: u8) {
        self.buffers.write_all_at(&vec![byte; BUFFER_BYTES], 0).unwrap();
    }

    /// Cuts off that buffer after `bytes`. The rest cannot be read any more.
    pub(crate) fn cut_off(&self, bytes: usize) {
        self.buffers.set_len(bytes as u64).unwrap();
    }

    /// The virtqueue on the device's side. Requests of this guest come out of it.
    pub(crate) fn queue(&self) -> Queue {
        self.holder.put(None).expect("taken once")
    }

    pub(crate) fn kick(&self) {
        self.transport.get_submission_notifier(0).notify().unwrap();
    }

    /// Whether the device asks for a kick on the next request.
    pub(crate) fn has_to_kick(&mut self) -> bool {
        self.driver.avail_notif_needed()
    }

    /// Queues a read of `bytes` at `offset` of the disk.
    pub(crate) fn read(&mut self, offset: u64, bytes: usize) {
        assert!(bytes <= BUFFER_BYTES);
        // SAFETY: in the mapping, which lives as long as the driver, and nobody looks at it.
        unsafe { self.driver.read_raw(offset, self.memory.as_mut_ptr(), bytes, 0).unwrap() }
    }

    /// Queues a write of `bytes` at `offset` of the disk.
    pub(crate) fn write(&mut self, offset: u64, bytes: usize) {
        assert!(bytes <= BUFFER_BYTES);
        // SAFETY: as for `read`.
        unsafe { self.driver.write_raw(offset, self.memory.as_ptr(), bytes, 0).unwrap() }
    }

    pub(crate) fn flush(&mut self) {
        self.driver.flush(0).unwrap();
    }

    pub(crate) fn discard(&mut self, offset: u64, bytes: u64) {
        self.driver.discard(offset, bytes, 0).unwrap();
    }

    pub(crate) fn write_zeroes(&mut self, offset: u64, bytes: u64, unmap: bool) {
        self.driver.write_zeroes(offset, bytes, unmap, 0).unwrap();
    }

    /// The first bytes of the buffer.
    pub(crate) fn memory(&self, bytes: usize) -> Vec<u8> {
        assert!(bytes <= BUFFER_BYTES);
        let first = self.memory.as_ptr();
        // SAFETY: in the mapping; volatile, since the device writes it from other threads.
        (0..bytes).map(|at| unsafe { first.add(at).read_volatile() }).collect()
    }

    /// Results of completed requests.
    pub(crate) fn results(&mut self) -> Vec<i32> {
        self.driver.completions().map(|completion| completion.ret).collect()
    }
}

/// An I/O thread with this group, and a disk.
pub(crate) fn start_thread(
    group: Group,
    poll_limit: Duration,
    report: impl Fn(PathEvent) + Send + 'static,
) -> IoThreadHandle {
    let threads = IoThreads::start(1).unwrap();
    let part = PathSetPart { group, poll_limit, report: Box::new(report) };
    let thread = threads.place([part].into_iter()).pop().unwrap();
    thread.add_disk(DISK, "disk".into(), 4096, Arc::new(DiskQueues::new(0, Instant::now())));
    thread
}

/// Starts a virtqueue of the usual disk, the first one that a front-end starts.
pub(crate) fn start_queue(thread: &IoThreadHandle, flow: FlowId, queue: Queue) -> Result<(), Box<Queue>> {
    thread.start_queue(&DiskQueues::new(0, Instant::now()), DISK, flow, queue)
}

/// Drains the usual virtqueue, the first one that a front-end stops, and waits for it.
pub(crate) fn stop_queue(thread: &IoThreadHandle) -> Option<Queue> {
    thread.begin_stop(&DiskQueues::new(0, Instant::now()), FLOW).wait()
}

/// The next request of a virtqueue that has one.
pub(crate) fn pop(queue: &mut Queue) -> Request {
    queue.pop().unwrap().expect("the guest has queued something")
}
