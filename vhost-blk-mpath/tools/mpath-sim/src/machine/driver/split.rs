//! A split ring (virtio 1.2, 2.7). Each place has descriptors of its own.

use super::ring::{AVAILABLE, CHAIN_MAX, INDIRECT, NEXT, Ring, Segment, USED, descriptor};
use crate::machine::memory::Memory;

/// A split ring.
pub(super) struct SplitRing {
    /// Its offset in the memory.
    start: usize,
    size: u16,
    has_event_idx: bool,
    available: u16,
    used: u16,
}

impl SplitRing {
    pub(super) fn new(start: usize, places: usize, has_event_idx: bool) -> Self {
        let size = (places * CHAIN_MAX).next_power_of_two() as u16;
        Self { start, size, has_event_idx, available: 0, used: 0 }
    }

    /// The number of answered requests.
    fn answered(&self, memory: &Memory) -> u16 {
        memory.u16_at(self.start + USED + 2)
    }
}

impl Ring for SplitRing {
    fn size(&self) -> u16 {
        self.size
    }

    fn position(&self, memory: &Memory) -> u32 {
        self.answered(memory).into()
    }

    fn submit(&mut self, memory: &mut Memory, place: usize, segments: &[Segment], table: Option<usize>) -> bool {
        let first = place * CHAIN_MAX;
        let numbers = if table.is_some() { 1.. } else { first + 1.. };
        let descriptor_of = |(next, segment): (usize, &Segment)| {
            let is_last = std::ptr::eq(segment, segments.last().expect("a request has segments"));
            let flags = if is_last { 0 } else { NEXT } | segment.flags();
            descriptor(segment.at, segment.bytes, [flags, next as u16])
        };
        let chain: Vec<u8> = numbers.zip(segments).flat_map(descriptor_of).collect();
        if let Some(at) = table {
            memory.write(at, &chain);
            memory.write(self.start + 16 * first, &descriptor(at, chain.len(), [INDIRECT, 0]));
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

    fn reap(&mut self, memory: &Memory) -> Vec<(usize, u32)> {
        let (mut places, newest) = (Vec::new(), self.answered(memory));
        while self.used != newest {
            let element = self.start + USED + 4 + 8 * usize::from(self.used % self.size);
            places.push((memory.u32_at(element) as usize / CHAIN_MAX, memory.u32_at(element + 4)));
            self.used = self.used.wrapping_add(1);
        }
        places
    }
}
