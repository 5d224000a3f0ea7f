//! The guest's driver of one virtqueue, with a ring of either format.
//!
//! Each request has a place of its own, and a ring has room for the longest chain of each place.

mod packed;
mod ring;
mod split;

use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

use self::packed::PackedRing;
use self::ring::Ring;
pub(super) use self::ring::{AVAILABLE, CHAIN_MAX, PACKED_START, QUEUE_BYTES, Segment, USED};
use self::split::SplitRing;
use crate::guest::GuestPlan;

/// The driver of a virtqueue.
pub(super) struct Driver {
    pub(super) ring: Box<dyn Ring>,
    pub(super) kick: EventFd,
}

impl Driver {
    /// The driver of the n-th virtqueue of a machine, with a new ring.
    pub(super) fn new(index: usize, plan: &GuestPlan) -> Self {
        let start = index * QUEUE_BYTES;
        let ring: Box<dyn Ring> = if plan.rings.are_packed {
            Box::new(PackedRing::new(start, plan.depth, plan.rings.has_event_idx))
        } else {
            Box::new(SplitRing::new(start, plan.depth, plan.rings.has_event_idx))
        };
        Self { ring, kick: EventFd::new(EFD_NONBLOCK).expect("a descriptor for a virtqueue") }
    }
}
