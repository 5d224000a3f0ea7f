//! A guest by hand for the `vhost` crate's front-end: memory in a file, one ring a queue. The daemon's tests use it, too.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::{VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vmm_sys_util::eventfd::EventFd;

/// Long enough for anything that happens at all.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const PROTOCOL_FEATURES: u64 = 1 << 30;
pub(crate) const CONFIG_WCE: u64 = 1 << 11;
pub(crate) const FLUSH: u64 = 1 << 9;
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

/// Where the guest and the front-end see the memory.
const GUEST_START: u64 = 0x4000_0000;
const USER_START: u64 = 0x7f00_0000_0000;
const MEMORY_BYTES: u64 = 4 * QUEUE_BYTES;

pub(crate) struct Ring {
    pub(crate) index: usize,
    pub(crate) available: u16,
    pub(crate) used: u16,
    pub(crate) kick: EventFd,
    pub(crate) call: EventFd,
    memory: File,
}

pub(crate) struct Guest {
    pub(crate) frontend: Frontend,
    memory: File,
}

impl Guest {
    /// Connects and negotiates `features` and all protocol features.
    pub(crate) fn connect(socket: &Path, features: u64) -> Self {
        Self::over(UnixStream::connect(socket).unwrap(), features)
    }

    /// As [`connect`](Self::connect), on a stream that is connected.
    pub(crate) fn over(stream: UnixStream, features: u64) -> Self {
        let memory = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(MEMORY_BYTES).unwrap();
        Self { frontend: negotiate(stream, features), memory }
    }

    /// The front-end hangs up; the guest stays.
    pub(crate) fn hang_up(&mut self) {
        self.frontend = Frontend::from_stream(UnixStream::pair().unwrap().0, 4);
    }

    /// The same guest behind a front-end that has lost its connection.
    pub(crate) fn reconnect(&mut self, stream: UnixStream, features: u64) {
        self.frontend = negotiate(stream, features);
        self.share_memory();
    }

    /// In-flight memory for all queues.
    pub(crate) fn get_inflight(&mut self) -> (VhostUserInflight, File) {
        self.frontend.get_inflight_fd(&VhostUserInflight::new(0, 0, 4, QUEUE_SIZE)).unwrap()
    }

    pub(crate) fn set_inflight(&mut self, (told, file): &(VhostUserInflight, File)) {
        self.frontend.set_inflight_fd(told, file.as_raw_fd()).unwrap();
    }
}

/// Waits for a descriptor; a test that waits in vain fails.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = TIMEOUT.try_into().unwrap();
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
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
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

    /// A new queue, of which all is told but its kick descriptor.
    pub(crate) fn set_up(&self, index: usize, base: u16) -> Ring {
        let ring = Ring {
            index,
            available: base,
            used: base,
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(0).unwrap(),
            memory: self.memory.try_clone().unwrap(),
        };
        self.tell(&ring, base);
        ring
    }

    /// Tells all about a queue but its kick descriptor.
    fn tell(&self, ring: &Ring, base: u16) {
        let index = ring.index;
        let at = USER_START + index as u64 * QUEUE_BYTES;
        let frontend = &self.frontend;
        frontend.set_vring_num(index, QUEUE_SIZE).unwrap();
        frontend.set_vring_base(index, base).unwrap();
        let addresses = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: at,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr: None,
        };
        frontend.set_vring_addr(index, &addresses).unwrap();
        frontend.set_vring_call(index, &ring.call).unwrap();
    }

    /// A queue that runs.
    pub(crate) fn start(&mut self, index: usize) -> Ring {
        let ring = self.set_up(index, 0);
        self.run(&ring);
        ring
    }

    /// Has a queue run that the guest had before, said to be at `base`.
    pub(crate) fn restart(&mut self, ring: &Ring, base: u16) {
        self.tell(ring, base);
        self.run(ring);
    }

    fn run(&mut self, ring: &Ring) {
        self.frontend.set_vring_kick(ring.index, &ring.kick).unwrap();
        self.frontend.set_vring_enable(ring.index, true).unwrap();
    }
}

impl Ring {
    fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, self.index as u64 * QUEUE_BYTES + at).unwrap();
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.memory.read_exact_at(&mut bytes, self.index as u64 * QUEUE_BYTES + at).unwrap();
        bytes
    }

    pub(crate) fn used_idx(&self) -> u16 {
        u16::from_le_bytes(self.read(USED + 2))
    }

    /// Makes a request available in slot `slot` of 21: header, data, status. No kick.
    pub(crate) fn submit(&mut self, slot: u16, kind: u32, sector: u64, data: &[u8]) {
        assert!(slot < 21 && data.len() <= 4096);
        let request = REQUESTS + u64::from(slot) * REQUEST_BYTES;
        let guest = GUEST_START + self.index as u64 * QUEUE_BYTES + request;
        let mut header = Vec::new();
        header.write_all(&kind.to_le_bytes()).unwrap();
        header.write_all(&[0; 4]).unwrap();
        header.write_all(&sector.to_le_bytes()).unwrap();
        header.push(0xff);
        self.write(request, &header);
        self.write(request + DATA, data);
        let data_flags = if matches!(kind, 0 | 8) { 3 } else { 1 };
        let buffers = [(guest, 16, 1), (guest + DATA, data.len() as u32, data_flags), (guest + STATUS, 1, 2)];
        for (next, (address, bytes, flags)) in (slot * 3..).zip(buffers) {
            let mut descriptor = Vec::new();
            descriptor.extend(address.to_le_bytes());
            descriptor.extend(u32::to_le_bytes(bytes));
            descriptor.extend(u16::to_le_bytes(flags));
            descriptor.extend((next + 1).to_le_bytes());
            self.write(16 * u64::from(next), &descriptor);
        }
        let entry = u64::from(self.available % QUEUE_SIZE);
        self.write(AVAILABLE + 4 + 2 * entry, &(slot * 3).to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.write(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// Sets the available index to what it should never be.
    pub(crate) fn break_available_idx(&mut self) {
        self.write(AVAILABLE + 2, &self.available.wrapping_add(QUEUE_SIZE + 1).to_le_bytes());
    }

    /// The slots of newly used requests.
    pub(crate) fn reap(&mut self) -> Vec<u16> {
        let mut slots = Vec::new();
        while self.used != self.used_idx() {
            let entry: [u8; 4] = self.read(USED + 4 + 8 * u64::from(self.used % QUEUE_SIZE));
            slots.push(u32::from_le_bytes(entry) as u16 / 3);
            self.used = self.used.wrapping_add(1);
        }
        slots
    }

    /// Waits until all requests are used.
    pub(crate) fn finish(&mut self) -> Vec<u16> {
        self.kick.write(1).unwrap();
        let mut slots = Vec::new();
        let start = Instant::now();
        loop {
            slots.extend(self.reap());
            if self.used == self.available {
                return slots;
            }
            assert!(start.elapsed() < TIMEOUT, "nothing came");
            // SAFETY: the descriptor is borrowed for this call only, while `call` lives.
            wait_readable(unsafe { BorrowedFd::borrow_raw(self.call.as_raw_fd()) });
            self.call.read().unwrap();
        }
    }

    /// Nothing is used while the queue should stand still.
    pub(crate) fn assert_idle(&self) {
        self.kick.write(1).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(self.used_idx(), self.used, "a queue that must not run");
    }

    pub(crate) fn status(&self, slot: u16) -> u8 {
        self.read::<1>(REQUESTS + u64::from(slot) * REQUEST_BYTES + STATUS)[0]
    }

    pub(crate) fn data<const N: usize>(&self, slot: u16) -> [u8; N] {
        self.read(REQUESTS + u64::from(slot) * REQUEST_BYTES + DATA)
    }
}
