//! A test driver: it puts valid or invalid rings and chains into guest memory.

mod memory;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use virtio_guest::features::{EVENT_IDX, PACKED};
use virtio_guest::{Ring, Virtqueue};

use crate::dirty_log::QueueDirtyLog;
use crate::dirty_log::tests::SharedLog;
use crate::disk::VirtioDisk;
use crate::inflight::InflightArea;
use crate::notify::{Alarm, Kick, Notifier};
use crate::ring::{Queue, QueueParts, RingError, RingLayout};

/// Two adjacent regions, and nothing behind them.
pub(super) const MEMORY_BYTES: u64 = 0x8_0000;
const REGION_BYTES: u64 = MEMORY_BYTES / 2;
/// Bytes of the file before and after each region. Nothing may write to them.
const GUARD_BYTES: u64 = 0x1000;
const GUARD: u8 = 0xa5;
/// Bytes of guest memory for one bit of the dirty log.
pub(super) const PAGE_BYTES: u64 = 4096;

pub(super) const DESCRIPTORS: u64 = 0;
/// Packed: the driver's event suppression.
pub(super) const AVAILABLE: u64 = 0x8000;
/// Packed: the device's event suppression.
pub(super) const USED: u64 = 0xa000;
/// Start of the buffers.
pub(super) const BUFFERS: u64 = 0x1_0000;

/// Guest address of rings that no buffer reaches.
const OUT_OF_REACH: u64 = 1 << 62;

pub(super) struct TestDriver {
    files: [File; 2],
    /// Guest address of the memory before [`BUFFERS`]. The front-end address is always 0.
    rings: u64,
    pub(super) ring: Ring,
    features: u64,
    call: UnixStream,
    error: UnixStream,
    notifier: Arc<Notifier>,
    log: Option<SharedLog>,
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
        let ring = Ring::new(virtio_guest::RingLayout {
            is_packed: features & PACKED != 0,
            has_event_idx: features & EVENT_IDX != 0,
            size,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
        });
        Self { files, rings: 0, ring, features, call, error, notifier, log: None }
    }

    /// Moves the rings away from all buffers, so that requests cannot overwrite them. Not possible in a migration, as
    /// its log does not reach so far.
    pub(super) fn put_rings_out_of_reach(&mut self) {
        assert!(!self.is_migrating());
        self.rings = OUT_OF_REACH;
    }

    /// Cuts off the memory of the rings. It cannot be read any more.
    pub(super) fn cut_off_rings(&self) {
        self.files[0].set_len(GUARD_BYTES).unwrap();
    }

    /// Cuts off the other memory after `bytes`.
    pub(super) fn cut_off_elsewhere(&self, bytes: u64) {
        self.files[1].set_len(GUARD_BYTES + bytes).unwrap();
    }

    /// Start of the other memory in its file.
    pub(super) const ELSEWHERE: u64 = REGION_BYTES;

    /// Makes queues mark their writes.
    pub(super) fn migrate(&mut self) {
        assert_eq!(self.rings, 0, "the log reaches only so far");
        self.log = Some(SharedLog::new(MEMORY_BYTES / PAGE_BYTES));
    }

    pub(super) fn is_migrating(&self) -> bool {
        self.log.is_some()
    }

    /// Takes the marks, like a front-end that copies the pages.
    pub(super) fn take_marks(&self) -> Vec<u64> {
        self.log.as_ref().map_or_else(Vec::new, SharedLog::take)
    }

    /// The marked pages.
    pub(super) fn marked(&self) -> Vec<u64> {
        self.log.as_ref().map_or_else(Vec::new, SharedLog::pages)
    }

    pub(super) fn is_packed(&self) -> bool {
        self.features & PACKED != 0
    }

    /// Position of a drained queue, in vhost-user's format.
    pub(super) fn position(&self) -> u32 {
        self.ring.position(self.ring.available)
    }

    pub(super) fn layout(&self) -> RingLayout {
        RingLayout {
            packed: self.is_packed(),
            size: self.ring.layout.size,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
            event_idx: self.ring.layout.has_event_idx,
            position: self.ring.position(self.ring.start),
        }
    }

    pub(super) fn queue_parts(&self, disk: &Arc<VirtioDisk>) -> QueueParts {
        QueueParts {
            index: 0,
            layout: self.layout(),
            disk: Arc::clone(disk),
            features: self.features,
            kick: Arc::new(Kick::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap().into()).unwrap()),
            notifier: Arc::clone(&self.notifier),
            inflight: None,
            alarm: Arc::new(Alarm::new().unwrap()),
            log: self
                .log
                .as_ref()
                .map(|log| QueueDirtyLog { log: Arc::new(log.map()), used_ring: (!self.is_packed()).then_some(USED) }),
        }
    }

    pub(super) fn queue(&self, disk: &Arc<VirtioDisk>) -> Queue {
        self.queue_with(disk, None).unwrap()
    }

    /// A queue that continues from an in-flight log, and writes it.
    pub(super) fn queue_with(
        &self,
        disk: &Arc<VirtioDisk>,
        inflight: Option<InflightArea>,
    ) -> Result<Queue, RingError> {
        Queue::new(&self.memory(), QueueParts { inflight, ..self.queue_parts(disk) })
    }

    pub(super) fn descriptor(&mut self, index: u16, descriptor: (u64, u32, u16, u16)) {
        self.write_descriptor(DESCRIPTORS + 16 * u64::from(index), descriptor);
    }

    /// Whether all available chains have been seen used.
    pub(super) fn is_idle(&self) -> bool {
        self.ring.seen_used == self.ring.available
    }

    /// Signals since the last call.
    pub(super) fn signals(&self) -> usize {
        count_words(&self.call)
    }

    pub(super) fn errors(&self) -> usize {
        count_words(&self.error)
    }

    /// Writes a request header.
    pub(super) fn header(&self, address: u64, kind: u32, sector: u64) {
        self.write(address, &kind.to_le_bytes());
        self.write(address + 4, &[0xff; 4]);
        self.write(address + 8, &sector.to_le_bytes());
    }
}

impl Virtqueue for TestDriver {
    fn ring(&self) -> &Ring {
        &self.ring
    }

    fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    fn write_at(&mut self, address: u64, bytes: &[u8]) {
        self.write(address, bytes);
    }

    fn read_at(&self, address: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.read(address, bytes.len()));
    }
}

fn count_words(mut stream: &UnixStream) -> usize {
    let mut words = [0; 4096];
    stream.read(&mut words).unwrap_or(0) / 8
}
