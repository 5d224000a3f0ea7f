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

/// The defect of a malformed chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ChainDefect {
    #[error("endless, or longer than the queue")]
    Endless,
    #[error("descriptor {0} is outside its table")]
    LinkOutOfTable(u16),
    #[error("bad indirect descriptor")]
    BadIndirect,
    #[error("buffer not in guest memory")]
    Unmapped,
    #[error("readable buffer after a writable one")]
    ReadableAfterWritable,
    #[error("4 GiB of buffers or more")]
    TooLong,
    #[error("no writable byte for the status")]
    NoStatus,
}

/// The allowed layout of chains.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainLimits {
    /// `VIRTIO_RING_F_INDIRECT_DESC` was negotiated.
    pub(super) indirect: bool,
    /// Most descriptors followed in an indirect table.
    pub(super) indirect_descriptors: u16,
}

#[derive(Clone, Copy)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u16,
    /// Used in split rings only. 0 otherwise.
    next: u16,
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
    fn has(self, flag: u32) -> bool {
        u32::from(self.flags) & flag != 0
    }
}

/// The buffers of the current chain. One value serves all chains of a queue, so its lists need no new memory.
#[derive(Debug)]
pub(super) struct Chain {
    limits: ChainLimits,
    readable: Segments,
    writable: Segments,
    /// The last writable byte, if the chain has an end and that byte is mapped.
    status: Option<GuestByte>,
    defect: Option<ChainDefect>,
}

impl Chain {
    pub(super) fn new(memory: &Arc<GuestMemory>, limits: ChainLimits) -> Self {
        Self {
            limits,
            readable: Segments::new(Arc::clone(memory)),
            writable: Segments::new(Arc::clone(memory)),
            status: None,
            defect: None,
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
        (self.status, self.defect) = (None, None);
        // A chain without an end has no status byte.
        let followed = match ring {
            Ring::Split(ring) => self.follow(memory, ring, chain.head),
            Ring::Packed(ring) => self.follow_packed(memory, ring, chain),
        };
        followed.inspect_err(|_| self.status = None)?;
        if let Some(defect) = self.defect {
            return Err(defect);
        }
        if self.readable.bytes() + self.writable.bytes() > u64::from(u32::MAX) {
            return Err(ChainDefect::TooLong);
        }
        self.status.ok_or(ChainDefect::NoStatus)
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
            self.add(descriptor);
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
        let slice = indirect_table(memory, table)?;
        let mut index = 0;
        for _ in 0..self.limits.indirect_descriptors {
            let descriptor = read_descriptor::<RawDescriptor>(&slice, index);
            let descriptor = descriptor.ok_or(ChainDefect::LinkOutOfTable(index))?;
            if descriptor.has(VRING_DESC_F_INDIRECT) {
                return Err(ChainDefect::BadIndirect);
            }
            self.add(descriptor);
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
                self.add(descriptor);
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
    /// flag.
    fn follow_packed_table(&mut self, memory: &GuestMemory, table: Descriptor) -> Result<(), ChainDefect> {
        let slice = indirect_table(memory, table)?;
        let count = u16::try_from(slice.len() / DESCRIPTOR_BYTES).map_err(|_| ChainDefect::Endless)?;
        if count > self.limits.indirect_descriptors {
            return Err(ChainDefect::Endless);
        }
        for index in 0..count {
            let descriptor = read_descriptor::<RawPackedDescriptor>(&slice, index);
            self.add(descriptor.ok_or(ChainDefect::LinkOutOfTable(index))?);
        }
        Ok(())
    }

    /// Adds one buffer. After a defect the walk continues, because the status byte comes at the end.
    fn add(&mut self, descriptor: Descriptor) {
        if descriptor.len == 0 {
            return;
        }
        if descriptor.has(VRING_DESC_F_WRITE) {
            let mapped = self.writable.push_guest_range(descriptor.addr, descriptor.len);
            self.status = if mapped { self.writable.last_byte() } else { None };
            if !mapped {
                self.defect.get_or_insert(ChainDefect::Unmapped);
            }
        } else {
            if self.writable.bytes() > 0 || self.defect.is_some() {
                self.defect.get_or_insert(ChainDefect::ReadableAfterWritable);
                return;
            }
            if !self.readable.push_guest_range(descriptor.addr, descriptor.len) {
                self.defect.get_or_insert(ChainDefect::Unmapped);
            }
        }
    }
}

/// The table of an indirect descriptor: at least one descriptor, and only whole ones.
fn indirect_table(memory: &GuestMemory, table: Descriptor) -> Result<VolatileSlice<'_>, ChainDefect> {
    let bytes = table.len as usize;
    if bytes == 0 || !bytes.is_multiple_of(DESCRIPTOR_BYTES) {
        return Err(ChainDefect::BadIndirect);
    }
    let slice = memory.guest_slice(table.addr, u64::from(table.len)).filter(|slice| slice.len() == bytes);
    slice.ok_or(ChainDefect::BadIndirect)
}

/// Copies entry `index` of an indirect table, which need not be aligned. `None` if the entry is outside.
fn read_descriptor<T: ByteValued + Into<Descriptor>>(table: &VolatileSlice<'_>, index: u16) -> Option<Descriptor> {
    let entry = table.get_ref::<T>(usize::from(index) * DESCRIPTOR_BYTES).ok()?;
    Some(entry.load().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::tests::anonymous;
    use crate::ring::RingLayout;

    const MEMORY_BYTES: u32 = 64 << 20;
    const TABLE: u64 = 0x1_0000;

    /// Walks an indirect chain of `count` writable buffers. Each of them is all of memory.
    fn walk(count: u16) -> Result<(), ChainDefect> {
        let memory = Arc::new(anonymous(&[(0, MEMORY_BYTES.into())]));
        let put = |at: u64, (addr, len, flags, next): (u64, u32, u32, u16)| {
            let raw = u128::from(addr) | u128::from(len) << 64 | u128::from(flags) << 96 | u128::from(next) << 112;
            memory.guest_slice(at, 16).unwrap().copy_from(&raw.to_le_bytes());
        };
        put(0, (TABLE, u32::from(count) * 16, VRING_DESC_F_INDIRECT, 0));
        for i in 0..count {
            let next = if i + 1 < count { VRING_DESC_F_NEXT } else { 0 };
            put(TABLE + 16 * u64::from(i), (0, MEMORY_BYTES, VRING_DESC_F_WRITE | next, i + 1));
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
        let mut chain = Chain::new(&memory, ChainLimits { indirect: true, indirect_descriptors: 128 });
        chain.walk(&memory, &ring, TakenChain { head: 0, descriptors: 0, id: 0 }).map(|_| ())
    }

    #[test]
    fn a_chain_holds_less_than_four_gibibytes() {
        assert_eq!(walk(63), Ok(()));
        assert_eq!(walk(64), Err(ChainDefect::TooLong));
        assert_eq!(walk(128), Err(ChainDefect::TooLong));
        assert_eq!(walk(129), Err(ChainDefect::Endless));
    }
}
