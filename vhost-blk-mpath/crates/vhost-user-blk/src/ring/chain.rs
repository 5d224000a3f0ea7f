//! Decides: a chain is malformed.
//!
//! Walks one descriptor chain into its readable and writable buffers.

use std::sync::Arc;

use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};
use vm_memory::{ByteValued, VolatileMemory, VolatileSlice};

use super::format::Ring;
use super::packed::PackedRing;
use super::split::{RawDescriptor, SplitRing};
use crate::buffer::{GuestByte, Segments};
use crate::descriptor::{RawPackedDescriptor, TakenChain};
use crate::memory::GuestMemory;

/// The length of a descriptor, which is the same in rings of either format.
const DESCRIPTOR_BYTES: usize = size_of::<RawDescriptor>();

/// The longest chain that is served in a queue of any size. 2.7.5.3.1 (2.8.19 for packed rings) forbids chains
/// longer than the queue, and `seg_max` is smaller still. But drivers build indirect tables by limits of their own:
/// Windows sends up to 515 segments.
const SERVED_MIN: u16 = 1024;
/// A table is followed for this many times the descriptors that are served, to find the status byte of a longer chain.
const FOLLOWED: usize = 4;

/// The defect of a malformed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainDefect {
    /// The chain has no end, or is far longer than a chain that is served.
    #[error("it is endless, or too long to be followed")]
    Endless,
    /// A descriptor links to one outside its table.
    #[error("descriptor {0} is outside its table")]
    LinkOutOfTable(u16),
    /// A descriptor names a table that is not in guest memory, has no whole descriptors, or must not be there.
    #[error("its indirect descriptor is not valid")]
    BadIndirect,
    /// A buffer is not in guest memory.
    #[error("a buffer is not in guest memory")]
    Unmapped,
    /// A buffer that the device reads comes after one that it writes.
    #[error("a readable buffer comes after a writable one")]
    ReadableAfterWritable,
    /// The buffers of the chain are too long together.
    #[error("its buffers have 4 GiB or more")]
    TooLong,
    /// The chain has more descriptors than one that is served.
    #[error("it has more than {0} descriptors")]
    TooManyDescriptors(u16),
    /// The device may write to no byte of the chain.
    #[error("it has no writable byte")]
    NoWritableByte,
}

/// The allowed layout of chains.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainLimits {
    /// `VIRTIO_RING_F_INDIRECT_DESC` was negotiated.
    indirect: bool,
    /// Most descriptors of a chain that is served.
    descriptors: u16,
}

impl ChainLimits {
    /// The limits of a queue of `size` entries.
    pub(super) fn new(indirect: bool, size: u16) -> Self {
        Self { indirect, descriptors: size.max(SERVED_MIN) }
    }
}

#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    pub(super) addr: u64,
    pub(super) len: u32,
    pub(super) flags: u16,
    /// Used in split rings only. 0 otherwise.
    pub(super) next: u16,
}

impl From<RawPackedDescriptor> for Descriptor {
    fn from(raw: RawPackedDescriptor) -> Self {
        Self { addr: u64::from_le(raw.addr), len: u32::from_le(raw.len), flags: u16::from_le(raw.flags), next: 0 }
    }
}

impl From<RawDescriptor> for Descriptor {
    fn from(raw: RawDescriptor) -> Self {
        Self {
            addr: u64::from_le(raw.addr),
            len: u32::from_le(raw.len),
            flags: u16::from_le(raw.flags),
            next: u16::from_le(raw.next),
        }
    }
}

impl Descriptor {
    pub(super) fn has(self, flag: u32) -> bool {
        u32::from(self.flags) & flag != 0
    }
}

/// The buffers of the current chain. One value serves all chains of a queue, so its lists need no new memory.
#[derive(Debug)]
pub(super) struct Chain {
    limits: ChainLimits,
    readable: Segments,
    writable: Segments,
    /// Descriptors followed so far.
    descriptors: usize,
    defect: Option<ChainDefect>,
    /// After a defect: the last writable byte, if the chain has an end and that byte is mapped.
    status: Option<GuestByte>,
}

impl Chain {
    pub(super) fn new(memory: &Arc<GuestMemory>, limits: ChainLimits) -> Self {
        Self {
            limits,
            readable: Segments::new(Arc::clone(memory)),
            writable: Segments::new(Arc::clone(memory)),
            descriptors: 0,
            defect: None,
            status: None,
        }
    }

    pub(super) fn readable(&self) -> &Segments {
        &self.readable
    }

    /// The writable buffers, including the status byte.
    pub(super) fn writable(&self) -> &Segments {
        &self.writable
    }

    /// The status byte of a malformed chain, if it has one.
    pub(super) fn status(&self) -> Option<GuestByte> {
        self.status
    }

    /// Walks a chain of `ring` and returns its status byte. `memory` is the memory map of this value.
    pub(super) fn walk(
        &mut self,
        memory: &GuestMemory,
        ring: &Ring,
        chain: TakenChain,
    ) -> Result<GuestByte, ChainDefect> {
        self.readable.clear();
        self.writable.clear();
        (self.descriptors, self.defect, self.status) = (0, None, None);
        // A chain without an end has no status byte.
        let followed = match ring {
            Ring::Split(ring) => self.follow(memory, ring, chain.head),
            Ring::Packed(ring) => self.follow_packed(memory, ring, chain),
        };
        followed.inspect_err(|_| self.status = None)?;
        if let Some(defect) = self.defect {
            return Err(defect);
        }
        self.writable.last_byte().ok_or(ChainDefect::NoWritableByte)
    }

    /// The number of descriptors that the last walk has followed.
    pub(super) fn followed(&self) -> usize {
        self.descriptors
    }

    /// The most descriptors of a table that are followed.
    fn followed_max(&self) -> usize {
        FOLLOWED * usize::from(self.limits.descriptors)
    }

    /// Follows the chain of a split ring. An error means that it has no end.
    fn follow(&mut self, memory: &GuestMemory, ring: &SplitRing, head: u16) -> Result<(), ChainDefect> {
        let mut index = head;
        for _ in 0..ring.size() {
            let descriptor = Descriptor::from(ring.descriptor(index));
            if descriptor.has(VRING_DESC_F_INDIRECT) {
                // 2.7.5.3.1: a table is the last descriptor of a chain. Its WRITE flag means nothing.
                if !self.limits.indirect || descriptor.has(VRING_DESC_F_NEXT) {
                    return Err(ChainDefect::BadIndirect);
                }
                return self.follow_table(memory, descriptor);
            }
            self.add(memory, descriptor);
            if !descriptor.has(VRING_DESC_F_NEXT) {
                return Ok(());
            }
            index = descriptor.next;
            if index >= ring.size() {
                return Err(ChainDefect::LinkOutOfTable(index));
            }
        }
        Err(ChainDefect::Endless)
    }

    fn follow_table(&mut self, memory: &GuestMemory, table: Descriptor) -> Result<(), ChainDefect> {
        let table = Table::new(memory, table)?;
        let mut index = 0;
        for _ in 0..self.followed_max() {
            if usize::from(index) >= table.len {
                return Err(ChainDefect::LinkOutOfTable(index));
            }
            let descriptor = table.read::<RawDescriptor>(index.into())?;
            if descriptor.has(VRING_DESC_F_INDIRECT) {
                return Err(ChainDefect::BadIndirect);
            }
            self.add(memory, descriptor);
            if !descriptor.has(VRING_DESC_F_NEXT) {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err(ChainDefect::Endless)
    }

    /// Follows the chain of a packed ring, whose length is known.
    fn follow_packed(&mut self, memory: &GuestMemory, ring: &PackedRing, chain: TakenChain) -> Result<(), ChainDefect> {
        let mut index = chain.head;
        for _ in 0..chain.descriptors {
            let (raw, next) = ring.descriptor(index);
            let descriptor = Descriptor::from(raw);
            index = next;
            if !descriptor.has(VRING_DESC_F_INDIRECT) {
                self.add(memory, descriptor);
                continue;
            }
            // 2.8.19: a table is a chain by itself.
            if !self.limits.indirect || chain.descriptors > 1 {
                return Err(ChainDefect::BadIndirect);
            }
            self.follow_packed_table(memory, descriptor)?;
        }
        Ok(())
    }

    /// Follows an indirect table of a packed ring. 2.8.7: all its descriptors count, in order, and only their WRITE
    /// flag. If the table is too long, only its end is followed, where the status byte is.
    fn follow_packed_table(&mut self, memory: &GuestMemory, table: Descriptor) -> Result<(), ChainDefect> {
        let table = Table::new(memory, table)?;
        let skipped = table.len.saturating_sub(self.followed_max());
        self.descriptors = skipped;
        for index in skipped..table.len {
            self.add(memory, table.read::<RawPackedDescriptor>(index)?);
        }
        Ok(())
    }

    /// Adds one buffer.
    fn add(&mut self, memory: &GuestMemory, descriptor: Descriptor) {
        self.descriptors += 1;
        if self.defect.is_none() {
            let Err(defect) = self.push(descriptor) else { return };
            (self.defect, self.status) = (Some(defect), self.writable.last_byte());
        }
        // After a defect only the status byte matters, which comes at the end.
        if descriptor.len > 0 && descriptor.has(VRING_DESC_F_WRITE) {
            let last = descriptor.addr.checked_add(u64::from(descriptor.len) - 1);
            self.status = last.and_then(|last| GuestByte::at(memory, last));
        }
    }

    /// Appends a buffer to its list. After an error a part may be appended.
    fn push(&mut self, descriptor: Descriptor) -> Result<(), ChainDefect> {
        if self.descriptors > usize::from(self.limits.descriptors) {
            return Err(ChainDefect::TooManyDescriptors(self.limits.descriptors));
        }
        let Descriptor { addr, len, .. } = descriptor;
        if len == 0 {
            return Ok(());
        }
        let is_writable = descriptor.has(VRING_DESC_F_WRITE);
        if !is_writable && self.writable.bytes() > 0 {
            return Err(ChainDefect::ReadableAfterWritable);
        }
        let buffers = if is_writable { &mut self.writable } else { &mut self.readable };
        if !buffers.push_guest_range(addr, len) {
            return Err(ChainDefect::Unmapped);
        }
        // Checked here, so that few buffers in many regions of memory make no long list.
        if self.readable.bytes() + self.writable.bytes() > u64::from(u32::MAX) {
            return Err(ChainDefect::TooLong);
        }
        Ok(())
    }
}

/// An indirect table, with at least one descriptor, and only whole ones.
struct Table<'a> {
    memory: &'a GuestMemory,
    start: u64,
    /// Its descriptors.
    len: usize,
    /// The part of it in the first region of memory. Mostly that is all of it.
    slice: VolatileSlice<'a>,
}

impl<'a> Table<'a> {
    fn new(memory: &'a GuestMemory, table: Descriptor) -> Result<Self, ChainDefect> {
        let Descriptor { addr: start, len, .. } = table;
        let bytes = len as usize;
        let slice = memory.guest_slice(start, len.into()).ok_or(ChainDefect::BadIndirect)?;
        let is_mapped = slice.len() == bytes || memory.contains(start, len.into());
        if !bytes.is_multiple_of(DESCRIPTOR_BYTES) || !is_mapped {
            return Err(ChainDefect::BadIndirect);
        }
        Ok(Self { memory, start, len: bytes / DESCRIPTOR_BYTES, slice })
    }

    /// Copies entry `index`, which is below [`len`](Self::len). It need not be aligned.
    fn read<T: ByteValued + Into<Descriptor>>(&self, index: usize) -> Result<Descriptor, ChainDefect> {
        let offset = index * DESCRIPTOR_BYTES;
        if let Ok(entry) = self.slice.get_ref::<T>(offset) {
            return Ok(entry.load().into());
        }
        // Behind the first region, or across its border.
        let mut entry = T::zeroed();
        for (at, byte) in (self.start + offset as u64..).zip(entry.as_mut_slice()) {
            let place = self.memory.guest_slice(at, 1).ok_or(ChainDefect::BadIndirect)?;
            place.copy_to(std::slice::from_mut(byte));
        }
        Ok(entry.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::anonymous;
    use crate::ring::RingLayout;

    const MEMORY_BYTES: u32 = 64 << 20;
    const TABLE: u64 = 0x1_0000;

    /// Walks an indirect chain of `count` writable buffers, whose table is at `table`. Each of them is `bytes` long.
    fn walk_in(memory: GuestMemory, table: u64, count: u16, bytes: u32) -> Result<(), ChainDefect> {
        let memory = Arc::new(memory);
        let put = |at: u64, (addr, len, flags, next): (u64, u32, u32, u16)| {
            let raw = u128::from(addr) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
            for (at, byte) in (at..).zip(raw.to_le_bytes()) {
                memory.guest_slice(at, 1).unwrap().copy_from(&[byte]);
            }
        };
        put(0, (table, u32::from(count) * 16, VRING_DESC_F_INDIRECT, 0));
        for i in 0..count {
            let next = if i + 1 < count { VRING_DESC_F_NEXT } else { 0 };
            put(table + 16 * u64::from(i), (0, bytes, VRING_DESC_F_WRITE | next, i + 1));
        }
        let layout = RingLayout {
            packed: false,
            size: 16,
            descriptors: 0,
            available: 0x8000,
            used: 0x9000,
            event_idx: false,
            position: 0,
        };
        let ring = Ring::new(&memory, &layout).unwrap();
        let mut chain = Chain::new(&memory, ChainLimits::new(true, 16));
        chain.walk(&memory, &ring, TakenChain { head: 0, descriptors: 0, id: 0 }).map(|_| ())
    }

    /// Each buffer is all of memory.
    fn walk(count: u16) -> Result<(), ChainDefect> {
        walk_in(anonymous(&[(0, MEMORY_BYTES.into())]), TABLE, count, MEMORY_BYTES)
    }

    #[test]
    fn a_chain_holds_less_than_four_gibibytes() {
        assert_eq!(walk(63), Ok(()));
        assert_eq!(walk(64), Err(ChainDefect::TooLong));
        assert_eq!(walk(1024), Err(ChainDefect::TooLong));
        assert_eq!(walk(4096), Err(ChainDefect::TooLong));
        assert_eq!(walk(4097), Err(ChainDefect::Endless));
    }

    #[test]
    fn a_table_may_lie_in_several_regions_of_memory() {
        const BORDER: u64 = 0x2_0000;
        // The border is in front of a descriptor, within one, and within one that is not aligned.
        for table in [BORDER - 32, BORDER - 24, BORDER - 19] {
            let memory = anonymous(&[(0, BORDER), (BORDER, BORDER)]);
            assert_eq!(walk_in(memory, table, 4, 512), Ok(()), "{table:#x}");
        }
    }
}
