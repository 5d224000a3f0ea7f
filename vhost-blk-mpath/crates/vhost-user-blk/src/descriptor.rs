//! Types that a ring and its in-flight log share: chains, the descriptors of a packed ring, and positions in it.

use vm_memory::ByteValued;

/// A chain that was taken from a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenChain {
    /// Index of its first descriptor: in the ring, or in the in-flight log of a packed ring that has one.
    pub(crate) head: u16,
    /// Descriptors that it takes up in a packed ring. Not used for split rings.
    pub(crate) descriptors: u16,
    /// The id by which the driver knows the chain: the head in a split ring, the driver's choice in a packed ring.
    pub(crate) id: u16,
}

/// One descriptor of a packed ring (virtio 1.2, 2.8.13), little-endian as in memory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RawPackedDescriptor {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) id: u16,
    pub(crate) flags: u16,
}

// SAFETY: plain integers without padding; any bytes are a valid value.
unsafe impl ByteValued for RawPackedDescriptor {}

/// A position in a packed ring with its wrap counter: one of twice as many positions as the ring has descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) index: u16,
    pub(crate) wrap: bool,
}

impl Cursor {
    /// The position `count` descriptors on, at most one round.
    pub(crate) fn plus(self, count: u16, size: u16) -> Self {
        // `count` and `size` are at most 32768 and `index` is below `size`, so the sum fits 16 bits.
        let index = self.index + count;
        if index < size { Self { index, ..self } } else { Self { index: index - size, wrap: !self.wrap } }
    }

    /// The position `count` descriptors back, at most one round.
    pub(crate) fn minus(self, count: u16, size: u16) -> Self {
        let back = self.plus(size - count, size);
        Self { wrap: !back.wrap, ..back }
    }

    /// Descriptors from here to `other`, less than two rounds.
    pub(crate) fn distance(self, other: Self, size: u16) -> u32 {
        let size = u32::from(size);
        let place = |cursor: Self| u32::from(cursor.index) + if cursor.wrap { 0 } else { size };
        (place(other) + 2 * size - place(self)) % (2 * size)
    }
}
