//! The guest's driver of one virtqueue, with a ring of either format.
//!
//! Each request has a place of its own, and a ring has room for the longest chain of each place.

use virtio_guest::{Buffer, GUEST_START, Ring, RingLayout, Virtqueue, WRITE};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use super::memory::Memory;
use crate::guest::GuestPlan;

/// The descriptors of the longest chain.
pub(crate) const CHAIN_MAX: usize = 8;
/// The memory of a virtqueue.
pub(crate) const QUEUE_BYTES: usize = 0x3000;
/// The offsets of the parts that the driver and the device write. The descriptors are at offset 0. The entries of a split ring's
/// used ring are in another page than its index.
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x1ffc;

/// A buffer at an offset in the memory.
pub(super) fn buffer(at: usize, bytes: usize, is_written: bool) -> Buffer {
    (GUEST_START + at as u64, bytes as u32, if is_written { WRITE } else { 0 })
}

/// The driver of a virtqueue.
pub(super) struct Driver {
    pub(super) ring: Ring,
    pub(super) kick: EventFd,
}

impl Driver {
    /// The driver of the n-th virtqueue of a machine, with a new ring. The size of a packed ring is rarely a power of two, so chains
    /// reach over its end.
    pub(super) fn new(index: usize, plan: &GuestPlan) -> Self {
        let start = GUEST_START + (index * QUEUE_BYTES) as u64;
        let places = plan.depth * CHAIN_MAX;
        let ring = Ring::new(RingLayout {
            is_packed: plan.rings.are_packed,
            has_event_idx: plan.rings.has_event_idx,
            size: if plan.rings.are_packed { places } else { places.next_power_of_two() } as u16,
            descriptors: start,
            available: start + AVAILABLE,
            used: start + USED,
        });
        Self { ring, kick: EventFd::new(EFD_NONBLOCK).expect("a descriptor for a virtqueue") }
    }

    /// The driver at work in the memory of its machine.
    pub(super) fn within<'a>(&'a mut self, memory: &'a mut Memory) -> DriverAtWork<'a> {
        DriverAtWork { ring: &mut self.ring, memory }
    }
}

/// A driver that has the memory of its machine.
pub(super) struct DriverAtWork<'a> {
    ring: &'a mut Ring,
    memory: &'a mut Memory,
}

impl Virtqueue for DriverAtWork<'_> {
    fn ring(&self) -> &Ring {
        self.ring
    }

    fn ring_mut(&mut self) -> &mut Ring {
        self.ring
    }

    fn write_at(&mut self, address: u64, bytes: &[u8]) {
        self.memory.write((address - GUEST_START) as usize, bytes);
    }

    fn read_at(&self, address: u64, bytes: &mut [u8]) {
        self.memory.read_to((address - GUEST_START) as usize, bytes);
    }
}

impl DriverAtWork<'_> {
    /// The position behind the last answer, in the form that a front-end passes.
    pub(super) fn position(&self) -> u32 {
        self.ring.position(self.answered())
    }

    /// Makes a request available, with its descriptors in a table at an offset in the memory if there is one. Returns whether the
    /// device wants a kick.
    pub(super) fn submit(&mut self, place: usize, buffers: &[Buffer], table: Option<usize>) -> bool {
        let head = (place * CHAIN_MAX) as u16;
        match table {
            Some(at) => self.indirect_chain(head, GUEST_START + at as u64, buffers),
            None => self.chain(head, buffers),
        }
        self.make_available(head);
        self.must_kick()
    }

    /// The places of the requests that were answered since the last call, with their used lengths.
    pub(super) fn reap(&mut self) -> Vec<(usize, u32)> {
        self.used().into_iter().map(|(head, length)| (head as usize / CHAIN_MAX, length)).collect()
    }
}
