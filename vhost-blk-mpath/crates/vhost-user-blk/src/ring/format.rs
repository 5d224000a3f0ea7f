//! The two formats of a virtqueue. Features decide which of them it is.

use std::sync::Arc;

use super::RingError;
use super::packed::PackedRing;
use super::split::{QueueError, RingLayout, SplitRing};
use crate::descriptor::Taken;
use crate::dirty::QueueLog;
use crate::inflight::{InflightArea, InflightError};
use crate::memory::GuestMemory;

/// A ring in guest memory and our position in it.
#[derive(Debug)]
pub(super) enum Ring {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    pub(super) fn new(memory: &Arc<GuestMemory>, layout: &RingLayout) -> Result<Self, RingError> {
        if layout.packed {
            PackedRing::new(memory, layout).map(Self::Packed)
        } else {
            SplitRing::new(memory, layout).map(Self::Split)
        }
    }

    /// Goes on where the log says that a queue ended, if it is not new, and writes it from now on.
    pub(super) fn resume(&mut self, area: &InflightArea) -> Result<(), InflightError> {
        match self {
            Self::Split(ring) => ring.resume(area),
            Self::Packed(ring) => ring.resume(area),
        }
    }

    /// Has what is written to the ring marked for a migration.
    pub(super) fn set_dirty_log(&mut self, log: QueueLog) {
        match self {
            Self::Split(ring) => ring.set_dirty_log(log),
            Self::Packed(ring) => ring.set_dirty_log(log),
        }
    }

    /// Where to go on, as vhost-user passes it.
    pub(super) fn position(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.next_available().into(),
            Self::Packed(ring) => ring.position(),
        }
    }

    /// Chains taken and not yet published as used.
    pub(super) fn outstanding(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.outstanding(),
            Self::Packed(ring) => ring.outstanding(),
        }
    }

    /// Chains that a queue before this one had in flight and that were not taken again yet.
    pub(super) fn to_resubmit(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.to_resubmit(),
            Self::Packed(ring) => ring.to_resubmit(),
        }
    }

    /// Whether a chain is available that was not taken.
    pub(super) fn is_waiting(&self) -> bool {
        match self {
            Self::Split(ring) => ring.is_waiting(),
            Self::Packed(ring) => ring.is_waiting(),
        }
    }

    /// Takes the next available chain; before all others those that a queue before this one had in flight.
    pub(super) fn next_chain(&mut self) -> Result<Option<Taken>, QueueError> {
        match self {
            Self::Split(ring) => Ok(ring.next_head()?.map(|head| Taken { head, descriptors: 0, id: head })),
            Self::Packed(ring) => ring.next_chain(),
        }
    }

    /// Gives a chain back; the driver sees it after [`publish`](Self::publish). `written` is none if nothing was written into
    /// the chain's buffers at all, else how many bytes from their start the driver can rely on.
    pub(super) fn push_used(&mut self, chain: Taken, written: Option<u32>) {
        match self {
            Self::Split(ring) => ring.push_used(chain.head, written.unwrap_or(0)),
            Self::Packed(ring) => ring.push_used(chain, written),
        }
    }

    /// Makes everything given back visible. `true` if the driver wants to be signalled.
    pub(super) fn publish(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.publish(),
            Self::Packed(ring) => ring.publish(),
        }
    }

    /// Tells the driver not to kick. A hint: kicks may still come.
    pub(super) fn disable_notifications(&mut self) {
        match self {
            Self::Split(ring) => ring.disable_notifications(),
            Self::Packed(ring) => ring.disable_notifications(),
        }
    }

    /// Asks for a kick on the next chain. `true` if there is one already: take it, no kick needs to come.
    pub(super) fn enable_notifications(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.enable_notifications(),
            Self::Packed(ring) => ring.enable_notifications(),
        }
    }
}
