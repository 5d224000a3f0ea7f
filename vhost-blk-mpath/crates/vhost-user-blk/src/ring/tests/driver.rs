//! A test driver: it puts valid or invalid rings and chains into guest memory.

mod memory;

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, memfd_create};
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::dirty_log::QueueDirtyLog;
use crate::dirty_log::tests::SharedLog;
use crate::disk::VirtioDisk;
use crate::inflight::InflightArea;
use crate::notify::{Alarm, Kick, Notifier};
use crate::ring::{Queue, QueueParts, RingError, RingLayout};

pub(super) const NEXT: u16 = VRING_DESC_F_NEXT as u16;
pub(super) const WRITE: u16 = VRING_DESC_F_WRITE as u16;
pub(super) const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

pub(super) const PACKED: u64 = 1 << 34;
/// The features that make a ring of each format.
pub(super) const FORMATS: [u64; 2] = [0, PACKED];
pub(super) const EVENT_IDX: u64 = 1 << 29;
pub(super) const INDIRECT_DESC: u64 = 1 << 28;
pub(super) const FLUSH: u64 = 1 << 9;
pub(super) const CONFIG_WCE: u64 = 1 << 11;
pub(super) const DISCARD: u64 = 1 << 13;
pub(super) const WRITE_ZEROES: u64 = 1 << 14;

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
    pub(super) size: u16,
    /// Start of the queue, chains made available, and used chains seen. Counted in chains (packed: descriptors),
    /// without wrapping.
    start: u64,
    available: u64,
    seen_used: u64,
    /// How far the device was kicked, or did not want a kick.
    kicked: u64,
    features: u64,
    packed: PackedChains,
    call: UnixStream,
    error: UnixStream,
    notifier: Arc<Notifier>,
    log: Option<SharedLog>,
}

/// State of a packed ring's driver. The ring has no table that could hold chains before they are available.
#[derive(Default)]
struct PackedChains {
    /// Chains by head: `(address, bytes, flags)`.
    prepared: HashMap<u16, Vec<(u64, u32, u16)>>,
    /// By buffer id: descriptors of the chain made available with it last.
    descriptors: HashMap<u16, u64>,
}

const AVAIL: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;
const WRAP: u16 = 1 << 15;
const EVENT_DISABLE: u16 = 1;
const EVENT_DESC: u16 = 2;

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
        let (rings, start, available, seen_used, kicked, packed, log) = Default::default();
        Self { files, rings, size, start, available, seen_used, kicked, features, packed, call, error, notifier, log }
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

    fn event_idx(&self) -> bool {
        self.features & EVENT_IDX != 0
    }

    /// Positions that `chains` chains of `descriptors` take up.
    pub(super) fn places(&self, chains: u64, descriptors: u64) -> u64 {
        chains * if self.is_packed() { descriptors } else { 1 }
    }

    /// Index and wrap counter at `place`, as one word. In a split ring, the index alone.
    pub(super) fn bits(&self, place: u64) -> u16 {
        if !self.is_packed() {
            return place as u16;
        }
        let size = u64::from(self.size);
        (place % size) as u16 | if (place / size).is_multiple_of(2) { WRAP } else { 0 }
    }

    fn position_at(&self, available: u64, used: u64) -> u32 {
        let used = if self.is_packed() { u32::from(self.bits(used)) << 16 } else { 0 };
        used | u32::from(self.bits(available))
    }

    /// Position of a drained queue, in vhost-user's format.
    pub(super) fn position(&self) -> u32 {
        self.position_at(self.available, self.available)
    }

    pub(super) fn layout(&self) -> RingLayout {
        RingLayout {
            packed: self.is_packed(),
            size: self.size,
            descriptors: DESCRIPTORS,
            available: AVAILABLE,
            used: USED,
            event_idx: self.event_idx(),
            position: self.position_at(self.start, self.start),
        }
    }

    pub(super) fn queue_parts(&self, disk: &Arc<VirtioDisk>) -> QueueParts {
        QueueParts {
            index: 0,
            layout: self.layout(),
            disk: Arc::clone(disk),
            features: self.features,
            kick: Arc::new(Kick::new(self.files[0].try_clone().unwrap()).unwrap()),
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

    /// The two words behind the length are flags and next. In a packed ring they are buffer id and flags.
    pub(super) fn descriptor_at(&self, address: u64, (addr, len, third, fourth): (u64, u32, u16, u16)) {
        let tail = u64::from(len) | u64::from(third) << 32 | u64::from(fourth) << 48;
        self.write(address, &[addr, tail].map(u64::to_le_bytes).concat());
    }

    pub(super) fn descriptor(&self, index: u16, descriptor: (u64, u32, u16, u16)) {
        self.descriptor_at(DESCRIPTORS + 16 * u64::from(index), descriptor);
    }

    /// Makes a chain of buffers `(address, bytes, flags)`: in descriptors from `head` on, or for
    /// [`make_available`](Self::make_available) to place.
    pub(super) fn chain(&mut self, head: u16, buffers: &[(u64, u32, u16)]) {
        let linked = linked(buffers);
        if self.is_packed() {
            self.packed.prepared.insert(head, linked);
            return;
        }
        for (index, (address, bytes, flags)) in (head..).zip(linked) {
            self.descriptor(index, (address, bytes, flags, index + 1));
        }
    }

    /// Puts buffers into an indirect table at `table`, which descriptor `head` names.
    pub(super) fn indirect_chain(&mut self, head: u16, table: u64, buffers: &[(u64, u32, u16)]) {
        for (i, (address, bytes, flags)) in linked(buffers).into_iter().enumerate() {
            // In a packed ring's table only WRITE counts.
            let (third, fourth) = if self.is_packed() { (!0, flags | !WRITE) } else { (flags, i as u16 + 1) };
            self.descriptor_at(table + 16 * i as u64, (address, bytes, third, fourth));
        }
        self.chain(head, &[(table, 16 * buffers.len() as u32, INDIRECT)]);
    }

    /// Split rings only.
    pub(super) fn set_available_idx(&mut self, idx: u16) {
        self.available = idx.into();
        self.write(AVAILABLE + 2, &idx.to_le_bytes());
    }

    pub(super) fn make_available(&mut self, head: u16) {
        if self.is_packed() {
            let chain = self.packed.prepared[&head].clone();
            return self.make_packed_available(head, &chain);
        }
        let slot = self.available % u64::from(self.size);
        self.write(AVAILABLE + 4 + 2 * slot, &head.to_le_bytes());
        self.available += 1;
        self.write(AVAILABLE + 2, &(self.available as u16).to_le_bytes());
    }

    /// Makes descriptors `(address, bytes, flags)` available unchanged. In a valid chain all but the last have `NEXT`.
    pub(super) fn make_packed_available(&mut self, id: u16, chain: &[(u64, u32, u16)]) {
        self.packed.descriptors.insert(id, chain.len() as u64);
        for (i, &(address, bytes, flags)) in chain.iter().enumerate().rev() {
            let bits = self.bits(self.available + i as u64);
            // Only the last buffer id counts.
            let id = if i + 1 == chain.len() { id } else { !id };
            let flags = flags | if bits & WRAP != 0 { AVAIL } else { USED_FLAG };
            self.descriptor(bits & !WRAP, (address, bytes, id, flags));
        }
        self.available += chain.len() as u64;
    }

    /// Used entries since the last call: `(head, length)`.
    pub(super) fn used(&mut self) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| if self.is_packed() { self.next_used_packed() } else { self.next_used() }).collect()
    }

    fn next_used(&mut self) -> Option<(u32, u32)> {
        if self.seen_used as u16 == self.u16_at(USED + 2) {
            return None;
        }
        let slot = self.seen_used % u64::from(self.size);
        self.seen_used += 1;
        Some((self.u32_at(USED + 4 + 8 * slot), self.u32_at(USED + 8 + 8 * slot)))
    }

    fn next_used_packed(&mut self) -> Option<(u32, u32)> {
        let bits = self.bits(self.seen_used);
        let at = DESCRIPTORS + 16 * u64::from(bits & !WRAP);
        let wanted = if bits & WRAP != 0 { AVAIL | USED_FLAG } else { 0 };
        let flags = self.u16_at(at + 14);
        if flags & (AVAIL | USED_FLAG) != wanted {
            return None;
        }
        let id = self.u16_at(at + 12);
        let length = self.u32_at(at + 8);
        assert!(flags & WRITE != 0 || length == 0, "the length counts only with WRITE");
        self.seen_used += self.packed.descriptors[&id];
        Some((id.into(), length))
    }

    /// Whether all available chains have been seen used.
    pub(super) fn is_idle(&self) -> bool {
        self.seen_used == self.available
    }

    /// Starts the ring at `place`, like a driver that has run for a while.
    pub(super) fn start_at(&mut self, place: u16) {
        let place = u64::from(place);
        if self.is_packed() {
            // Each descriptor was used in the previous round.
            for passed in place.saturating_sub(self.size.into())..place {
                let bits = self.bits(passed);
                let flags = if bits & WRAP != 0 { AVAIL | USED_FLAG } else { 0 };
                self.write(DESCRIPTORS + 16 * u64::from(bits & !WRAP) + 14, &flags.to_le_bytes());
            }
        } else {
            self.set_available_idx(place as u16);
            self.write(USED + 2, &(place as u16).to_le_bytes());
        }
        (self.start, self.available, self.seen_used, self.kicked) = (place, place, place, place);
    }

    /// Enables or disables signals.
    pub(super) fn set_signals(&self, wanted: bool) {
        let at = if self.is_packed() { AVAILABLE + 2 } else { AVAILABLE };
        self.write(at, &u16::from(!wanted).to_le_bytes());
    }

    /// Asks for a signal when the used entry at `place` is written.
    pub(super) fn set_used_event(&self, place: u64) {
        let event = self.bits(place).to_le_bytes();
        if self.is_packed() {
            self.write(AVAILABLE, &event);
            self.write(AVAILABLE + 2, &EVENT_DESC.to_le_bytes());
        } else {
            self.write(AVAILABLE + 4 + 2 * u64::from(self.size), &event);
        }
    }

    /// Asks for a signal when the next chain is used. Returns whether a chain is already used. No signal need come for
    /// it.
    pub(super) fn wait_for_used(&self) -> bool {
        if self.event_idx() {
            self.set_used_event(self.seen_used);
        } else {
            self.set_signals(true);
        }
        let bits = self.bits(self.seen_used);
        if !self.is_packed() {
            return self.u16_at(USED + 2) != bits;
        }
        let flags = self.u16_at(DESCRIPTORS + 16 * u64::from(bits & !WRAP) + 14);
        flags & (AVAIL | USED_FLAG) == if bits & WRAP != 0 { AVAIL | USED_FLAG } else { 0 }
    }

    /// Whether the device asks for kicks by its flag.
    pub(super) fn kicks_wanted(&self) -> bool {
        self.u16_at(if self.is_packed() { USED + 2 } else { USED }) != EVENT_DISABLE
    }

    /// Position at which the device asks for a kick, as [`bits`](Self::bits).
    pub(super) fn avail_event(&self) -> u16 {
        if self.is_packed() {
            assert_eq!(self.u16_at(USED + 2), EVENT_DESC);
            return self.u16_at(USED);
        }
        self.u16_at(USED + 4 + 8 * u64::from(self.size))
    }

    /// Whether the device needs a kick for the chains made available since the last call.
    pub(super) fn must_kick(&mut self) -> bool {
        let mut new = std::mem::replace(&mut self.kicked, self.available)..self.available;
        // A packed ring's device may not have asked for kicks yet.
        let by_event = self.event_idx() && (!self.is_packed() || self.u16_at(USED + 2) == EVENT_DESC);
        if by_event {
            new.any(|place| self.bits(place) == self.avail_event())
        } else {
            !new.is_empty() && self.kicks_wanted()
        }
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

/// Adds to each buffer the flag that links it to the next.
fn linked(buffers: &[(u64, u32, u16)]) -> Vec<(u64, u32, u16)> {
    let mut linked = buffers.to_vec();
    linked.iter_mut().rev().skip(1).for_each(|(.., flags)| *flags |= NEXT);
    linked
}

fn count_words(mut stream: &UnixStream) -> usize {
    let mut words = [0; 4096];
    stream.read(&mut words).unwrap_or(0) / 8
}
