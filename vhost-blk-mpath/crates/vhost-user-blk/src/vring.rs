//! The set-up of one queue, as far as the front-end has sent it.

use std::sync::Arc;

use crate::notify::{Kick, Notifier};
use crate::ring::{PACKED_START, RingLayout};

/// Front-end addresses of the parts of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingAddresses {
    pub(crate) descriptors: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
    /// Guest address of the used ring for the dirty log, if the front-end wants that ring marked.
    pub(crate) used_logged_at: Option<u64>,
}

/// The set-up of one queue. It stays while the queue stops, changes and starts again.
#[derive(Debug, Default)]
pub(crate) struct Vring {
    /// Entries. 0 until the front-end sets the size.
    pub(crate) size: u16,
    pub(crate) addresses: Option<RingAddresses>,
    /// Where the queue starts, in vhost-user's format. `None` is the start of the ring. A running queue has its own
    /// position.
    pub(crate) position: Option<u32>,
    /// With a kick descriptor the ring is *started* in vhost-user's terms. `GET_VRING_BASE` removes it.
    pub(crate) kick: Option<Arc<Kick>>,
    pub(crate) notifier: Arc<Notifier>,
    /// Whether the ring is *enabled* in vhost-user's terms.
    pub(crate) enabled: bool,
    /// Whether the runner has the queue.
    pub(crate) running: bool,
    /// When the queue stopped, its in-flight log still had requests that were not resubmitted.
    pub(crate) left_in_flight: bool,
}

impl Vring {
    /// The parameters to start the queue. `None` until all of them are set and the ring is enabled.
    pub(crate) fn ready(&self, packed: bool, event_idx: bool) -> Option<(RingLayout, Arc<Kick>)> {
        let (RingAddresses { descriptors, available, used, .. }, kick) = (self.addresses?, self.kick.as_ref()?);
        let (size, position) = (self.size, self.position(packed));
        let layout = RingLayout { packed, size, descriptors, available, used, event_idx, position };
        (self.enabled && size > 0).then(|| (layout, Arc::clone(kick)))
    }

    /// Where the queue starts, in a ring of the negotiated format.
    pub(crate) fn position(&self, packed: bool) -> u32 {
        self.position.unwrap_or(if packed { PACKED_START } else { 0 })
    }
}
