//! A ring of either format. The negotiated features decide which.

use std::sync::Arc;

use super::RingError;
use super::packed::PackedRing;
use super::split::{QueueError, RingLayout, SplitRing};
use crate::descriptor::TakenChain;
use crate::dirty_log::QueueDirtyLog;
use crate::inflight::{InflightArea, InflightError};
use crate::memory::GuestMemory;

/// A ring in guest memory, and this device's position in it.
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

    /// Continues where an earlier queue ended, if the log is not new, and writes the log from then on.
    pub(super) fn resume(&mut self, area: &InflightArea) -> Result<(), InflightError> {
        match self {
            Self::Split(ring) => ring.resume(area),
            Self::Packed(ring) => ring.resume(area),
        }
    }

    /// Marks later writes to the ring in the dirty log of a migration.
    pub(super) fn set_dirty_log(&mut self, log: QueueDirtyLog) {
        match self {
            Self::Split(ring) => ring.set_dirty_log(log),
            Self::Packed(ring) => ring.set_dirty_log(log),
        }
    }

    /// The position to continue from, in vhost-user's format.
    pub(super) fn position(&self) -> u32 {
        match self {
            Self::Split(ring) => ring.next_available().into(),
            Self::Packed(ring) => ring.position(),
        }
    }

    /// Chains that are taken and not published as used.
    pub(super) fn outstanding(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.outstanding(),
            Self::Packed(ring) => ring.outstanding(),
        }
    }

    /// Chains of an earlier queue that are still to be resubmitted.
    pub(super) fn to_resubmit(&self) -> u16 {
        match self {
            Self::Split(ring) => ring.to_resubmit(),
            Self::Packed(ring) => ring.to_resubmit(),
        }
    }

    /// Whether a chain is available that was not taken.
    pub(super) fn has_available(&self) -> bool {
        match self {
            Self::Split(ring) => ring.has_available(),
            Self::Packed(ring) => ring.has_available(),
        }
    }

    /// Takes the next chain. Chains of an earlier queue to resubmit come before available ones.
    pub(super) fn next_chain(&mut self) -> Result<Option<TakenChain>, QueueError> {
        match self {
            Self::Split(ring) => Ok(ring.next_head()?.map(|head| TakenChain { head, descriptors: 0, id: head })),
            Self::Packed(ring) => ring.next_chain(),
        }
    }

    /// Undoes the last [`next_chain`](Self::next_chain), which gave this chain. The chain is available again, or is to be
    /// resubmitted again.
    pub(super) fn put_back(&mut self, chain: TakenChain, is_resubmitted: bool) {
        match self {
            Self::Split(ring) => ring.put_back(chain.head, is_resubmitted),
            Self::Packed(ring) => ring.put_back(chain, is_resubmitted),
        }
    }

    /// Returns a chain whose status was written. The driver sees it after [`publish`](Self::publish). `written` is the
    /// number of bytes from the start of the chain's writable buffers that the driver can rely on.
    pub(super) fn push_used(&mut self, chain: TakenChain, written: u32) {
        match self {
            Self::Split(ring) => ring.push_used(chain.head, written),
            Self::Packed(ring) => ring.push_used(chain, written),
        }
    }

    /// Shows all returned chains to the driver. `true` if the driver wants a signal.
    pub(super) fn publish(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.publish(),
            Self::Packed(ring) => ring.publish(),
        }
    }

    /// Asks the driver not to kick. This is a hint: kicks may still come.
    pub(super) fn disable_notifications(&mut self) {
        match self {
            Self::Split(ring) => ring.disable_notifications(),
            Self::Packed(ring) => ring.disable_notifications(),
        }
    }

    /// Asks the driver for a kick on the next chain. `true` if a chain is already available. No kick need come for it.
    pub(super) fn enable_notifications(&mut self) -> bool {
        match self {
            Self::Split(ring) => ring.enable_notifications(),
            Self::Packed(ring) => ring.enable_notifications(),
        }
    }
}
