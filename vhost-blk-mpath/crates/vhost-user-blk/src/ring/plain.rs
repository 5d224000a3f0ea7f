//! The usual chain of a read or write: a header, one buffer of data, and a status byte. Each lies in one region of memory.
//! Such a chain is read without lists.
//!
//! All other chains, and all malformed ones, are left to the general walk ([`chain`](super::chain)), which begins again.

use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use super::chain::Descriptor;
use super::format::Ring;
use super::packed::PackedRing;
use super::split::SplitRing;
use crate::buffer::{GuestByte, Segment};
use crate::descriptor::TakenChain;
use crate::memory::GuestMemory;
use crate::request::HEADER_BYTES;

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// The length of a table of three descriptors.
const TABLE_BYTES: u32 = 48;

/// A chain of the usual form.
pub(super) struct PlainChain {
    /// The header as two little-endian words.
    pub(super) header: [u64; 2],
    pub(super) data: Segment,
    /// The length of the data, not 0.
    pub(super) bytes: u32,
    /// Whether the device writes the data.
    pub(super) is_writable: bool,
    pub(super) status: GuestByte,
}

impl PlainChain {
    /// Reads a chain. Each value is read once. `None` if the chain has another form.
    pub(super) fn read(memory: &GuestMemory, ring: &Ring, chain: TakenChain, indirect: bool) -> Option<Self> {
        let [header, data, status] = match ring {
            Ring::Split(ring) => split(memory, ring, chain.head, indirect)?,
            Ring::Packed(ring) => packed(memory, ring, chain, indirect)?,
        };
        let is_plain = u64::from(header.len) == HEADER_BYTES
            && header.flags & WRITE == 0
            && status.len == 1
            && status.flags & WRITE != 0;
        if !is_plain {
            return None;
        }
        let [header] = memory.word_pairs(header.addr)?;
        Some(Self {
            header,
            data: Segment::at(memory, data.addr, data.len)?,
            bytes: data.len,
            is_writable: data.flags & WRITE != 0,
            status: GuestByte::at(memory, status.addr)?,
        })
    }
}

fn split(memory: &GuestMemory, ring: &SplitRing, head: u16, indirect: bool) -> Option<[Descriptor; 3]> {
    let head = Descriptor::from(ring.descriptor(head));
    let chain @ [first, second, third] = if head.flags == INDIRECT {
        if !indirect || head.len != TABLE_BYTES {
            return None;
        }
        let chain @ [first, second, _] = memory.word_pairs(head.addr)?.map(|[addr, rest]| Descriptor {
            addr,
            len: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        });
        if (first.next, second.next) != (1, 2) {
            return None;
        }
        chain
    } else {
        let next = |descriptor: Descriptor| {
            (descriptor.next < ring.size()).then(|| Descriptor::from(ring.descriptor(descriptor.next)))
        };
        let second = next(head)?;
        // A chain is at most as long as the ring.
        [head, second, next(second).filter(|_| ring.size() >= 3)?]
    };
    ((first.flags, second.flags & !WRITE, third.flags) == (NEXT, NEXT, WRITE)).then_some(chain)
}

fn packed(memory: &GuestMemory, ring: &PackedRing, chain: TakenChain, indirect: bool) -> Option<[Descriptor; 3]> {
    let (head, second) = ring.descriptor(chain.head);
    let head = Descriptor::from(head);
    match chain.descriptors {
        1 if head.flags & INDIRECT != 0 && indirect && head.len == TABLE_BYTES => {
            // In a table of a packed ring, only WRITE means something (2.8.7).
            let descriptor =
                |[addr, rest]: [u64; 2]| Descriptor { addr, len: rest as u32, flags: (rest >> 48) as u16, next: 0 };
            Some(memory.word_pairs(head.addr)?.map(descriptor))
        }
        3 => {
            let (second, third) = ring.descriptor(second);
            let chain = [head, second.into(), ring.descriptor(third).0.into()];
            chain.iter().all(|descriptor| descriptor.flags & INDIRECT == 0).then_some(chain)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::buffer::Segments;
    use crate::memory::tests::anonymous;
    use crate::ring::RingLayout;
    use crate::ring::chain::{Chain, ChainLimits};

    /// Address, length, flags and next.
    type Raw = (u64, u32, u16, u16);

    const READ: [Raw; 3] = [(0x2000, 16, NEXT, 1), (0x3000, 4096, NEXT | WRITE, 2), (0x4000, 1, WRITE, 0)];
    const SIZE: u16 = 4;
    const TABLE: u64 = 0x1000;
    /// The second region of memory begins here.
    const BORDER: u64 = 0x1_0000;

    /// A ring, its memory, and the chain at its start: in the ring or in a table.
    fn world(is_packed: bool, is_table: bool, chain: &[Raw]) -> (Arc<GuestMemory>, Ring, TakenChain) {
        let memory = Arc::new(anonymous(&[(0, BORDER), (BORDER, 0x1000)]));
        let put = |at: u64, (addr, len, flags, next): Raw| {
            let fields = if is_packed { [7, flags] } else { [flags, next] };
            let rest = u128::from(len) | u128::from(fields[0]) << 32 | u128::from(fields[1]) << 48;
            memory.guest_slice(at, 16).unwrap().copy_from(&(u128::from(addr) | rest << 64).to_le_bytes());
        };
        let mut descriptors = chain.len() as u16;
        if is_table {
            put(0, (TABLE, 16 * u32::from(descriptors), INDIRECT, 0));
            descriptors = 1;
        }
        for (&raw, at) in chain.iter().zip((if is_table { TABLE } else { 0 }..).step_by(16)) {
            put(at, raw);
        }
        for (at, byte) in (0x2000..).zip(1_u8..=100) {
            memory.guest_slice(at, 1).unwrap().copy_from(&[byte]);
        }
        let layout = RingLayout {
            packed: is_packed,
            size: SIZE,
            descriptors: 0,
            available: 0x8000,
            used: 0x9000,
            event_idx: false,
            position: 0,
        };
        let ring = Ring::new(&memory, &layout).unwrap();
        (memory, ring, TakenChain { head: 0, descriptors, id: 0 })
    }

    #[test]
    fn usual_reads_and_writes_are_plain() {
        for (is_packed, is_table) in [(false, false), (false, true), (true, false), (true, true)] {
            for is_writable in [true, false] {
                let mut chain = READ;
                chain[1].2 = if is_writable { NEXT | WRITE } else { NEXT };
                let (memory, ring, taken) = world(is_packed, is_table, &chain);
                let plain = PlainChain::read(&memory, &ring, taken, true).unwrap();
                assert_eq!((plain.bytes, plain.is_writable), (4096, is_writable));
                assert_eq!(plain.header, [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09]);
                let without_tables = PlainChain::read(&memory, &ring, taken, false);
                assert_eq!(without_tables.is_none(), is_table);
            }
        }
    }

    fn any_descriptor(usual: Raw) -> impl Strategy<Value = Raw> {
        let address = prop_oneof![
            6 => Just(usual.0),
            2 => 0x2000_u64..0x5000,
            1 => BORDER - 20..BORDER,
            1 => any::<u64>(),
        ];
        let bytes = prop_oneof![6 => Just(usual.1), 2 => 0_u32..40, 1 => any::<u32>()];
        let flags = prop_oneof![8 => Just(usual.2), 1 => 0_u16..8, 1 => any::<u16>()];
        let next = prop_oneof![8 => Just(usual.3), 1 => 0_u16..5, 1 => any::<u16>()];
        (address, bytes, flags, next)
    }

    proptest! {
        /// A chain is plain only if the general walk finds the same header, data and status.
        #[test]
        fn the_walk_finds_the_same(
            is_packed: bool, is_table: bool, indirect: bool, count in prop_oneof![6 => Just(3_usize), 1 => 1_usize..4],
            chain in READ.map(any_descriptor),
        ) {
            let (memory, ring, taken) = world(is_packed, is_table, &chain[..count]);
            let Some(plain) = PlainChain::read(&memory, &ring, taken, indirect) else { return Ok(()) };
            let mut walked = Chain::new(&memory, ChainLimits::new(indirect, SIZE));
            let status = walked.walk(&memory, &ring, taken).unwrap();
            prop_assert_eq!(status.place(), plain.status.place());
            let mut header = [0; 16];
            walked.readable().copy_to(0, &mut header);
            prop_assert_eq!(u128::from_le_bytes(header), u128::from(plain.header[0]) | u128::from(plain.header[1]) << 64);
            let (readable, writable) = (walked.readable(), walked.writable());
            let data_bytes = u64::from(plain.bytes);
            let (all, data) = if plain.is_writable {
                ((16, data_bytes + 1), writable.part(Arc::clone(&memory), 0, data_bytes))
            } else {
                ((16 + data_bytes, 1), readable.part(Arc::clone(&memory), 16, data_bytes))
            };
            prop_assert_eq!((readable.bytes(), writable.bytes()), all);
            // SAFETY: the data were found in this memory.
            let found = unsafe { Segments::one(Arc::clone(&memory), plain.data) };
            prop_assert!(data.guest_ranges().eq(found.guest_ranges()));
        }
    }
}
