//! A packed ring (virtio 1.2, 2.8). The id of a chain is the place of its request.

use super::ring::{CHAIN_MAX, INDIRECT, NEXT, Ring, Segment, USED, descriptor};
use crate::machine::memory::Memory;

/// More flags of a descriptor. A descriptor with one of the two flags is available. With both or none, it is used.
const IS_AVAILABLE: u16 = 1 << 7;
const IS_USED: u16 = 1 << 15;
/// The wrap counter, in a word with an index.
const WRAP: u16 = 1 << 15;
/// The kicks that the device wants: every kick, or only the one for a position.
const EVENT_ENABLE: u16 = 0;
const EVENT_DESC: u16 = 2;

/// A packed ring. Positions are counted over two rounds, in the first of which the wrap counter is 1.
pub(super) struct PackedRing {
    /// Its offset in the memory.
    start: usize,
    size: u16,
    has_event_idx: bool,
    available: u16,
    used: u16,
    /// By place: the descriptors of its last chain.
    chains: Vec<u16>,
}

impl PackedRing {
    /// A ring with room for the longest chain of each place. Its size is rarely a power of two, so chains reach over its end.
    pub(super) fn new(start: usize, places: usize, has_event_idx: bool) -> Self {
        let size = (places * CHAIN_MAX) as u16;
        Self { start, size, has_event_idx, available: 0, used: 0, chains: vec![0; places] }
    }

    fn after(&self, position: u16, descriptors: u16) -> u16 {
        (position + descriptors) % (2 * self.size)
    }

    /// Whether the wrap counter is 1.
    fn is_wrap(&self, position: u16) -> bool {
        position < self.size
    }

    /// The offset of a descriptor in the memory.
    fn offset(&self, position: u16) -> usize {
        self.start + 16 * usize::from(position % self.size)
    }

    /// The place of the request that was answered at this position.
    fn answered_at(&self, memory: &Memory, position: u16) -> Option<usize> {
        let at = self.offset(position);
        let flags = memory.u16_at(at + 14) & (IS_AVAILABLE | IS_USED);
        let used = if self.is_wrap(position) { IS_AVAILABLE | IS_USED } else { 0 };
        (flags == used).then(|| memory.u16_at(at + 12).into())
    }

    /// Whether the device wants a kick for these descriptors.
    fn wants_kick(&self, memory: &Memory, position: u16, descriptors: u16) -> bool {
        let (event, mode) = (memory.u16_at(self.start + USED), memory.u16_at(self.start + USED + 2));
        let event = (event & !WRAP) + if event & WRAP == 0 { self.size } else { 0 };
        let distance = (event + 2 * self.size - position) % (2 * self.size);
        mode == EVENT_ENABLE || mode == EVENT_DESC && self.has_event_idx && distance < descriptors
    }
}

impl Ring for PackedRing {
    fn size(&self) -> u16 {
        self.size
    }

    fn position(&self, memory: &Memory) -> u32 {
        let mut position = self.used;
        while let Some(place) = self.answered_at(memory, position) {
            position = self.after(position, self.chains[place]);
        }
        let bits = u32::from((position % self.size) | if self.is_wrap(position) { WRAP } else { 0 });
        bits << 16 | bits
    }

    fn submit(&mut self, memory: &mut Memory, place: usize, segments: &[Segment], table: Option<usize>) -> bool {
        let chain: Vec<_> = if let Some(at) = table {
            let entry = |segment: &Segment| descriptor(segment.at, segment.bytes, [0, segment.flags()]);
            let entries: Vec<u8> = segments.iter().flat_map(entry).collect();
            memory.write(at, &entries);
            vec![(at, entries.len(), INDIRECT)]
        } else {
            segments.iter().map(|segment| (segment.at, segment.bytes, segment.flags())).collect()
        };
        let (first, descriptors) = (self.available, chain.len() as u16);
        // The first descriptor is written last, because it shows the whole chain to the device.
        for (nth, (at, bytes, flags)) in (0..descriptors).zip(chain).rev() {
            let position = self.after(first, nth);
            let next = if nth + 1 < descriptors { NEXT } else { 0 };
            let owner = if self.is_wrap(position) { IS_AVAILABLE } else { IS_USED };
            memory.write(self.offset(position), &descriptor(at, bytes, [place as u16, flags | next | owner]));
        }
        self.chains[place] = descriptors;
        self.available = self.after(first, descriptors);
        self.wants_kick(memory, first, descriptors)
    }

    fn reap(&mut self, memory: &Memory) -> Vec<(usize, u32)> {
        let mut places = Vec::new();
        while let Some(place) = self.answered_at(memory, self.used) {
            places.push((place, memory.u32_at(self.offset(self.used) + 8)));
            self.used = self.after(self.used, self.chains[place]);
        }
        places
    }
}
