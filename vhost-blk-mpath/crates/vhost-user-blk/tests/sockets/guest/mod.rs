//! A scripted guest for the `vhost` crate's front-end: memory in a file, one ring per queue. The daemon's tests use it
//! too.

mod ring;

use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use patience::PATIENCE;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserDirtyLogRegion, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(crate) const CONFIG_WCE: u64 = 1 << 11;
pub(crate) const FLUSH: u64 = 1 << 9;
pub(crate) const LOG_ALL: u64 = 1 << 26;
pub(crate) const PACKED: u64 = 1 << 34;
/// The features that make rings of each format.
pub(crate) const FORMATS: [u64; 2] = [0, PACKED];
const VERSION_1: u64 = 1 << 32;

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

/// Guest address and front-end address of the memory.
const GUEST_START: u64 = 0x4000_0000;
const USER_START: u64 = 0x7f00_0000_0000;
pub(crate) const MEMORY_BYTES: u64 = 4 * QUEUE_BYTES;
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A driver's ring with requests in slots. Each slot has three descriptors.
pub(crate) struct Ring {
    pub(crate) index: usize,
    /// Requests made available and seen used. In a packed ring they are counted in descriptors.
    pub(crate) available: u16,
    pub(crate) used: u16,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    memory: File,
    /// A second memory that gets the driver's writes too.
    copy: Option<File>,
    packed: bool,
}

/// Flags of a packed ring's descriptor, and the wrap counter beside an index.
const AVAILABLE_FLAG: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;
const WRAP: u16 = 1 << 15;

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
        Self::arriving(stream, features, memory())
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
        let copy = memory();
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

fn memory() -> File {
    let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
    memory.set_len(MEMORY_BYTES).unwrap();
    memory
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
        VhostUserMemoryRegionInfo {
            guest_phys_addr: GUEST_START,
            memory_size: MEMORY_BYTES,
            userspace_addr: USER_START,
            mmap_offset: 0,
            mmap_handle: self.memory.as_raw_fd(),
        }
    }

    pub(crate) fn share_memory(&self) {
        self.frontend.set_mem_table(&[self.region()]).unwrap();
    }

    /// A new queue with complete set-up except for its kick descriptor.
    pub(crate) fn set_up(&self, index: usize, base: u16) -> Ring {
        let ring = Ring {
            index,
            available: base,
            used: base,
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(0).unwrap(),
            memory: self.memory.try_clone().unwrap(),
            copy: None,
            packed: self.packed,
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
        let at = USER_START + index as u64 * QUEUE_BYTES;
        let addresses = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: u32::from(logged),
            desc_table_addr: at,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr: logged.then_some(GUEST_START + index as u64 * QUEUE_BYTES + USED),
        };
        self.frontend.set_vring_addr(index, &addresses).unwrap();
    }

    /// Negotiates other features than at the connection.
    pub(crate) fn set_features(&self, features: u64) {
        self.frontend.set_features(features | VERSION_1).unwrap();
    }

    /// Bytes of a dirty log for all of memory.
    pub(crate) const LOG_BYTES: u64 = (GUEST_START + MEMORY_BYTES) / PAGE_BYTES / 8;

    /// Passes a dirty log of `bytes`, in a file of `file_bytes`.
    pub(crate) fn set_log(&self, bytes: u64, file_bytes: u64) -> Result<File, vhost::Error> {
        let log = File::from(memfd_create("log", MemfdFlags::CLOEXEC).unwrap());
        log.set_len(file_bytes).unwrap();
        let region = VhostUserDirtyLogRegion { mmap_size: bytes, mmap_offset: 0, mmap_handle: log.as_raw_fd() };
        self.frontend.set_log_base(0, Some(region)).map(|()| log)
    }

    /// Takes the marked pages of guest memory, counted from its first page.
    pub(crate) fn take_marked(log: &File) -> Vec<u64> {
        let mut bits = vec![0; Self::LOG_BYTES as usize];
        log.read_exact_at(&mut bits, 0).unwrap();
        log.write_all_at(&vec![0; bits.len()], 0).unwrap();
        let pages = 0..Self::LOG_BYTES * 8;
        let marked = pages.filter(|page| bits[(page / 8) as usize] & 1 << (page % 8) != 0);
        marked.map(|page| page.checked_sub(GUEST_START / PAGE_BYTES).expect("a page of the guest")).collect()
    }

    /// A running queue.
    pub(crate) fn start(&mut self, index: usize) -> Ring {
        let ring = self.set_up(index, 0);
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

    /// The `vhost` crate sends only 16 bits of a position.
    pub(crate) fn set_vring_base(&self, index: usize, position: u32) {
        if let Ok(base) = u16::try_from(position) {
            return self.frontend.set_vring_base(index, base).unwrap();
        }
        // SAFETY: the descriptor is borrowed for this call only, while `frontend` lives.
        let socket = unsafe { BorrowedFd::borrow_raw(self.frontend.as_raw_fd()) };
        let mut socket = UnixStream::from(socket.try_clone_to_owned().unwrap());
        // SET_VRING_BASE, version 1 with a reply wanted, 8 bytes.
        let message: Vec<u8> = [10, 9, 8, index as u32, position].iter().flat_map(|word| word.to_le_bytes()).collect();
        socket.write_all(&message).unwrap();
        let mut reply = [0xff; 20];
        socket.read_exact(&mut reply).unwrap();
        assert_eq!(reply[12..], [0; 8], "refused");
    }

    fn run(&mut self, ring: &Ring) {
        self.frontend.set_vring_kick(ring.index, &ring.kick).unwrap();
        self.frontend.set_vring_enable(ring.index, true).unwrap();
    }
}
