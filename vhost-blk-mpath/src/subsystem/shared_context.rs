//! What all subsystems of a daemon share.

use std::sync::Arc;

use nvme_tcp::host::HostIdentity;
use reactor::IoThreads;

use crate::events::EventLog;
use crate::subsystem::namespace_writers::NamespaceWriters;

/// What all subsystems of a daemon share.
pub(crate) struct SharedContext {
    pub(crate) host: HostIdentity,
    /// The number of I/O threads that serve each subsystem.
    pub(crate) io_threads: u16,
    /// All I/O threads.
    pub(crate) threads: Arc<IoThreads>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) writers: Arc<NamespaceWriters>,
}

#[cfg(test)]
impl SharedContext {
    /// One with as many I/O threads as serve each subsystem.
    pub(crate) fn of_test(io_threads: u16) -> Self {
        Self {
            host: HostIdentity { hostnqn: "nqn.2014-08.org.example:host".parse().unwrap(), hostid: [1; 16] },
            io_threads,
            threads: Arc::new(IoThreads::start(io_threads).unwrap()),
            events: Arc::new(EventLog::new()),
            writers: Arc::default(),
        }
    }
}
