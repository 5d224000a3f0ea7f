//! The driver's side of a ring, and what rings of both formats share.

use crate::machine::memory::{GUEST_START, Memory};

/// The descriptors of the longest chain.
pub(crate) const CHAIN_MAX: usize = 8;
/// The memory of a virtqueue.
pub(crate) const QUEUE_BYTES: usize = 0x3000;
/// The offsets of the parts that the driver and the device write. The descriptors are at offset 0. The entries of a split ring's
/// used ring are in another page than its index.
pub(crate) const AVAILABLE: usize = 0x1000;
pub(crate) const USED: usize = 0x1ffc;
/// The position at which a packed ring starts, in the form that a front-end passes: both indices 0, both wrap counters 1.
pub(crate) const PACKED_START: u32 = 0x8000_8000;

/// Flags of a descriptor: another descriptor follows, the device writes to the buffer, the descriptor refers to a table.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;

/// A piece of memory that a request names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    /// Its offset in the memory.
    pub(crate) at: usize,
    pub(crate) bytes: usize,
    /// The device writes to it.
    pub(crate) is_written: bool,
}

impl Segment {
    pub(super) fn flags(self) -> u16 {
        if self.is_written { WRITE } else { 0 }
    }
}

/// The driver's side of a ring.
pub(crate) trait Ring {
    /// Its number of descriptors.
    fn size(&self) -> u16;

    /// The position behind the last answer, in the form that a front-end passes.
    fn position(&self, memory: &Memory) -> u32;

    /// Makes a request available, with its descriptors in the table at `table` if there is one. Returns whether the device wants
    /// a kick.
    fn submit(&mut self, memory: &mut Memory, place: usize, segments: &[Segment], table: Option<usize>) -> bool;

    /// The places of the requests that were answered since the last call, with their used lengths.
    fn reap(&mut self, memory: &Memory) -> Vec<(usize, u32)>;
}

/// A descriptor, whose last two fields depend on the format.
pub(super) fn descriptor(at: usize, bytes: usize, fields: [u16; 2]) -> [u8; 16] {
    let mut descriptor = [0; 16];
    descriptor[..8].copy_from_slice(&(GUEST_START + at as u64).to_le_bytes());
    descriptor[8..12].copy_from_slice(&(bytes as u32).to_le_bytes());
    descriptor[12..14].copy_from_slice(&fields[0].to_le_bytes());
    descriptor[14..].copy_from_slice(&fields[1].to_le_bytes());
    descriptor
}
