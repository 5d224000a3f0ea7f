//! A scripted guest for the `vhost` crate's front-end: memory in a file, one ring per queue. The daemon's tests use it
//! too.

mod ring;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use patience::PATIENCE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, fallocate};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo};
use virtio_guest::features::{PACKED, PROTOCOL_FEATURES, VERSION_1};
use virtio_guest::{
    DirtyLog, GUEST_START, PAGE_BYTES, RingLayout, Virtqueue, WRITE, memory_file, memory_region, ring_addresses,
    set_vring_base,
};
use vmm_sys_util::eventfd::EventFd;

const QUEUE_SIZE: u16 = 64;
/// Offsets in a queue's part of memory.
const AVAILABLE: u64 = 0x800;
const USED: u64 = 0x1000;
const REQUESTS: u64 = 0x2000;
const QUEUE_BYTES: u64 = 0x8_0000;
/// Header, status and 4 KiB of data of a request.
const REQUEST_BYTES: u64 = 0x1200;
const STATUS: u64 = 0x10;
const DATA: u64 = 0x200;

pub(crate) const MEMORY_BYTES: u64 = 4 * QUEUE_BYTES;

/// A driver's ring with requests in slots. Each slot has three descriptors.
pub(crate) struct Ring {
    pub(crate) index: usize,
    /// The ring has a chain of three buffers for each request.
    pub(crate) driver: virtio_guest::Ring,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    memory: File,
    /// A second memory that gets the driver's writes too.
    copy: Option<File>,
}

pub(crate) struct Guest {
    pub(crate) frontend: Frontend,
    memory: File,
    packed: bool,
}

impl Guest {
    /// Connects and negotiates `features` and all protocol features.
    pub(crate) fn connect(socket: &Path, features: u64) -> Self {
        Self::over(UnixStream::connect(socket).unwrap(), features)
    }

    /// As [`connect`](Self::connect), on a stream that is connected.
    pub(crate) fn over(stream: UnixStream, features: u64) -> Self {
        Self::arriving(stream, features, memory_file(MEMORY_BYTES))
    }

    /// Like [`over`](Self::over), for a guest that ran elsewhere before, with its memory.
    pub(crate) fn arriving(stream: UnixStream, features: u64, memory: File) -> Self {
        Self { frontend: negotiate(stream, features), memory, packed: features & PACKED != 0 }
    }

    /// Pages of the memory.
    pub(crate) const PAGES: u64 = MEMORY_BYTES / PAGE_BYTES;

    /// Cuts off the memory after `bytes`.
    pub(crate) fn cut_off(&self, bytes: u64) {
        self.memory.set_len(bytes).unwrap();
    }

    /// Makes the file system free these bytes of the memory.
    pub(crate) fn punch(&self, bytes: Range<u64>) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&self.memory, flags, bytes.start, bytes.end - bytes.start).unwrap();
    }

    /// A copy of the memory in another file.
    pub(crate) fn copy_memory(&self) -> File {
        let copy = memory_file(MEMORY_BYTES);
        copy_pages(&self.memory, &copy, 0..Self::PAGES);
        copy
    }

    /// Copies these pages of the memory to another one. Returns the pages that still differ.
    pub(crate) fn copy_marked(&self, to: &File, marked: &[u64]) -> Vec<u64> {
        copy_pages(&self.memory, to, marked.iter().copied());
        let differs = |page: &u64| page_of(&self.memory, *page) != page_of(to, *page);
        (0..Self::PAGES).filter(differs).collect()
    }

    /// The front-end hangs up. The guest stays.
    pub(crate) fn hang_up(&mut self) {
        self.frontend = Frontend::from_stream(UnixStream::pair().unwrap().0, 4);
    }

    /// The same guest, with a front-end that reconnects.
    pub(crate) fn reconnect(&mut self, stream: UnixStream, features: u64) {
        self.frontend = negotiate(stream, features);
        self.share_memory();
    }

    /// The front-end's end of a new back-end channel, for notifications of changes.
    pub(crate) fn listen(&mut self) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        // Waits for an answer, as QEMU does.
        self.frontend.set_backend_request_fd(&theirs.as_raw_fd()).unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        ours
    }

    /// The capacity in the configuration space.
    pub(crate) fn capacity_sectors(&mut self) -> u64 {
        let config = self.frontend.get_config(0, 8, VhostUserConfigFlags::empty(), &[0; 8]).unwrap().1;
        u64::from_le_bytes(config.try_into().unwrap())
    }

    /// In-flight memory for all queues.
    pub(crate) fn get_inflight(&mut self) -> (VhostUserInflight, File) {
        self.get_inflight_for(QUEUE_SIZE)
    }

    /// In-flight memory for all queues, asked for with this queue size.
    pub(crate) fn get_inflight_for(&mut self, queue_size: u16) -> (VhostUserInflight, File) {
        self.frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 4, queue_size)).unwrap()
    }

    pub(crate) fn set_inflight(&mut self, (told, file): &(VhostUserInflight, File)) {
        self.frontend.set_inflight_fd(told, file.as_raw_fd()).unwrap();
    }
}

fn page_of(memory: &File, page: u64) -> [u8; PAGE_BYTES as usize] {
    let mut bytes = [0; PAGE_BYTES as usize];
    memory.read_exact_at(&mut bytes, page * PAGE_BYTES).unwrap();
    bytes
}

fn copy_pages(from: &File, to: &File, pages: impl Iterator<Item = u64>) {
    for page in pages {
        to.write_all_at(&page_of(from, page), page * PAGE_BYTES).unwrap();
    }
}

/// `CONFIG_CHANGE_MSG`, version 1, no reply wanted, no body.
const CONFIG_CHANGED: [u32; 3] = [2, 1, 0];

/// Checks that the front-end is notified of a changed configuration space.
pub(crate) fn assert_told(channel: &mut UnixStream) {
    let mut message = [0; 12];
    channel.read_exact(&mut message).expect("told of the change");
    let words: Vec<_> = message.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    assert_eq!(words, CONFIG_CHANGED);
}

/// Waits for a descriptor. The test fails if nothing comes.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = PATIENCE.try_into().unwrap();
    assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1, "nothing came");
}

fn negotiate(stream: UnixStream, features: u64) -> Frontend {
    let mut frontend = Frontend::from_stream(stream, 4);
    frontend.set_owner().unwrap();
    assert_eq!(features & !frontend.get_features().unwrap(), 0);
    if features & PROTOCOL_FEATURES != 0 {
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD
            | VhostUserProtocolFeatures::LOG_SHMFD
            | VhostUserProtocolFeatures::BACKEND_REQ;
        assert_eq!(frontend.get_protocol_features().unwrap(), wanted);
        frontend.set_protocol_features(wanted).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert_eq!(frontend.get_queue_num().unwrap(), 4);
    }
    frontend.set_features(features | VERSION_1).unwrap();
    frontend
}

impl Guest {
    pub(crate) fn region(&self) -> VhostUserMemoryRegionInfo {
        memory_region(&self.memory, MEMORY_BYTES)
    }

    pub(crate) fn share_memory(&self) {
        self.frontend.set_mem_table(&[self.region()]).unwrap();
    }

    /// A new queue with complete set-up except for its kick descriptor.
    pub(crate) fn set_up(&self, index: usize) -> Ring {
        let ring = Ring {
            index,
            driver: virtio_guest::Ring::new(self.layout(index)),
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(0).unwrap(),
            memory: self.memory.try_clone().unwrap(),
            copy: None,
        };
        self.tell(&ring, ring.position());
        ring
    }

    /// Passes the set-up of a queue except for its kick descriptor.
    fn tell(&self, ring: &Ring, position: u32) {
        let index = ring.index;
        let frontend = &self.frontend;
        frontend.set_vring_num(index, QUEUE_SIZE).unwrap();
        self.set_vring_base(index, position);
        self.set_addresses(index, false);
        frontend.set_vring_call(index, &ring.call).unwrap();
    }

    /// Passes the addresses of a queue, and whether its used ring is to be marked in the dirty log.
    pub(crate) fn set_addresses(&self, index: usize, logged: bool) {
        self.frontend.set_vring_addr(index, &ring_addresses(&self.layout(index), logged)).unwrap();
    }

    fn layout(&self, index: usize) -> RingLayout {
        let start = GUEST_START + index as u64 * QUEUE_BYTES;
        RingLayout {
            is_packed: self.packed,
            has_event_idx: false,
            size: QUEUE_SIZE,
            descriptors: start,
            available: start + AVAILABLE,
            used: start + USED,
        }
    }

    /// Negotiates other features than at the connection.
    pub(crate) fn set_features(&self, features: u64) {
        self.frontend.set_features(features | VERSION_1).unwrap();
    }

    /// Bytes of a dirty log for all of memory.
    pub(crate) const LOG_BYTES: u64 = DirtyLog::bytes_for(MEMORY_BYTES);

    /// Passes a dirty log of `bytes`, in a file of `file_bytes`.
    pub(crate) fn set_log(&self, bytes: u64, file_bytes: u64) -> Result<DirtyLog, vhost::Error> {
        let log = DirtyLog::new(bytes, file_bytes);
        self.frontend.set_log_base(0, Some(log.region())).map(|()| log)
    }

    /// A running queue.
    pub(crate) fn start(&mut self, index: usize) -> Ring {
        let ring = self.set_up(index);
        self.run(&ring);
        ring
    }

    /// Runs a queue that the guest had before, with the start position `position`.
    pub(crate) fn restart(&mut self, ring: &Ring, position: u32) {
        self.tell(ring, position);
        self.run(ring);
    }

    /// Runs a queue that comes from elsewhere: in this guest's memory, and with other descriptors.
    pub(crate) fn restart_here(&mut self, ring: &mut Ring, position: u32) {
        (ring.memory, ring.copy) = (self.memory.try_clone().unwrap(), None);
        (ring.kick, ring.call) = (EventFd::new(0).unwrap(), EventFd::new(0).unwrap());
        self.restart(ring, position);
    }

    pub(crate) fn set_vring_base(&self, index: usize, position: u32) {
        set_vring_base(&self.frontend, index, position).unwrap();
    }

    fn run(&mut self, ring: &Ring) {
        self.frontend.set_vring_kick(ring.index, &ring.kick).unwrap();
        self.frontend.set_vring_enable(ring.index, true).unwrap();
    }
}
