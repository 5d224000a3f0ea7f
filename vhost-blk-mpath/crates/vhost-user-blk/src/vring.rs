//! What the front-end has told about one queue so far.

use std::sync::Arc;

use crate::notify::{Kick, Notifier};
use crate::ring::{PACKED_START, RingLayout};

/// Front-end addresses of the parts of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// The guest address by which the used ring is to be marked during a migration, if it is.
    pub(crate) used_logged_at: Option<u64>,
}

/// The set-up of one queue. It outlives the queue: stop, change, start again.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    /// Entries; 0 until told.
    pub(crate) size: u16,
    pub(crate) addresses: Option<RingAddresses>,
    /// Where to go on, as vhost-user passes it; none is the start of the ring. The running queue keeps its own.
    pub(crate) position: Option<u32>,
    /// Set makes the ring *started* in vhost-user's terms; `GET_VRING_BASE` takes it away.
    pub(crate) kick: Option<Arc<Kick>>,
    pub(crate) notifier: Arc<Notifier>,
    /// The other of the two independent states.
    pub(crate) enabled: bool,
    /// The sink has the queue.
    pub(crate) running: bool,
    /// Requests that an earlier daemon had in flight were not taken up again when the queue stopped; they are still in the log.
    pub(crate) left_in_flight: bool,
}

impl Vring {
    /// What a queue is started from, once everything is there and it may run.
    pub(crate) fn ready(&self, packed: bool, event_idx: bool) -> Option<(RingLayout, Arc<Kick>)> {
        let (RingAddresses { descriptors, available, used, .. }, kick) = (self.addresses?, self.kick.as_ref()?);
        let (size, position) = (self.size, self.position(packed));
        let layout = RingLayout { packed, size, descriptors, available, used, event_idx, position };
        (self.enabled && size > 0).then(|| (layout, Arc::clone(kick)))
    }

    /// Where a ring of the format negotiated is to be gone on with.
    pub(crate) fn position(&self, packed: bool) -> u32 {
        self.position.unwrap_or(if packed { PACKED_START } else { 0 })
    }
}
