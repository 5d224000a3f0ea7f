//! A driver for tests: it lays out rings and chains in guest memory, right or wrong.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::disk::Disk;
use crate::inflight::InflightArea;
use crate::memory::{GuestMemory, RegionLayout};
use crate::notify::{Kick, Notifier};
use crate::ring::{Queue, QueueParts, RingError, RingLayout};

pub(super) const NEXT: u16 = VRING_DESC_F_NEXT as u16;
pub(super) const WRITE: u16 = VRING_DESC_F_WRITE as u16;
pub(super) const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

pub(super) const EVENT_IDX: u64 = 1 << 29;
pub(super) const INDIRECT_DESC: u64 = 1 << 28;
pub(super) const FLUSH: u64 = 1 << 9;
pub(super) const CONFIG_WCE: u64 = 1 << 11;
pub(super) const DISCARD: u64 = 1 << 13;
pub(super) const WRITE_ZEROES: u64 = 1 << 14;

/// Two adjacent regions, then nothing.
pub(super) const MEMORY_BYTES: u64 = 0x8_0000;
const REGION_BYTES: u64 = MEMORY_BYTES / 2;
/// Bytes of the file before and after each region that nobody may touch.
const GUARD_BYTES: u64 = 0x1000;
const GUARD: u8 = 0xa5;

const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x8000;
const USED: u64 = 0xa000;
/// Where buffers can be.
pub(super) const BUFFERS: u64 = 0x1_0000;

pub(super) struct TestDriver {
    files: [File; 2],
    pub(super) size: u16,
    /// Where queues start.
    start: u16,
    available: u16,
    seen_used: u16,
    features: u64,
    call: UnixStream,
    error: UnixStream,
    notifier: Arc<Notifier>,
}

impl TestDriver {
    pub(super) fn new(size: u16, features: u64) -> Self {
        let files = [(); 2].map(|()| {
            let file = File::from(memfd_create("region", MemfdFlags::CLOEXEC).unwrap());
            file.set_len(REGION_BYTES + 2 * GUARD_BYTES).unwrap();
            for at in [0, GUARD_BYTES + REGION_BYTES] {
                file.write_all_at(&[GUARD; GUARD_BYTES as usize], at).unwrap();
            }
            file
        });
        let notifier = Notifier::default();
        let fd = |stream: UnixStream| Some(File::from(std::os::fd::OwnedFd::from(stream)));
        let (call, call_device) = UnixStream::pair().unwrap();
        let (error, error_device) = UnixStream::pair().unwrap();
        call.set_nonblocking(true).unwrap();
        error.set_nonblocking(true).unwrap();
        notifier.set_call(fd(call_device)).unwrap();
        notifier.set_error(fd(error_device)).unwrap();
        let notifier = Arc::new(notifier);
        Self { files, size, start: 0, available: 0, seen_used: 0, features, call, error, notifier }
    }

    pub(super) fn memory(&self) -> GuestMemory {
        self.files.iter().zip(0..).fold(GuestMemory::default(), |memory, (file, i)| {
            let start = i * REGION_BYTES;
            let layout =
                RegionLayout { guest_start: start, user_start: start, bytes: REGION_BYTES, file_offset: GUARD_BYTES };
            memory.with_region(layout, file.try_clone().unwrap()).unwrap()
        })
    }

    pub(super) fn queue(&self, disk: &Arc<Disk>) -> Queue {
        self.queue_with(disk, None).unwrap()
    }

    /// A queue that goes on from, and writes, an in-flight log.
    pub(super) fn queue_with(&self, disk: &Arc<Disk>, inflight: Option<InflightArea>) -> Result<Queue, RingError> {
        let layout = RingLayout {
            size: self.size,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
            event_idx: self.features & EVENT_IDX != 0,
            next_available: self.start,
        };
        let kick = Arc::new(Kick::new(self.files[0].try_clone().unwrap()).unwrap());
        let parts = QueueParts {
            index: 0,
            layout,
            disk: Arc::clone(disk),
            features: self.features,
            kick,
            notifier: Arc::clone(&self.notifier),
            inflight,
        };
        Queue::new(&self.memory(), parts)
    }

    /// The parts of `[address, address + bytes)` in each region: file, offset there, length.
    fn parts(&self, address: u64, bytes: usize) -> impl Iterator<Item = (&File, u64, usize)> {
        let (mut address, mut left) = (address, bytes);
        std::iter::from_fn(move || {
            let offset = address % REGION_BYTES;
            let taken = left.min((REGION_BYTES - offset) as usize);
            let file = self.files.get((address / REGION_BYTES) as usize)?;
            (address, left) = (address + taken as u64, left - taken);
            Some((file, GUARD_BYTES + offset, taken))
        })
        .take_while(|part| part.2 > 0)
    }

    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (file, at, taken) in self.parts(address, bytes.len()) {
            file.write_all_at(&rest[..taken], at).unwrap();
            rest = &rest[taken..];
        }
    }

    pub(super) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for (file, at, taken) in self.parts(address, bytes) {
            let mut part = vec![0; taken];
            file.read_exact_at(&mut part, at).unwrap();
            all.extend(part);
        }
        all
    }

    /// All guest memory.
    pub(super) fn snapshot(&self) -> Vec<u8> {
        let region = |file: &File| {
            let mut bytes = vec![0; REGION_BYTES as usize];
            file.read_exact_at(&mut bytes, GUARD_BYTES).unwrap();
            bytes
        };
        self.files.iter().flat_map(region).collect()
    }

    pub(super) fn assert_guards(&self) {
        for file in &self.files {
            for at in [0, GUARD_BYTES + REGION_BYTES] {
                let mut guard = [0; GUARD_BYTES as usize];
                file.read_exact_at(&mut guard, at).unwrap();
                assert_eq!(guard, [GUARD; GUARD_BYTES as usize], "memory outside of the guest's was written");
            }
        }
    }

    pub(super) fn u16_at(&self, address: u64) -> u16 {
        let bytes = self.read(address, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    pub(super) fn descriptor_at(&self, address: u64, (addr, len, flags, next): (u64, u32, u16, u16)) {
        self.write(address, &addr.to_le_bytes());
        self.write(address + 8, &len.to_le_bytes());
        self.write(address + 12, &flags.to_le_bytes());
        self.write(address + 14, &next.to_le_bytes());
    }

    pub(super) fn descriptor(&self, index: u16, descriptor: (u64, u32, u16, u16)) {
        self.descriptor_at(DESCRIPTORS + 16 * u64::from(index), descriptor);
    }

    /// Lays buffers `(address, bytes, flags)` out as a chain in descriptors from `head` on.
    pub(super) fn chain(&self, head: u16, buffers: &[(u64, u32, u16)]) {
        for (i, &(address, bytes, flags)) in buffers.iter().enumerate() {
            let last = i + 1 == buffers.len();
            let index = head + i as u16;
            self.descriptor(index, (address, bytes, if last { flags } else { flags | NEXT }, index + 1));
        }
    }

    /// Lays buffers out as an indirect table at `table`, to which descriptor `head` leads.
    pub(super) fn indirect_chain(&self, head: u16, table: u64, buffers: &[(u64, u32, u16)]) {
        for (i, &(address, bytes, flags)) in buffers.iter().enumerate() {
            let last = i + 1 == buffers.len();
            let flags = if last { flags } else { flags | NEXT };
            self.descriptor_at(table + 16 * i as u64, (address, bytes, flags, i as u16 + 1));
        }
        self.descriptor(head, (table, 16 * buffers.len() as u32, INDIRECT, 0));
    }

    pub(super) fn available_idx(&self) -> u16 {
        self.available
    }

    pub(super) fn set_available_idx(&mut self, idx: u16) {
        self.available = idx;
        self.write(AVAILABLE + 2, &idx.to_le_bytes());
    }

    pub(super) fn make_available(&mut self, head: u16) {
        let slot = u64::from(self.available & (self.size - 1));
        self.write(AVAILABLE + 4 + 2 * slot, &head.to_le_bytes());
        self.set_available_idx(self.available.wrapping_add(1));
    }

    /// Used entries since last asked: `(head, length)`.
    pub(super) fn used(&mut self) -> Vec<(u32, u32)> {
        let mut entries = Vec::new();
        while self.seen_used != self.u16_at(USED + 2) {
            let slot = u64::from(self.seen_used & (self.size - 1));
            let entry = self.read(USED + 4 + 8 * slot, 8);
            let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
            entries.push((word(0), word(4)));
            self.seen_used = self.seen_used.wrapping_add(1);
        }
        entries
    }

    /// Starts both rings at `idx`, as a driver does that has run for a while.
    pub(super) fn start_at(&mut self, idx: u16) {
        self.set_available_idx(idx);
        self.write(USED + 2, &idx.to_le_bytes());
        (self.start, self.seen_used) = (idx, idx);
    }

    pub(super) fn set_available_flags(&self, flags: u16) {
        self.write(AVAILABLE, &flags.to_le_bytes());
    }

    pub(super) fn used_flags(&self) -> u16 {
        self.u16_at(USED)
    }

    /// Asks for a signal when used entry `idx` is written.
    pub(super) fn set_used_event(&self, idx: u16) {
        self.write(AVAILABLE + 4 + 2 * u64::from(self.size), &idx.to_le_bytes());
    }

    pub(super) fn avail_event(&self) -> u16 {
        self.u16_at(USED + 4 + 8 * u64::from(self.size))
    }

    /// Signals since last asked.
    pub(super) fn signals(&self) -> usize {
        count_words(&self.call)
    }

    pub(super) fn errors(&self) -> usize {
        count_words(&self.error)
    }

    /// Lays out a request header.
    pub(super) fn header(&self, address: u64, kind: u32, sector: u64) {
        self.write(address, &kind.to_le_bytes());
        self.write(address + 4, &[0xff; 4]);
        self.write(address + 8, &sector.to_le_bytes());
    }
}

fn count_words(mut stream: &UnixStream) -> usize {
    let mut words = [0; 4096];
    stream.read(&mut words).unwrap_or(0) / 8
}
