//! One disk: what a guest sees. Its paths, and all that goes with them, are its [`Subsystem`](crate::subsystem::Subsystem)'s,
//! which may have other disks too.

pub(crate) mod geometry;
pub(crate) mod settings;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use mpath_api::config::{LimitsConfig, Weight};
use mpath_api::types::EventKind;
use mpath_core::{DiskId, FlowId, SharedDisk};
use mpath_host::Suspension;
use nvme_tcp::host::NamespaceIdentity;
use reactor::UnansweredQueues;
use vhost_user_blk::{GeometryError, SECTOR_BYTES, VirtioDisk};

use crate::disk::settings::DiskSettings;
use crate::events::EventLog;

pub(crate) struct Disk {
    pub(crate) id: DiskId,
    /// The name of its first virtqueue; those of the others follow.
    pub(crate) first_flow: FlowId,
    pub(crate) settings: DiskSettings,
    /// What the I/O threads share of it; [`Steered::limits`] says what its limits are.
    pub(crate) shared: SharedDisk,
    /// What its guest may come back for. The I/O threads keep it.
    pub(crate) unanswered: Arc<UnansweredQueues>,
    pub(crate) suspension: Mutex<Suspension>,
    served: OnceLock<Served>,
    connected: AtomicBool,
    steered: Mutex<Steered>,
    events: Arc<EventLog>,
}

/// What is known once a path has led to the namespace.
pub(crate) struct Served {
    /// As it was then; it may have grown.
    pub(crate) namespace: NamespaceIdentity,
    pub(crate) frontend: Arc<VirtioDisk>,
}

impl Served {
    /// As paths compare theirs with it.
    pub(crate) fn as_seen(&self) -> mpath_host::Served {
        mpath_host::Served { namespace: self.namespace, shown_blocks: self.blocks() }
    }

    /// Its size in bytes, as guests know it.
    pub(crate) fn bytes(&self) -> u64 {
        self.frontend.capacity_sectors() * SECTOR_BYTES
    }

    /// The same in blocks of the namespace.
    pub(crate) fn blocks(&self) -> u64 {
        self.bytes() / u64::from(self.namespace.block_bytes)
    }

    /// Has guests see so many blocks, if they see fewer.
    pub(crate) fn grow(&self, blocks: u64) -> Result<bool, GeometryError> {
        self.frontend.grow(geometry::sectors(blocks, self.namespace.block_bytes))
    }
}

/// What the API shows and changes of the disk alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steered {
    pub(crate) limits: LimitsConfig,
    pub(crate) weight: Weight,
}

impl Disk {
    pub(crate) fn new(
        id: DiskId,
        first_flow: FlowId,
        settings: DiskSettings,
        shared: SharedDisk,
        unanswered: Arc<UnansweredQueues>,
        events: Arc<EventLog>,
    ) -> Self {
        shared.limits.set(Instant::now(), settings.limits.limits());
        let steered = Mutex::new(Steered { limits: settings.limits, weight: settings.weight });
        Self {
            id,
            first_flow,
            settings,
            shared,
            unanswered,
            suspension: Mutex::default(),
            served: OnceLock::new(),
            connected: AtomicBool::new(false),
            steered,
            events,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.settings.name.as_str()
    }

    /// The name of one of its virtqueues.
    pub(crate) fn flow(&self, queue: u16) -> FlowId {
        FlowId(self.first_flow.0 + queue)
    }

    /// What it is, once a path has led to its namespace.
    pub(crate) fn served(&self) -> Option<&Served> {
        self.served.get()
    }

    /// A path has led to its namespace for the first time.
    pub(crate) fn serve(&self, served: Served) {
        assert!(self.served.set(served).is_ok(), "once, under the lock of whoever asked before");
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connected(&self, connected: bool) {
        self.connected.store(connected, Ordering::Relaxed);
    }

    pub(crate) fn steered(&self) -> MutexGuard<'_, Steered> {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what has happened to the disk.
    pub(crate) fn event(&self, kind: EventKind, message: impl Into<String>) {
        self.events.record(self.name(), None, kind, message.into());
    }
}
