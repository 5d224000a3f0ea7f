//! The guest's driver of one virtqueue, a split ring (virtio 1.2, 2.7).
//!
//! Each request has a place of its own, with the descriptors of the longest chain.

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::memory::{GUEST_START, Memory};

/// The descriptors of a place.
pub(super) const CHAIN_MAX: usize = 8;
/// The memory of a virtqueue.
pub(super) const QUEUE_BYTES: usize = 0x4000;
/// The offsets of its rings. The descriptors are at offset 0.
pub(super) const AVAILABLE: usize = 0x1000;
pub(super) const USED: usize = 0x2000;

/// Flags of a descriptor: another one follows, the device writes, it refers to a table.
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// A piece of memory that a request names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// Its offset in the memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
    /// The device writes to it.
    pub(super) is_written: bool,
}

/// The driver of a virtqueue.
#[derive(Debug)]
pub(super) struct Driver {
    /// The offset of the virtqueue in the memory.
    start: usize,
    pub(super) size: u16,
    has_event_idx: bool,
    available: u16,
    used: u16,
    pub(super) kick: EventFd,
}

impl Driver {
    /// The driver of the n-th virtqueue of a machine, with `places` places.
    pub(super) fn new(index: usize, places: usize, has_event_idx: bool) -> Self {
        let size = (places * CHAIN_MAX).next_power_of_two() as u16;
        let kick = EventFd::new(EFD_NONBLOCK).expect("a descriptor for a virtqueue");
        Self { start: index * QUEUE_BYTES, size, has_event_idx, available: 0, used: 0, kick }
    }

    /// The guest is reset, and the ring is new.
    pub(super) fn reset(&mut self) {
        (self.available, self.used) = (0, 0);
    }

    /// The base at which a device without an in-flight log continues.
    pub(super) fn base(&self) -> u16 {
        self.used
    }

    /// The number of answered requests.
    pub(super) fn answered(&self, memory: &Memory) -> u16 {
        memory.u16_at(self.start + USED + 2)
    }

    /// Makes a request available: whether the device wants a kick.
    pub(super) fn submit(
        &mut self,
        memory: &mut Memory,
        place: usize,
        segments: &[Segment],
        table: Option<usize>,
    ) -> bool {
        let first = place * CHAIN_MAX;
        let of_table = table.is_some();
        let numbers = if of_table { 0.. } else { first.. };
        let descriptor = |(number, segment): (usize, &Segment)| {
            let is_last = std::ptr::eq(segment, segments.last().expect("a request has segments"));
            let flags = if is_last { 0 } else { NEXT } | if segment.is_written { WRITE } else { 0 };
            descriptor(segment.at, segment.bytes, flags, number + 1)
        };
        let chain: Vec<u8> = numbers.zip(segments).flat_map(descriptor).collect();
        if let Some(at) = table {
            memory.write(at, &chain);
            memory.write(self.start + 16 * first, &descriptor_of_table(at, chain.len()));
        } else {
            memory.write(self.start + 16 * first, &chain);
        }
        let ring = self.start + AVAILABLE;
        memory.write(ring + 4 + 2 * usize::from(self.available % self.size), &(first as u16).to_le_bytes());
        let before = self.available;
        self.available = before.wrapping_add(1);
        memory.write(ring + 2, &self.available.to_le_bytes());
        if self.has_event_idx {
            let event = memory.u16_at(self.start + USED + 4 + 8 * usize::from(self.size));
            return event == before;
        }
        memory.u16_at(self.start + USED) & 1 == 0
    }

    /// The places of the requests that were answered since the last call.
    pub(super) fn reap(&mut self, memory: &Memory) -> Vec<usize> {
        let (mut places, newest) = (Vec::new(), self.answered(memory));
        while self.used != newest {
            let element = self.start + USED + 4 + 8 * usize::from(self.used % self.size);
            places.push(memory.u32_at(element) as usize / CHAIN_MAX);
            self.used = self.used.wrapping_add(1);
        }
        places
    }
}

fn descriptor(at: usize, bytes: usize, flags: u16, next: usize) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&(GUEST_START + at as u64).to_le_bytes());
    descriptor[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
    descriptor[12..14].copy_from_slice(&flags.to_le_bytes());
    descriptor[14..].copy_from_slice(&(next as u16).to_le_bytes());
    descriptor
}

fn descriptor_of_table(at: usize, bytes: usize) -> [u8; 16] {
    descriptor(at, bytes, INDIRECT, 0)
}
