//! What the front-end has told about one queue so far.

use std::sync::Arc;

use crate::notify::{Kick, Notifier};
use crate::ring::RingLayout;

/// Front-end addresses of the parts of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

/// The set-up of one queue. It outlives the queue: stop, change, start again.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    /// Entries; 0 until told.
    pub(crate) size: u16,
    pub(crate) addresses: Option<RingAddresses>,
    /// Index of the next chain to take; the running queue keeps its own.
    pub(crate) next_available: u16,
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
    pub(crate) fn ready(&self, event_idx: bool) -> Option<(RingLayout, Arc<Kick>)> {
        let (RingAddresses { descriptors, available, used }, kick) = (self.addresses?, self.kick.as_ref()?);
        let Self { size, next_available, .. } = *self;
        let layout = RingLayout { size, descriptors, available, used, event_idx, next_available };
        (self.enabled && size > 0).then(|| (layout, Arc::clone(kick)))
    }
}
