//! What subsystems do not have of their own.

use std::sync::Arc;

use nvme_tcp::host::HostIdentity;

use crate::events::EventLog;

/// What all subsystems of a daemon have in common.
pub(crate) struct Common {
    pub(crate) host: HostIdentity,
    pub(crate) io_threads: u16,
    pub(crate) events: Arc<EventLog>,
}
