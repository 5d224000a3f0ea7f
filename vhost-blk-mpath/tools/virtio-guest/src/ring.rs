//! The driver's side of a virtqueue, with a ring of either format (virtio 1.2, 2.7 and 2.8).

use std::collections::HashMap;

/// A buffer of a chain: the address, bytes and flags of its descriptor.
pub type Buffer = (u64, u32, u16);

/// The flag of a descriptor that another one follows.
pub const NEXT: u16 = 1;
/// The flag of a buffer that the device writes.
pub const WRITE: u16 = 2;
/// The flag of a descriptor that refers to a table of them.
pub const INDIRECT: u16 = 4;
/// Flags of a packed ring's descriptor. With one of the two it is available, with both or none it is used.
const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// The wrap counter, in a word with an index.
const WRAP: u16 = 1 << 15;

/// The modes of event suppression in a packed ring.
const EVENT_DISABLE: u16 = 1;
const EVENT_DESC: u16 = 2;

/// The format of a ring, and the addresses of its parts.
#[derive(Debug, Clone, Copy)]
pub struct RingLayout {
    /// The format.
    pub is_packed: bool,
    /// Whether kicks and signals are asked for by position.
    pub has_event_idx: bool,
    /// The number of descriptors.
    pub size: u16,
    /// The descriptors.
    pub descriptors: u64,
    /// The part that the driver writes. Packed: the driver's event suppression.
    pub available: u64,
    /// The part that the device writes. Packed: the device's event suppression.
    pub used: u64,
}

/// What a driver knows of its ring. Places are counted in chains (packed: in descriptors), without wrapping.
#[derive(Debug)]
pub struct Ring {
    /// The format and the place of the ring.
    pub layout: RingLayout,
    /// The place at which the ring has started.
    pub start: u64,
    /// The place behind the last available chain.
    pub available: u64,
    /// The place behind the last chain that was seen used.
    pub seen_used: u64,
    /// How far the device was kicked, or did not want a kick.
    kicked: u64,
    /// Packed: chains by head. The ring has no table that could hold chains before they are available.
    prepared: HashMap<u16, Vec<Buffer>>,
    /// Packed, by buffer id: descriptors of the chain made available with it last.
    descriptors: HashMap<u16, u64>,
}

impl Ring {
    /// A new ring, in memory that is zero.
    #[must_use]
    pub fn new(layout: RingLayout) -> Self {
        let (start, available, seen_used, kicked, prepared, descriptors) = Default::default();
        Self { layout, start, available, seen_used, kicked, prepared, descriptors }
    }

    /// Index and wrap counter at `place`, as one word. In a split ring, the index alone.
    #[must_use]
    pub fn bits(&self, place: u64) -> u16 {
        if !self.layout.is_packed {
            return place as u16;
        }
        let size = u64::from(self.layout.size);
        (place % size) as u16 | if (place / size).is_multiple_of(2) { WRAP } else { 0 }
    }

    /// The position of a drained queue at `place`, in vhost-user's format.
    #[must_use]
    pub fn position(&self, place: u64) -> u32 {
        let bits = u32::from(self.bits(place));
        if self.layout.is_packed { bits << 16 | bits } else { bits }
    }

    /// Places that `chains` chains of `descriptors` take up.
    #[must_use]
    pub fn places(&self, chains: u64, descriptors: u64) -> u64 {
        chains * if self.layout.is_packed { descriptors } else { 1 }
    }

    /// The address of the packed descriptor at `place`, and the flags that tell it available or used there.
    fn descriptor_at(&self, place: u64) -> (u64, u16, u16) {
        let bits = self.bits(place);
        let at = self.layout.descriptors + 16 * u64::from(bits & !WRAP);
        if bits & WRAP != 0 { (at, AVAILABLE, AVAILABLE | USED) } else { (at, USED, 0) }
    }

    /// The address of the entry at `place` in the available ring of a split ring.
    fn available_entry(&self, place: u64) -> u64 {
        self.layout.available + 4 + 2 * (place % u64::from(self.layout.size))
    }

    /// The places of the chain that was used with `head`.
    fn places_of(&self, head: u32) -> u64 {
        if self.layout.is_packed { self.descriptors[&(head as u16)] } else { 1 }
    }
}

/// A driver: a ring, and the memory that the ring is in.
pub trait Virtqueue {
    /// What the driver knows of its ring.
    fn ring(&self) -> &Ring;

    /// The same, to change it.
    fn ring_mut(&mut self) -> &mut Ring;

    /// Writes memory.
    fn write_at(&mut self, address: u64, bytes: &[u8]);

    /// Reads memory.
    fn read_at(&self, address: u64, bytes: &mut [u8]);

    /// A word of the memory.
    fn u16_at(&self, address: u64) -> u16 {
        let mut bytes = [0; 2];
        self.read_at(address, &mut bytes);
        u16::from_le_bytes(bytes)
    }

    /// A double word of the memory.
    fn u32_at(&self, address: u64) -> u32 {
        let mut bytes = [0; 4];
        self.read_at(address, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Writes a descriptor. The last two words are flags and next. In a packed ring they are buffer id and flags.
    fn write_descriptor(&mut self, at: u64, (address, bytes, third, fourth): (u64, u32, u16, u16)) {
        let tail = u64::from(bytes) | u64::from(third) << 32 | u64::from(fourth) << 48;
        self.write_at(at, &address.to_le_bytes());
        // The flags come last, because they show a packed ring's descriptor to the device.
        self.write_at(at + 8, &tail.to_le_bytes());
    }

    /// Makes a chain of buffers: in descriptors from `head` on, or for [`make_available`](Self::make_available) to
    /// place.
    fn chain(&mut self, head: u16, buffers: &[Buffer]) {
        let linked = linked(buffers);
        if self.ring().layout.is_packed {
            self.ring_mut().prepared.insert(head, linked);
            return;
        }
        let descriptors = self.ring().layout.descriptors;
        for (index, (address, bytes, flags)) in (head..).zip(linked) {
            self.write_descriptor(descriptors + 16 * u64::from(index), (address, bytes, flags, index + 1));
        }
    }

    /// Puts buffers into an indirect table at `table`, which descriptor `head` names.
    fn indirect_chain(&mut self, head: u16, table: u64, buffers: &[Buffer]) {
        let is_packed = self.ring().layout.is_packed;
        for (i, (address, bytes, flags)) in (0..).zip(linked(buffers)) {
            // In a packed ring's table only WRITE counts.
            let (third, fourth) = if is_packed { (!0, flags | !WRITE) } else { (flags, i + 1) };
            self.write_descriptor(table + 16 * u64::from(i), (address, bytes, third, fourth));
        }
        self.chain(head, &[(table, 16 * buffers.len() as u32, INDIRECT)]);
    }

    /// Makes a chain available, without a kick.
    fn make_available(&mut self, head: u16) {
        if self.ring().layout.is_packed {
            let chain = self.ring().prepared[&head].clone();
            return self.make_packed_available(head, &chain);
        }
        let available = self.ring().available;
        self.write_at(self.ring().available_entry(available), &head.to_le_bytes());
        self.set_available_idx(available + 1);
    }

    /// Makes descriptors of a packed ring available unchanged. In a valid chain all but the last have [`NEXT`].
    fn make_packed_available(&mut self, id: u16, chain: &[Buffer]) {
        let first = self.ring().available;
        // The first descriptor is written last, because it shows the whole chain to the device.
        for (i, &(address, bytes, flags)) in chain.iter().enumerate().rev() {
            // Only the last buffer id counts.
            let id = if i + 1 == chain.len() { id } else { !id };
            let (at, available, _) = self.ring().descriptor_at(first + i as u64);
            self.write_descriptor(at, (address, bytes, id, flags | available));
        }
        self.ring_mut().descriptors.insert(id, chain.len() as u64);
        self.ring_mut().available += chain.len() as u64;
    }

    /// Sets the available index of a split ring.
    fn set_available_idx(&mut self, place: u64) {
        self.ring_mut().available = place;
        self.write_at(self.ring().layout.available + 2, &(place as u16).to_le_bytes());
    }

    /// The chain that was used at a place: head and length.
    fn used_at(&self, place: u64) -> Option<(u32, u32)> {
        let RingLayout { is_packed, size, used, .. } = self.ring().layout;
        if !is_packed {
            let entry = used + 4 + 8 * (place % u64::from(size));
            return (place as u16 != self.u16_at(used + 2)).then(|| (self.u32_at(entry), self.u32_at(entry + 4)));
        }
        let (at, _, wanted) = self.ring().descriptor_at(place);
        let flags = self.u16_at(at + 14);
        if flags & (AVAILABLE | USED) != wanted {
            return None;
        }
        let (id, length) = (self.u16_at(at + 12), self.u32_at(at + 8));
        assert!(flags & WRITE != 0 || length == 0, "the length counts only with WRITE");
        Some((id.into(), length))
    }

    /// Chains used since the last call: head and length.
    fn used(&mut self) -> Vec<(u32, u32)> {
        let mut used = Vec::new();
        while let Some((head, length)) = self.used_at(self.ring().seen_used) {
            self.ring_mut().seen_used += self.ring().places_of(head);
            used.push((head, length));
        }
        used
    }

    /// The place behind the last used chain, seen or not.
    fn answered(&self) -> u64 {
        let mut place = self.ring().seen_used;
        while let Some((head, _)) = self.used_at(place) {
            place += self.ring().places_of(head);
        }
        place
    }

    /// Starts the ring at `place`, like a driver that has run for a while.
    fn start_at(&mut self, place: u16) {
        let RingLayout { is_packed, size, used, .. } = self.ring().layout;
        let place = u64::from(place);
        if is_packed {
            // Each descriptor was used in the previous round.
            for passed in place.saturating_sub(size.into())..place {
                let (at, _, used) = self.ring().descriptor_at(passed);
                self.write_at(at + 14, &used.to_le_bytes());
            }
        } else {
            self.set_available_idx(place);
            self.write_at(used + 2, &(place as u16).to_le_bytes());
        }
        let ring = self.ring_mut();
        (ring.start, ring.available, ring.seen_used, ring.kicked) = (place, place, place, place);
    }

    /// Enables or disables signals.
    fn set_signals(&mut self, are_wanted: bool) {
        let RingLayout { is_packed, available, .. } = self.ring().layout;
        let at = if is_packed { available + 2 } else { available };
        self.write_at(at, &u16::from(!are_wanted).to_le_bytes());
    }

    /// Asks for a signal when the used entry at `place` is written.
    fn set_used_event(&mut self, place: u64) {
        let RingLayout { is_packed, available, size, .. } = self.ring().layout;
        let event = self.ring().bits(place).to_le_bytes();
        if is_packed {
            self.write_at(available, &event);
            self.write_at(available + 2, &EVENT_DESC.to_le_bytes());
        } else {
            self.write_at(available + 4 + 2 * u64::from(size), &event);
        }
    }

    /// Asks for a signal when the next chain is used. Returns whether a chain is already used. No signal need come for
    /// it.
    fn wait_for_used(&mut self) -> bool {
        let next = self.ring().seen_used;
        if self.ring().layout.has_event_idx {
            self.set_used_event(next);
        } else {
            self.set_signals(true);
        }
        self.used_at(next).is_some()
    }

    /// Whether the device asks for kicks by its flag.
    fn kicks_wanted(&self) -> bool {
        let RingLayout { is_packed, used, .. } = self.ring().layout;
        self.u16_at(if is_packed { used + 2 } else { used }) != EVENT_DISABLE
    }

    /// Position at which the device asks for a kick, as [`Ring::bits`].
    fn avail_event(&self) -> u16 {
        let RingLayout { is_packed, size, used, .. } = self.ring().layout;
        if is_packed {
            assert_eq!(self.u16_at(used + 2), EVENT_DESC);
            return self.u16_at(used);
        }
        self.u16_at(used + 4 + 8 * u64::from(size))
    }

    /// Whether the device needs a kick for the chains made available since the last call.
    fn must_kick(&mut self) -> bool {
        let RingLayout { is_packed, has_event_idx, used, .. } = self.ring().layout;
        let available = self.ring().available;
        let mut new = std::mem::replace(&mut self.ring_mut().kicked, available)..available;
        // A packed ring's device may not have asked for kicks yet.
        let by_event = has_event_idx && (!is_packed || self.u16_at(used + 2) == EVENT_DESC);
        if by_event {
            new.any(|place| self.ring().bits(place) == self.avail_event())
        } else {
            !new.is_empty() && self.kicks_wanted()
        }
    }
}

/// Adds to each buffer the flag that links it to the next.
fn linked(buffers: &[Buffer]) -> Vec<Buffer> {
    let mut linked = buffers.to_vec();
    linked.iter_mut().rev().skip(1).for_each(|(.., flags)| *flags |= NEXT);
    linked
}
