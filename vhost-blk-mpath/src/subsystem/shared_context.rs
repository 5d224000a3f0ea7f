//! What all subsystems of a daemon share.

use std::sync::Arc;

use nvme_tcp::host::HostIdentity;

use crate::events::EventLog;
use crate::subsystem::namespace_writers::NamespaceWriters;

/// What all subsystems of a daemon share.
pub(crate) struct SharedContext {
    pub(crate) host: HostIdentity,
    pub(crate) io_threads: u16,
    pub(crate) events: Arc<EventLog>,
    pub(crate) writers: Arc<NamespaceWriters>,
}
